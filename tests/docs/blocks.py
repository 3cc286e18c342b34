"""The fenced blocks of the documentation, and what each of them needs.

A block is run exactly as it is printed. A comment before it says what it needs beyond an installed unbraid:

    <!-- needs: server -->                       a server at http://127.0.0.1:8000, with the default model
    <!-- needs: server --replay FILE … -->       the same, started with these flags of `unbraid serve`
    <!-- needs: model -->                        the default model, which `unbraid serve` would fetch
    <!-- needs: talk.wav -->                     a file that the reader brings (`running.FILES`)
    <!-- needs: vllm -->                         what these tests do not have: sglang, vllm, gpu, network, checkout

Several needs are separated by semicolons. Blocks that need something of the last line are checked instead of run: their
syntax, and that every command, flag and file they name is there (`commands.py`). `make test-engines` also checks vLLM's
and SGLang's own flags, and runs the Python blocks that need these packages.
"""

from __future__ import annotations

import importlib.util
import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ..support.places import ROOT

DOCUMENTS = (
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "SECURITY.md",
    *sorted((ROOT / "docs").glob("*.md")),
)
RUN = ("python", "console")
DATA = ("text", "json", "toml", "yaml", "jinja", "mermaid")
"""What a block may hold that is not run. `text` after a block that is run is what that block prints."""
ELSEWHERE = ("checkout", "gpu", "network", "sglang", "vllm")
"""What is not here when the tests run."""
PACKAGES = ("sglang", "vllm")
"""Those of them that `make test-engines` has, as packages if not as servers."""

_FENCE = re.compile(r"(?P<indent> *)(?P<ticks>`{3,})(?P<language>\S*)\s*")
_NEEDS = re.compile(r"\s*<!-- needs: (.+?) -->\s*")


@dataclass(frozen=True)
class Block:
    """One block: where its first line stands, its text, what it needs and what it prints."""

    document: Path
    line: int
    language: str
    text: str
    needs: tuple[str, ...] = ()
    prints: str | None = None

    def __str__(self) -> str:
        return f"{self.document.relative_to(ROOT).as_posix()}:{self.line}"

    @property
    def elsewhere(self) -> bool:
        """Whether it needs what is not here. Python that needs an engine's package runs where that is installed."""
        installed = (need for need in self.needs if self.language == "python" and need in PACKAGES)
        here = {need for need in installed if importlib.util.find_spec(need)}
        return any(need in ELSEWHERE for need in self.needs if need not in here)

    @property
    def server(self) -> str | None:
        """The flags of the server that it needs, if it needs one."""
        return next((need.removeprefix("server").strip() for need in self.needs if need.split()[0] == "server"), None)


def blocks(document: Path) -> list[Block]:
    """The blocks of a document, in order, those that are not run as well."""
    found: list[Block] = []
    lines = document.read_text(encoding="utf-8").split("\n")
    needs: tuple[str, ...] = ()
    after_block = False
    at = 0
    while at < len(lines):
        fence, comment = _FENCE.fullmatch(lines[at]), _NEEDS.fullmatch(lines[at])
        if fence:
            end = next(n for n in range(at + 1, len(lines)) if lines[n].strip() == fence["ticks"])
            text = textwrap.dedent("\n".join(lines[at + 1 : end]) + "\n")
            language = fence["language"]
            if language == "text" and after_block and found[-1].language in RUN:
                last = found[-1]
                found[-1] = Block(last.document, last.line, last.language, last.text, last.needs, text)
            else:
                found.append(Block(document, at + 2, language, text, needs))
            needs, after_block, at = (), True, end
        elif comment:
            needs, after_block = tuple(need.strip() for need in comment[1].split(";")), False
        elif lines[at].strip():
            needs, after_block = (), False
        at += 1
    return found


def of_language(language: str) -> list[Block]:
    return [block for document in DOCUMENTS for block in blocks(document) if block.language == language]


@dataclass(frozen=True)
class Command:
    """A line of a console block that begins with `$`, and what is printed below it."""

    text: str
    prints: str


def commands(block: Block) -> Iterator[Command]:
    """The commands of a console block. A line that ends with a backslash goes on in the next."""
    text, printed = "", ""
    lines = iter(block.text.splitlines())
    for line in lines:
        if line.startswith("$ "):
            if text:
                yield Command(text, printed)
            text, printed = line.removeprefix("$ "), ""
            while text.endswith("\\"):
                text += "\n" + next(lines)
        elif not text:
            raise AssertionError(f"{block}: a console block begins with a command: `$ …`")
        else:
            printed += line + "\n"
    yield Command(text, printed)


def matches(expected: str, actual: str) -> bool:
    """Whether `actual` is what is printed, where `…` stands for any text (in a line by itself, for any lines)."""
    pattern = "".join("(?s:.*?)" if part == "…" else re.escape(part) for part in re.split("(…)", expected.strip()))
    return re.fullmatch(pattern, _trimmed(actual)) is not None


def _trimmed(text: str) -> str:
    return "\n".join(line.rstrip() for line in text.strip().splitlines())
