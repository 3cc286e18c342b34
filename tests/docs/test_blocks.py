"""Every Python and console block of the documentation is run as it is printed, and prints what it says.

`blocks.py` says how a block tells what it needs. A document's Python blocks run in order and share their names; each
console block has a shell of its own. Both run in an empty folder with a copy of `examples/`.
"""

from __future__ import annotations

import ast
import importlib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from . import commands
from .blocks import DATA, DOCUMENTS, ELSEWHERE, RUN, Block, blocks, matches, of_language
from .blocks import commands as commands_of
from .running import FILES, WHISPERS, run_console, run_python


def each(language: str, *, elsewhere: bool) -> pytest.MarkDecorator:
    """The blocks of a language that run here, or those that need what is not here."""
    found = [block for block in of_language(language) if bool(block.elsewhere) is elsewhere]
    return pytest.mark.parametrize("block", found, ids=str)


@cache
def outcomes(document: Path) -> dict[Block, tuple[str, str]]:
    """What the Python blocks of a document print, and the tracebacks."""
    found = [block for block in blocks(document) if block.language == "python" and not block.elsewhere]
    return dict(zip(found, run_python(found), strict=False))


@pytest.mark.system
@each("python", elsewhere=False)
def test_a_python_block_runs_and_prints_what_it_says(block: Block) -> None:
    done = outcomes(block.document)
    assert block in done, f"{block} was not reached: a block before it failed"
    output, error = done[block]
    assert not error, error
    expected = "".join(f"{line}\n" for line in comments(block)) or block.prints
    if expected:
        assert matches(expected, output), f"{block} printed:\n{output}\nbut says:\n{expected}"


@each("python", elsewhere=True)
def test_a_python_block_for_elsewhere_imports_what_is_there(block: Block) -> None:
    missing = []
    for node in ast.walk(ast.parse(block.text)):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.split(".")[0] == "unbraid":
                    importlib.import_module(alias.name)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "unbraid":
            module = importlib.import_module(node.module or "")
            missing += [f"{node.module} has no {one.name}" for one in node.names if not hasattr(module, one.name)]
    assert not missing


def comments(block: Block) -> Iterator[str]:
    """What a block says in comments that it prints: `# -> …`."""
    for line in block.text.splitlines():
        _, found, rest = line.partition("# -> ")
        if found:
            yield rest


@pytest.mark.system
@each("console", elsewhere=False)
def test_a_console_block_runs_and_prints_what_it_says(block: Block) -> None:
    run_console(block)


@each("console", elsewhere=True)
def test_a_console_block_for_elsewhere_names_what_is_there(block: Block) -> None:
    for command in commands_of(block):
        commands.check(command.text)


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda document: document.name)
def test_no_block_hides_from_these_tests(document: Path) -> None:
    """Another name of the same language, or a need that nobody knows, would keep a block from being run."""
    for block in blocks(document):
        assert block.language in (*RUN, *DATA), f"{block}: use one of {', '.join((*RUN, *DATA))}"
        for need in block.needs:
            known = need in (*ELSEWHERE, *FILES, *WHISPERS, "model") or need.split()[0] == "server"
            assert known, f"{block}: no need {need!r} is known"


@pytest.mark.parametrize(
    ("command", "complaint"),
    [
        ("unbraid serve --sglnag http://gpu1:30000", "no --sglnag"),
        ("unbraid sing", "no `unbraid sing`"),
        ("make rnu", "rnu"),
        ("pip install '.[spech]'", "no extra spech"),
        ("python bench/none.py", "no bench/none.py"),
        ("vllm serve M --tool-call-parser unbraid-nothing", "nothing"),
        ("frobnicate", "no way to check"),
    ],
)
def test_a_command_that_names_what_is_not_there_is_found(command: str, complaint: str) -> None:
    with pytest.raises((AssertionError, ValueError), match=complaint):
        commands.check(command)


@pytest.mark.parametrize(
    ("expected", "actual", "same"),
    [
        ("a\nb\n", "a \nb", True),
        ("a … c", "a b c", True),
        ("a\n…\nd", "a\nb\nc\nd\n", True),
        ("a", "a b", False),
        ("a.c", "abc", False),
    ],
)
def test_dots_stand_for_what_is_left_out(expected: str, actual: str, same: bool) -> None:
    assert matches(expected, actual) is same
