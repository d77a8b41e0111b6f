"""Closes its stdout and lives on."""

import os
import signal

os.write(1, b"bye\n")
os.close(1)
signal.pause()
