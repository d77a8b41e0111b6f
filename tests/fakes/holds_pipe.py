"""Exits at once, but leaves a child in its process group that holds all of its pipes."""

import os
import signal

if os.fork() == 0:
    signal.pause()
os.write(1, b"last words\n")
os._exit(0)
