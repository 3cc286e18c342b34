"""The recorded cases of three engines (NVIDIA Dynamo's parser, vLLM, SGLang), and what unbraid says to them.

The rule: where all three engines give the same answer, so do we. Everywhere else our answer is written down in
`conformance_answers`, with the law it follows, and the parser must give exactly that answer, whole and one character at
a time. `docs/conformance.md` is written from both.

How answers are compared with the engines':

- They answer without streaming, so ours is taken `settled()`: a call that never became complete counts as text.
- Calls are compared by name and by the value of their arguments.
- All three engines drop the text that follows the first call. Law 3 forbids that. So their `normal_text` is compared
  with our content up to the first call; that our whole content keeps the rest is asserted as well.
"""

from __future__ import annotations

import pytest

import unbraid
from unbraid import Message, Text, ToolCall
from unbraid.core.parser import UnknownTools

from .conformance_answers import AFTER_CALLS, ANSWERS, EMITTED, Part
from .conformance_cases import FAMILIES, FOLDER, Case, cases, said
from .shared_data import absent
from .write_conformance import DOCUMENT, document

if not FOLDER.is_dir():
    pytest.skip(absent(FOLDER), allow_module_level=True)

ALL = {(family, name): case for family in FAMILIES for name, case in cases(family).items()}
AGREED = [key for key, case in ALL.items() if case.agreed is not None]
WRITTEN = [(family, name) for family, answers in ANSWERS.items() for name in answers]


def parse(family: str, case: Case, size: int, unknown: UnknownTools) -> Message:
    """The message, from pieces of `size` characters."""
    parser = unbraid.parser(FAMILIES[family], tools=case.tools, unknown_tools=unknown)
    for at in range(0, len(case.text), size):
        parser.feed(case.text[at : at + size])
    parser.finish()
    return parser.message


def both_ways(family: str, case: Case, unknown: UnknownTools = "text") -> Message:
    message = parse(family, case, len(case.text) or 1, unknown)
    assert parse(family, case, 1, unknown) == message
    assert message == unbraid.parse(FAMILIES[family], case.text, tools=case.tools, unknown_tools=unknown)
    return message


def plain(message: Message) -> tuple[Part, ...]:
    """The parts as answers are written."""
    parts: list[Part] = []
    for part in message.parts:
        if isinstance(part, Text):
            assert part.strand == "content"
            parts.append(part.text)
        else:
            assert isinstance(part, ToolCall)
            parts.append(part)
    return tuple(parts)


def test_every_case_has_one_answer() -> None:
    assert set(FAMILIES) == set(ANSWERS)
    assert sorted(WRITTEN) == sorted(set(ALL) - set(AGREED))
    assert set(AFTER_CALLS) | EMITTED <= set(AGREED)


@pytest.mark.parametrize(("family", "name"), AGREED)
def test_where_the_engines_agree_so_do_we(family: str, name: str) -> None:
    case = ALL[family, name]
    message = both_ways(family, case, "emit" if (family, name) in EMITTED else "text")
    assert case.agreed is not None
    assert said(message) == case.agreed
    assert message.settled().content == case.agreed.text + AFTER_CALLS.get((family, name), "")


@pytest.mark.parametrize(("family", "name"), sorted(EMITTED))
def test_unless_asked_a_call_to_no_tool_of_the_request_is_text(family: str, name: str) -> None:
    case = ALL[family, name]
    assert plain(both_ways(family, case)) == (case.text,)


@pytest.mark.parametrize(("family", "name"), WRITTEN)
def test_elsewhere_we_say_what_is_written(family: str, name: str) -> None:
    case, answer = ALL[family, name], ANSWERS[family][name]
    message = both_ways(family, case)
    assert plain(message) == answer.parts
    assert tuple(engine for engine, theirs in case.engines.items() if theirs == said(message)) == answer.same


def test_the_document_is_up_to_date() -> None:
    assert DOCUMENT.read_text(encoding="utf-8") == document(), "run python -m tests.write_conformance"
