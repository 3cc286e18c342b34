"""Every fault that parsers and servers are known for is found in every API that can have it, named right, and put down
to the one whose it is; and a right server has none."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

from unbraid import UnbraidError, renderer
from unbraid.verify.attribution import Witness
from unbraid.verify.running import ProbeResult, verify
from unbraid.verify.server import VerifiedServer

from ..support.real_tokenizers import qwen3_config, qwen3_huggingface
from .faults import (
    ALL,
    CHAT,
    LIMIT,
    OPENAI,
    REFUSALS,
    drop_last_call,
    edits,
    events,
    is_streamed,
    refuses,
    rows,
    unplaced,
    without,
)
from .faulty import Change, Planted, faulty
from .obedient_model import Obedient


@pytest.fixture(scope="module")
def obedient() -> Iterator[Obedient]:
    model = Obedient()
    yield model
    model.close()


@pytest.fixture(scope="module")
def witness() -> Witness:
    return Witness(renderer=renderer(qwen3_config()["chat_template"], qwen3_huggingface(), "qwen3"))


def verified(
    obedient: Obedient, planted: Planted, *probes: str, api: str = "chat", witness: Witness | None = None
) -> list[ProbeResult]:
    with faulty(obedient, planted) as url:
        server = VerifiedServer(url, dialect=api)
        results = list(verify(server, probes=probes, witness=witness))
        server.close()
    return results


@pytest.mark.parametrize(
    ("api", "kind", "probe", "planted"),
    [
        pytest.param(api, kind, probe, planted, id=f"{name}: {api}", marks=pytest.mark.system if at else ())
        for name, apis, kind, probe, planted in rows()
        for at, api in enumerate(apis)
    ],
)
def test_a_fault_is_found(obedient: Obedient, api: str, kind: str, probe: str, planted: Planted) -> None:
    (result,) = verified(obedient, planted, probe, api=api)
    assert result.verdict == "failed"
    kinds = {each.fault.kind for each in result.faults}
    assert kind in kinds, kinds


@pytest.mark.parametrize("api", ALL)
def test_a_right_server_has_no_fault(obedient: Obedient, witness: Witness, api: str) -> None:
    results = verified(obedient, Planted(), api=api, witness=witness if api in CHAT else None)
    faults = {result.name: [each.fault for each in result.faults] for result in results if result.verdict != "ok"}
    assert not faults


def test_only_the_place_that_is_missing_is_said_to_be_wrong(obedient: Obedient) -> None:
    (result,) = verified(obedient, Planted(events(unplaced)), "answer", api="responses")
    assert {each.fault.detail for each in result.faults} == {"the events of items have no `output_index`"}


BROKEN = {"schema_mismatch", "unknown_name", "invalid_json", "value_changed", "markup_leaked", "character_broken"}
"""Kinds of faults that a model can make, too."""


@pytest.mark.parametrize(
    ("kind", "probe", "planted"),
    [
        pytest.param(kind, probe, planted, id=name)
        for name, apis, kind, probe, planted in rows()
        if "chat" in apis and kind in BROKEN
    ],
)
def test_the_parser_is_blamed_where_ids_clear_the_model(
    obedient: Obedient, witness: Witness, kind: str, probe: str, planted: Planted
) -> None:
    (result,) = verified(obedient, planted, probe, witness=witness)
    assert {each.whose for each in result.faults if each.fault.kind == kind} == {"parser"}


def test_a_call_that_was_lost_is_seen_by_ids(obedient: Obedient, witness: Witness) -> None:
    (result,) = verified(obedient, Planted(drop_last_call), "parallel", witness=witness)
    assert {(each.fault.kind, each.whose) for each in result.faults} == {("reply_differs", "parser")}


def test_text_that_was_lost_is_seen_by_ids(obedient: Obedient, witness: Witness) -> None:
    lost = Planted(edits("content", lambda text: text[:-2], is_streamed))
    (result,) = verified(obedient, lost, "answer", witness=witness)
    assert {(each.fault.kind, each.whose) for each in result.faults} == {("reply_differs", "parser")}


@pytest.mark.parametrize(
    ("probe", "right", "wrong", "whose"),
    [
        ("auto", '"city"', '"town"', "model"),
        ("auto", "get_weather", "get_wether", "model"),
        ("auto", '{"city": "Paris"}', "{'city': Paris", "model"),
        ("answer", "Red", "Red<|fim_pad|><|im_start|>", "model"),
        ("strict", '"minute"', '"minutes"', "server"),
    ],
)
def test_the_model_is_blamed_for_what_it_wrote(
    obedient: Obedient, witness: Witness, probe: str, right: str, wrong: str, whose: str
) -> None:
    obedient.habit = lambda text: text.replace(right, wrong)
    try:
        (result,) = verified(obedient, Planted(), probe, witness=witness)
    finally:
        obedient.habit = lambda text: text
    assert result.verdict == ("model" if whose == "model" else "failed")
    assert {each.whose for each in result.faults} == {whose}


def test_a_model_that_does_not_escape_quotes_is_no_fault_of_the_parser(obedient: Obedient) -> None:
    obedient.habit = lambda text: re.sub(r'\\".*(?=\n</tool_call>)', '"}}', text)
    try:
        (result,) = verified(obedient, Planted(), "values")
    finally:
        obedient.habit = lambda text: text
    assert (result.verdict, result.telling) == ("ok", 5)


@pytest.mark.parametrize(
    ("right", "planted", "whose"),
    [
        ("get_weather", edits("name", lambda name: f"functions.{name}"), "parser"),
        ('"get_weather"', lambda answer: None, "model"),
    ],
)
def test_raw_completions_decide_where_there_are_no_ids(
    obedient: Obedient, witness: Witness, right: str, planted: Change, whose: str
) -> None:
    obedient.habit = lambda text: text.replace(right, '"get_wether"') if whose == "model" else text
    try:
        (result,) = verified(obedient, Planted(planted, ask=without("return_token_ids")), "auto", witness=witness)
    finally:
        obedient.habit = lambda text: text
    assert {(each.fault.kind, each.whose) for each in result.faults} == {("unknown_name", whose)}


def test_a_server_that_is_busy_is_asked_again(obedient: Obedient) -> None:
    refusals = iter([True, True])

    def busy(body: dict[str, Any]) -> dict[str, Any] | tuple[int, str]:
        return (429, "slow down") if next(refusals, False) else body

    (result,) = verified(obedient, Planted(ask=busy), "answer")
    assert result.verdict == "ok"


@pytest.mark.parametrize(
    ("api", "planted", "refused", "untold"),
    [pytest.param(api, planted, *rest, id=f"{name}: {api}") for name, api, planted, *rest in REFUSALS],
)
def test_what_a_server_does_not_take_is_left_out_and_said(
    obedient: Obedient, api: str, planted: Planted, refused: dict[str, str], untold: tuple[str, ...]
) -> None:
    with faulty(obedient, planted) as url:
        server = VerifiedServer(url, dialect=api, extra={"seed": 1} if "seed" in refused else None)
        results = list(verify(server))
        server.close()
    assert {name: each.remedy for name, each in server.refused.items()} == refused
    assert not {result.name: [each.fault for each in result.faults] for result in results if result.faults}
    assert {result.name for result in results if result.verdict == "unsure"} == set(untold)


def test_a_limit_that_is_not_followed_is_found_under_its_other_name(obedient: Obedient) -> None:
    refusing = refuses(OPENAI, "max_tokens").ask
    ignoring = without("max_completion_tokens")

    def ask(body: dict[str, Any]) -> Any:
        heard = refusing(body)
        return heard if isinstance(heard, tuple) else ignoring(heard)

    (result,) = verified(obedient, Planted(ask=ask), "length")
    assert "length_ignored" in {each.fault.kind for each in result.faults}


@pytest.mark.parametrize("error", [LIMIT, OPENAI.replace("{name}", "messages")])
def test_a_refusal_that_nothing_helps_is_a_fault(obedient: Obedient, error: str) -> None:
    planted = refuses(error, "messages")
    with faulty(obedient, planted) as url:
        server = VerifiedServer(url)
        (result,) = verify(server, probes=["answer"])
        server.close()
    assert not server.refused
    assert {each.fault.kind for each in result.faults} == {"protocol"}
    assert all(each.exchange.body["max_tokens"] == 512 for each in result.faults)


@pytest.mark.parametrize(("api", "status"), [("chat", 401), ("responses", 404), ("messages", 405)])
def test_a_server_without_the_api_cannot_be_asked(obedient: Obedient, api: str, status: int) -> None:
    with pytest.raises(UnbraidError, match=f"answers {status}"):
        verified(obedient, Planted(ask=lambda body: (status, "no")), api=api)
