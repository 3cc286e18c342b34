"""Writes the record of what is public, for a release: `python -m tests.house.write_public_api`.

Breaks that the changelog does not name are refused."""

from __future__ import annotations

import json
import sys

from .public_api import RECORD, public_api, unannounced


def main() -> int:
    problems = unannounced() if RECORD.exists() else {}
    for name, problem in problems.items():
        print(
            f"{name}: {problem}. Name it under ### Breaking in CHANGELOG.md, with what to do instead", file=sys.stderr
        )
    if not problems:
        lines = ",\n".join(f"  {json.dumps(name)}: {json.dumps(value)}" for name, value in public_api().items())
        RECORD.write_text(f"{{\n{lines}\n}}\n", encoding="utf-8")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
