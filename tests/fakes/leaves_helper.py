"""Leaves a helper in a session of its own that has something to tidy up: at SIGTERM it removes the file that it is given."""

import os
import signal
import sys


def tidy(number, frame):
    os.unlink(sys.argv[1])
    os._exit(0)


reader, writer = os.pipe()
if os.fork() == 0:
    os.setsid()
    signal.signal(signal.SIGTERM, tidy)
    os.write(writer, b"1")
    while True:
        signal.pause()
os.read(reader, 1)
os.write(1, b"ready\n")
sys.stdin.read()
