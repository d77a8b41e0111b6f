"""As Claude Code does for its tools: a grandchild in a session of its own, deaf to signals. Waits for the end of its input.

`crash`: kills itself with SIGKILL instead of waiting. `hides`: the child has dropped its environment too.
It says `ready PID`, with the pid of the process in the other session.
"""

import os
import signal
import sys

CODE = "import os, signal; os.write(3, b'1'); signal.pause()"

reader, writer = os.pipe()
child = os.fork()
if child == 0:
    os.setsid()
    if sys.argv[1:] == ["hides"]:
        os.dup2(writer, 3)
        os.execve(sys.executable, [sys.executable, "-I", "-S", "-c", CODE], {})
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    if os.fork() == 0:
        os.write(writer, b"1")
    while True:
        signal.pause()
os.read(reader, 1)
os.write(1, b"ready %d\n" % child)
if sys.argv[1:] == ["crash"]:
    os.kill(os.getpid(), signal.SIGKILL)
sys.stdin.read()
