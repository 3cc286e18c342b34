"""`python -m unbraid`: the same as the command `unbraid`."""

from __future__ import annotations

import sys

from .cli import main

if __name__ == "__main__":
    sys.exit(main())
