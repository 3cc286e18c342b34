"""Whose fault it is, by what the model wrote; and prompts that are held against the model's template."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest

from unbraid import find, renderer
from unbraid.engines.replay import script
from unbraid.verify.attribution import UNKNOWN, Witness
from unbraid.verify.checks import Fault
from unbraid.verify.exchange import ObservedCall, ObservedReply, ProbeRequest, VerifyExchange
from unbraid.verify.probes import WEATHER
from unbraid.verify.running import ProbeResult, verify
from unbraid.verify.server import VerifiedServer

from ..support.real_tokenizers import encode, qwen3_config, qwen3_huggingface
from ..support.scripted_server import Scripted
from .planted import planted_server

GOOD = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris"}}\n</tool_call>'


def blamed(plant: str, wrote: str, witness: Witness) -> set[str]:
    with planted_server(plant, wrote) as url:
        (result,) = verify(VerifiedServer(url), witness=witness, probes=["required"])
    return {each.whose for each in result.faults if not each.exchange.streamed and each.fault.kind == plant}


def test_the_parser_is_blamed_where_the_model_wrote_a_good_call() -> None:
    assert blamed("schema_mismatch", GOOD, Witness(find("hermes"))) == {"parser"}
    assert blamed("unknown_name", GOOD, Witness(find("hermes"))) == {"parser"}


def test_the_model_is_blamed_where_it_wrote_what_came() -> None:
    assert blamed("schema_mismatch", GOOD.replace("city", "town"), Witness(find("hermes"))) == {"model"}
    assert blamed("unknown_name", GOOD.replace("get_weather", "get_wether"), Witness(find("hermes"))) == {"model"}


def test_the_model_is_blamed_where_its_arguments_are_no_object() -> None:
    text = GOOD.replace('{"city": "Paris"}', '"Paris"')  # vLLM's parser hands on the text, ours what is written in it
    assert blamed("schema_mismatch", text, Witness(find("hermes"))) == {"model"}


def test_nobody_is_blamed_for_what_nobody_shows() -> None:
    assert blamed("schema_mismatch", GOOD, Witness()) == {UNKNOWN}


@pytest.fixture(scope="module")
def qwen() -> Iterator[Scripted]:
    scripted = Scripted()
    scripted.server.start()
    yield scripted
    scripted.server.stop()


def prompts(qwen: Scripted, template: str) -> list[ProbeResult]:
    ids = encode(qwen.tokenizer, "<think>\n\n</think>\n\nHello.")
    qwen.choose = lambda _: script(ids)
    witness = Witness(renderer=renderer(template, qwen3_huggingface(), "qwen3"))
    return list(verify(VerifiedServer(qwen.server.url), witness=witness, probes=["prompt"]))


def test_the_prompt_is_what_the_template_says(qwen: Scripted) -> None:
    (result,) = prompts(qwen, qwen3_config()["chat_template"])
    assert (result.verdict, result.telling) == ("ok", 2)


PLAIN = (
    "{% for each in messages %}<|im_start|>{{ each.role }}\n{{ each.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
"""A template without a place for tools."""


def test_tools_that_a_template_has_no_place_for_may_be_described_or_left_out() -> None:
    model = renderer(PLAIN, qwen3_huggingface(), "hermes")
    messages, tools = [{"role": "user", "content": "Hi"}], [{"type": "function", "function": dict(WEATHER)}]
    request = ProbeRequest(text="Hi", tools=(WEATHER,))

    def fault(ids: Sequence[int]) -> Fault | None:
        reply, body = ObservedReply(prompt_ids=tuple(ids)), {"messages": messages}
        exchange = VerifyExchange(request=request, body=body, streamed=False, raw="", reply=reply)
        return Witness(renderer=model).prompt_fault(exchange)

    described, left_out = model.render(messages, tools).ids, model.render(messages).ids
    assert described != left_out
    assert (fault(described), fault(left_out)) == (None, None)
    wrong = fault(left_out[:-1])
    assert wrong is not None
    assert wrong.detail.startswith(f"{len(left_out) - 1} tokens for {len(left_out)}")


@pytest.mark.parametrize(("format", "whose"), [(None, UNKNOWN), ("hermes", "model")])
def test_a_template_without_a_place_for_tools_says_nothing_of_calls(format: str | None, whose: str) -> None:
    model = renderer(PLAIN, qwen3_huggingface(), format)
    wrote = encode(qwen3_huggingface(), GOOD.replace("city", "town"))
    call = ObservedCall("c0", "get_weather", '{"town": "Paris"}')
    reply = ObservedReply(calls=(call,), ending="tool_calls", token_ids=tuple(wrote), prompt_ids=())
    request = ProbeRequest(text="Hi", tools=(WEATHER,))
    exchange = VerifyExchange(request=request, body={}, streamed=False, raw="", reply=reply)
    witness = Witness(renderer=model)
    assert witness.blame(Fault("schema_mismatch", ""), exchange) == whose
    assert witness.difference(exchange) is None


def test_another_prompt_is_seen(qwen: Scripted) -> None:
    other = qwen3_config()["chat_template"].replace("# Tools", "# Functions")
    (result,) = prompts(qwen, other)
    (only,) = result.faults
    assert (only.fault.kind, only.whose) == ("prompt_differs", "template")
    assert "tokens for" in only.fault.detail
