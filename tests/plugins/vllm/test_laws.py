"""The laws of the parser, through vLLM's interfaces."""

from __future__ import annotations

from typing import Any

from hypothesis import assume, given
from hypothesis import strategies as st

import unbraid
from unbraid import Format
from unbraid.plugins.vllm.response_reader import program_of, special_tokens, vocabulary_of

from ...support import strategies
from ...support.examples import examples
from ..one_field import parse
from .cases import (
    encode,
    every_format,
    every_format_with_reasoning,
    every_format_with_tools,
    grouped,
    tokenizer_for,
)
from .server import NEUTRAL, TOOLS, ReasoningParserManager, Said, ToolParserManager, chat, server_for, speaks


def markers(format: Format, tokenizer: Any) -> set[int]:
    """The tokens that mean something in the format."""
    return set(program_of(format, vocabulary_of(tokenizer)).token_placeholders)


@every_format
@examples(2.5)
@given(data=st.data())
def test_streamed_and_whole_are_what_unbraid_says(format: Format, data: st.DataObject) -> None:
    server = server_for(format)
    message = data.draw(strategies.messages(format).filter(lambda message: not message.speech))
    ids = encode(server.tokenizer, unbraid.render(format, message))
    # vLLM leaves special tokens out. Those that end turns of other formats may come up in a text.
    assume(special_tokens(server.tokenizer).intersection(ids) <= markers(format, server.tokenizer))
    options: dict[str, Any] = {"tools": TOOLS if format.tools else [], "tokenizer": server.tokenizer, "prompt": ""}
    expected = parse(format, ids, **options)
    for sizes in ([1], data.draw(st.lists(st.integers(1, 6), min_size=1, max_size=6))):
        assert server.streamed([*grouped(ids, sizes), []]) == Said.of(expected)
    assert server.whole(ids) == Said.whole(parse(format, ids, whole=True, **options))


@every_format
@examples(2.5)
@given(data=st.data())
def test_whatever_comes(format: Format, data: st.DataObject) -> None:
    """Text, since vLLM cuts stop texts off; hostile, since models are."""
    server = server_for(format)
    text = data.draw(strategies.hostile(format).filter(lambda text: not speaks(text, format)))
    request = server.adjusted(chat(stop=["\n\n\n"]))
    parser, said = server.parser(server.tokenizer, request.tools), Said()
    pieces, start = data.draw(st.composite(strategies.cuts)(text)), encode(server.tokenizer, NEUTRAL)
    for at, piece in enumerate(pieces):
        said.add(parser.parse_delta(piece, [1], request, start, finished=at == len(pieces) - 1))
    assert said == Said.of(parse(format, text, tools=TOOLS if format.tools else [], prompt=""))


@every_format_with_tools
@examples(2.5)
@given(data=st.data())
def test_a_tool_parser_on_its_own(format: Format, data: st.DataObject) -> None:
    """As another server would use it, or vLLM beside a reasoning parser of its own: on text, where the reasoning is
    over. Only a header may have begun in the prompt."""
    tokenizer, request = tokenizer_for(format), chat()
    text = data.draw(strategies.hostile(format).filter(lambda text: not speaks(text, format)))
    options: dict[str, Any] = {"tools": TOOLS, "separate_reasoning": False, "prompt": None if format.headers else ""}
    expected = parse(format, text, **options)
    parser, said = ToolParserManager.get_tool_parser(f"unbraid-{format.name}")(tokenizer, request.tools), Said()
    before = ""
    for piece in data.draw(st.composite(strategies.cuts)(text)):
        said.add(parser.extract_tool_calls_streaming(before, before + piece, piece, [], [], [], request))
        before += piece
    assert parser.get_remaining_unstreamed_args() == ""
    said.add(parser.finish_streaming())
    assert parser.finish_streaming() is None
    assert said == Said.of(expected)
    assert parser.streamed_args_for_tool == [arguments for _, arguments in said.calls]
    assert [call["name"] for call in parser.prev_tool_call_arr] == [name for name, _ in said.calls]
    assert parser.get_remaining_unstreamed_args() == ""
    found = parser.extract_tool_calls(text, request)
    settled = Said.whole(parse(format, text, whole=True, **options))
    assert (found.content or "") == settled.content
    assert [(call.function.name, call.function.arguments) for call in found.tool_calls] == settled.calls
    assert found.tools_called is bool(settled.calls)


@every_format_with_reasoning
@examples(2.5)
@given(data=st.data())
def test_a_reasoning_parser_on_its_own(format: Format, data: st.DataObject) -> None:
    assert format.reasoning is not None
    made = ReasoningParserManager.get_reasoning_parser(f"unbraid-{format.name}")
    thought, answer = data.draw(strategies.texts(format)), data.draw(strategies.texts(format))
    text = f"{format.reasoning.open}{thought}{format.reasoning.close}{answer}"
    parsed = parse(format, text)
    parser, said, before = made(tokenizer_for(format), chat_template_kwargs={}), Said(), ""
    for piece in data.draw(st.composite(strategies.cuts)(text)):
        said.add(parser.extract_reasoning_streaming(before, before + piece, piece, [], [], []))
        before += piece
    said.add(parser.finish_streaming())
    assert (said.reasoning, said.content) == (parsed.reasoning, parsed.content)
    assert parser.extract_reasoning(text, chat()) == (parsed.reasoning or None, parsed.content or None)
