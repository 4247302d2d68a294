"""The command `kolo` of an installed wheel: also `python3 -m kolo`."""

from __future__ import annotations

import os
import sys


def main() -> None:
    """Runs the command that lies in the wheel."""
    command = os.path.join(os.path.dirname(os.path.abspath(__file__)), "bin", "kolo")
    if not os.path.exists(command):
        sys.exit("python3 -m kolo needs an installed wheel (pip install ./python); run build/release/kolo")
    os.execv(command, ["kolo", *sys.argv[1:]])


if __name__ == "__main__":
    main()
