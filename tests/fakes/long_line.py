"""One line of so many bytes, then a short one."""

import sys

sys.stdout.buffer.write(b'{"type":"image","data":"')
for _ in range(int(sys.argv[1]) // 65536):
    sys.stdout.buffer.write(b"A" * 65536)
sys.stdout.buffer.write(b'"}\nafter\n')
