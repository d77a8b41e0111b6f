"""Entry of `python -m tests.goldens`; see `tests.goldens.command`."""

import sys

from tests.goldens.command import main

sys.exit(main())
