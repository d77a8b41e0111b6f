"""Never reads its input; only a signal ends it."""

import os
import signal

os.write(1, b"ready\n")
signal.pause()
