"""``stoker`` and ``python -m stoker``: run the binary with the same arguments."""

from __future__ import annotations

import os
import sys

from ._binary import environment, find_binary
from ._errors import EngineNotFound


def main() -> None:
    """Replace this process by the ``stoker`` binary."""
    try:
        binary = find_binary()
    except EngineNotFound as error:
        sys.exit(f"stoker: {error}")
    os.execve(binary, ["stoker", *sys.argv[1:]], environment())


if __name__ == "__main__":
    main()
