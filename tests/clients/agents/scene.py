"""The scene that every coding agent plays: a repository with a bug, and a model that finds and mends it.

The model's outputs are what its format would have it write for the calls of the agent's own tools, so they differ from
agent to agent and from format to format. What happens does not: it reads `add.py`, edits it, runs it, and says so.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from unbraid import Message, ToolCall, render
from unbraid.core.message import Part, Text
from unbraid.formats import find

TASK = "Mend add.py: it should print 5."
BROKEN = "def add(a, b):\n    return a - b\n\n\nprint(add(2, 3))\n"
MENDED = BROKEN.replace("a - b", "a + b")
COMMAND = "python3 add.py > sum.txt; cat sum.txt"
"""What the agent runs in the end: it leaves a file, so that one can tell."""
THOUGHT = "A subtraction where a sum is due? I read the file first."
FIRST_WORDS = "I read add.py first."
LAST_WORDS = "Done: add.py now prints 5 — 2 plus 3."

Call = tuple[str, Mapping[str, Any]]


@dataclass(frozen=True)
class Work:
    """The calls of the scene, by the tools of one agent."""

    read: Call
    edit: Call
    run: Call
    look: Call
    """What it may call at once with `read`."""


def repository(folder: Path) -> Path:
    """A repository with one commit and one bug."""
    folder.mkdir()
    (folder / "add.py").write_text(BROKEN, encoding="utf-8")
    for arguments in (["init", "--quiet"], ["add", "--all"], ["commit", "--quiet", "--message=Add numbers"]):
        who = ["-c", "user.name=A", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false"]
        subprocess.run(["git", *who, *arguments], cwd=folder, check=True)
    return folder


def outputs(format: str, work: Work) -> Sequence[str]:
    """What the model writes, request by request."""
    reasons = find(format).reasoning is not None
    thought: tuple[Part, ...] = (Text("reasoning", THOUGHT),) if reasons else ()
    turns: list[tuple[Part, ...]] = [
        (*thought, Text("content", FIRST_WORDS), _call(work.read)),
        (_call(work.edit),),
        (_call(work.run),),
        (Text("content", LAST_WORDS),),
    ]
    return [render(format, Message(parts)) for parts in turns]


def _call(call: Call) -> ToolCall:
    name, arguments = call
    return ToolCall(name, json.dumps(arguments, ensure_ascii=False))
