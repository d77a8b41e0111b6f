"""Leaves a grandchild that nothing leads to: own session, empty environment, adopted by init, holding stdout.

It writes its pid; with `talks` it goes on writing. It ends when the file that it is given is removed.
"""

import os
import sys

file, talks = sys.argv[1], sys.argv[2:] == ["talks"]
CODE = """
import os, sys, time
os.write(1, b'escaped %d\\n' % os.getpid())
while os.path.exists(sys.argv[1]):
    time.sleep(0.02)
    if sys.argv[2] == 'True':
        os.write(1, b'still here\\n')
"""
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.execve(sys.executable, [sys.executable, "-I", "-S", "-c", CODE, file, str(talks)], {})
    os._exit(0)
os.wait()
if sys.stdin.readline():
    os._exit(7)
