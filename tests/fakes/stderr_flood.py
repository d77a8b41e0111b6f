"""So many numbered lines on stderr, then exit 1."""

import sys

for number in range(int(sys.argv[1])):
    sys.stderr.write(f"line {number}\n")
sys.exit(1)
