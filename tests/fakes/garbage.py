"""Everything but JSON: bytes that are no UTF-8, a NUL, separators that are no newlines, a CRLF."""

import sys

sys.stdout.buffer.write(b"\xff\xfe\x00\x80\n" + "a\u2028b\x0cc\x85d\n".encode() + b"crlf\r\n" + b"\n" + b'{"ok":true}\n')
