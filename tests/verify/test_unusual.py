"""A right server is blamed for nothing, however unusual it is."""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from dataclasses import replace

import pytest

from unbraid.verify.checks import leaked
from unbraid.verify.running import verify
from unbraid.verify.server import VerifiedServer

from .faulty import Answer, Planted, faulty
from .obedient_model import Obedient
from .unusual import rows

PROBES = ("answer", "required", "parallel", "schema", "reasoning", "round")


@pytest.fixture(scope="module")
def obedient() -> Iterator[Obedient]:
    model = Obedient()
    yield model
    model.close()


@pytest.mark.parametrize(
    ("api", "planted"),
    [
        pytest.param(api, planted, id=f"{name}: {api}", marks=pytest.mark.system if at else ())
        for name, apis, planted in rows()
        for at, api in enumerate(apis)
    ],
)
def test_what_is_unusual_is_no_fault(obedient: Obedient, api: str, planted: Planted) -> None:
    changed = []

    def change(answer: Answer) -> None:
        before = deepcopy((answer.json, answer.events, answer.raw))
        planted.change(answer)
        changed.append(before != (answer.json, answer.events, answer.raw))

    with faulty(obedient, replace(planted, change=change)) as url:
        server = VerifiedServer(url, dialect=api)
        faults = [f"{result.name}: {each.fault}" for result in verify(server, probes=PROBES) for each in result.faults]
        server.close()
    assert not faults
    assert any(changed), "this server is not unusual at all"


@pytest.mark.parametrize(
    ("text", "question", "leaks"),
    [
        ("The tag <tool_call> ends a call.", "Keep: the tag </tool_call> ends a call", []),
        ("[TOOL_CALLS] begins it.", "What is [/TOOL_CALLS]?", []),
        ("The tag <tool_call> ends a call.", "Keep: the tag </think> ends it", ["<tool_call>"]),
        ("Write `<tool_call>`.", "How?", []),
    ],
)
def test_a_tag_that_the_question_spells_has_not_leaked(text: str, question: str, leaks: list[str]) -> None:
    assert leaked(text, question) == leaks
