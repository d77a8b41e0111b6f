"""Complains on stderr and exits with the code that it is given."""

import sys

sys.stdout.write("one\ntwo\n")
sys.stderr.write("error: no such model\nhint: try another\n")
sys.exit(int(sys.argv[1]))
