"""Writes lines of 1000 bytes (newline counted), as many thousand bytes as it is told, as fast as it can; then `end`."""

import sys

line = b"x" * 999 + b"\n"
for _ in range(int(sys.argv[1]) // 64):
    sys.stdout.buffer.write(line * 64)
sys.stdout.buffer.write(line * (int(sys.argv[1]) % 64) + b"end\n")
