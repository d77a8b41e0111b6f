"""`python -m shim.record AGENT [--program]` prints the agent's npm package, or its program's name. For scripts/record."""

from __future__ import annotations

import sys

from shim.errors import ShimError
from shim.record.homes import target


def main(arguments: list[str]) -> int:
    """Print the name. Returns 1, with a sentence on stderr, for an agent that cannot be recorded."""
    try:
        to = target(arguments[0] if arguments else "")
    except ShimError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    sys.stdout.write(f"{to.program if '--program' in arguments else to.package}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
