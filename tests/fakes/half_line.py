"""Dies in the middle of a line."""

import os

os.write(1, b"whole\nhalf")
os._exit(0)
