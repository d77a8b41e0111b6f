"""An agent that tells on stderr all that it knows, then dies: what it was started with, and what it was given as keys."""

import os
import sys

for name, value in sorted(os.environ.items()):
    sys.stderr.write(f"{name} is {value}\n")
sys.stderr.write(f"argv {sys.argv}\nfatal: cannot log in with {os.environ.get('BABBLER_KEY')}\n")
sys.stderr.flush()
sys.stdin.readline()
sys.exit(3)
