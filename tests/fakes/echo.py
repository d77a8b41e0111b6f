"""Says ready, then everything back until its input ends; exits 0."""

import sys

sys.stdout.buffer.write(b"ready\n")
sys.stdout.buffer.flush()
for line in sys.stdin.buffer:
    sys.stdout.buffer.write(line)
    sys.stdout.buffer.flush()
