"""Runs the Python blocks of one document in one namespace, one after the other, and says what became of each.

Started by `running.py` in a process of its own: a list of `[name, line, code]` comes in as JSON; `[output, error]` for
each goes out to the file that is named as the argument. After a block that fails, the others are not run.
"""

from __future__ import annotations

import contextlib
import io
import json
import sys
import traceback
from pathlib import Path


def main(results: str) -> None:
    namespace: dict[str, object] = {"__name__": "__main__"}
    done: list[tuple[str, str]] = []
    for name, line, code in json.load(sys.stdin):
        output = io.StringIO()
        try:
            # Empty lines before it give tracebacks the document's own line numbers.
            compiled = compile("\n" * (line - 1) + code, name, "exec")
            with contextlib.redirect_stdout(output):
                exec(compiled, namespace)
        except BaseException:
            done.append((output.getvalue(), traceback.format_exc()))
            break
        done.append((output.getvalue(), ""))
    Path(results).write_text(json.dumps(done), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
