"""The recorded cases of three engines (NVIDIA Dynamo's parser, vLLM, SGLang), and what unbraid says to them.

The rule: where all three engines give the same answer, so do we, but for the cases in `DIFFERENT`, each with the law
that forbids their answer. What we say to every case is written down in `conformance_answers`, with the law it follows,
and the parser must say exactly that, whole and one character at a time. `docs/conformance.md` is written from both.

How answers are compared with the engines':

- They answer without streaming, so ours is taken `settled()`: a call that never became complete counts as text.
- Calls are compared by name and by the value of their arguments.
- Most drop the text that follows the first call. Law 3 forbids that. So their `normal_text` is compared with our
  content up to the first call, or with all of it.
"""

from __future__ import annotations

import json

import pytest

import unbraid
from unbraid import Message, Text, ToolCall
from unbraid.parsing import UnknownTools

from ...support.places import absent
from .answers import BY_SCHEMA, DIFFERENT, EMITTED, NUMBERS, Part, Parts
from .cases import FAMILIES, FOLDER, NOT_JSON, Case, cases, read
from .write import DOCUMENT, document

if not FOLDER.is_dir():
    pytest.skip(absent(FOLDER), allow_module_level=True)

ALL = {(family, name): case for family in FAMILIES for name, case in cases(family).items()}
AGREED = [key for key, case in ALL.items() if case.agreed is not None]


def both_ways(family: str, case: Case, unknown: UnknownTools = "text") -> Message:
    """The message, from the whole text and from single characters."""
    message = read(family, case, unknown)
    parser = unbraid.parser(FAMILIES[family], tools=case.tools, unknown_tools=unknown, prompt="")
    for character in case.text:
        parser.feed(character)
    parser.finish(end_of_turn=case.ended)
    assert parser.message == message
    return message


def plain(parts: Parts) -> list[object]:
    """Parts as they are compared: whole arguments by their value."""
    return [_plain(part) for part in parts]


def _plain(part: Part) -> object:
    if isinstance(part, ToolCall) and part.complete:
        return part.name, json.loads(part.arguments)
    return part


def parts_of(message: Message) -> Parts:
    """The message's parts as answers are written."""
    parts: list[Part] = []
    for part in message.parts:
        assert isinstance(part, Text | ToolCall)
        parts.append(part.text if isinstance(part, Text) and part.strand == "content" else part)
    return tuple(parts)


def test_every_case_has_one_answer() -> None:
    numbers = {name for _, name in ALL}
    assert numbers == set(NUMBERS)
    own = {(family, name) for name, number in NUMBERS.items() for family in number.but}
    assert {key for key in own | EMITTED if key[0] in FAMILIES} <= set(ALL)
    assert set(DIFFERENT) <= set(AGREED)


def test_an_answer_of_its_own_is_another_one() -> None:
    apart = [(family, NUMBERS[name], case) for (family, name), case in ALL.items() if NUMBERS[name].but.get(family)]
    for family, number, case in apart:
        own = number.but[family]
        same_parts = plain(own.parts(case)) == plain(number.answer.parts(case))
        assert not same_parts or own.law not in ("", number.answer.law), (family, case)


@pytest.mark.parametrize(("family", "name"), list(ALL))
def test_we_say_what_is_written(family: str, name: str) -> None:
    case = ALL[family, name]
    message = both_ways(family, case)
    answer = NUMBERS[name].answer_for(family)
    assert plain(parts_of(message)) == plain(answer.parts(case))
    if family not in NOT_JSON and answer.law != BY_SCHEMA:  # law 5
        assert all(call.arguments in case.text or call.arguments == "{}" for call in message.tool_calls)


@pytest.mark.parametrize(("family", "name"), AGREED)
def test_where_the_engines_agree_so_do_we_or_we_say_why(family: str, name: str) -> None:
    case = ALL[family, name]
    message = both_ways(family, case, "emit" if (family, name) in EMITTED else "text")
    assert case.agreed is not None
    assert case.agreed.is_said_by(message) is not ((family, name) in DIFFERENT)


def test_the_document_is_up_to_date() -> None:
    assert DOCUMENT.read_text(encoding="utf-8") == document(), "run python -m tests.formats.conformance.write"
