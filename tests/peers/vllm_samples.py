"""vLLM's recorded samples: what models write, as tokens, and what is to come of it.

Its own replay suites find vLLM's engine classes by themselves, so our parsers cannot stand in for them there. Here the
samples go to the parser that vLLM's server composes, by ids and by text, streamed in several ways and whole.
Like `peer_plugin`, this runs inside vLLM's tests: `tests` is its package, and nothing of it is copied.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import Any

import pytest
from vllm.parser import ParserManager
from vllm.reasoning import ReasoningParserManager
from vllm.tool_parsers import ToolParserManager

harness: Any = import_module("tests.parser.engine.replay_harness")
replay: Any = import_module("tests.parser.engine.test_replay")
builder: Any = import_module("tests.parser.engine.trace_builder")

PREFIX = "unbraid-" if os.environ.get("UNBRAID_PEER_OURS") else ""
MANAGERS = {"tool": ToolParserManager, "reasoning": ReasoningParserManager}
ONLY_REASONING = {"nemotron_v3": "qwen3_coder", "granite_thinking_parser": "qwen3_coder"}
"""Engines that vLLM has under the name of a reasoning parser alone, and the tool parser that goes with it."""


class Spelled:
    """The tokens of a sample as a vocabulary."""

    version = None
    dummy_prefix = False

    def __init__(self, sample: Any) -> None:
        self._id = dict(sample.vocab)
        """Only the markers: of its words, the sample numbers each anew."""
        self._text = {**{token: text for text, token in self._id.items()}, **dict(sample.tokens)}
        self.size = max(self._text, default=0) + 1

    def token_id(self, text: str) -> int | None:
        return self._id.get(text)

    def token_bytes(self, token: int) -> bytes | None:
        return None if token not in self._text else self._text[token].encode()


class Tokenizer(harness.MockTokenizer):  # type: ignore[misc]
    """vLLM's mock. By ids, it holds a vocabulary, as a tokenizer of transformers does."""

    def __init__(self, sample: Any, by_ids: bool) -> None:
        super().__init__(dict(sample.vocab), sample.tokens)
        if by_ids:
            self.backend_tokenizer = Spelled(sample)


# What there is


@cache
def engines() -> dict[str, dict[str, str]]:
    """vLLM's name of the tool parser and of the reasoning parser, by the name of the engine's configuration."""
    found: dict[str, dict[str, str]] = {}
    for kind, manager in MANAGERS.items():
        table = manager.lazy_parsers
        for name, (module, attribute) in getattr(table, "theirs", table).items():
            engine = getattr(getattr(import_module(module), attribute), "_parser_engine_cls", None)
            if engine not in (None, replay.MistralParser):  # it has no samples, and cannot be made without its tokens
                found.setdefault(config(engine).name, {}).setdefault(kind, name)
    for name, tools in ONLY_REASONING.items():
        found[name].setdefault("tool", tools)
    return found


def config(engine: Any) -> Any:
    return engine(harness.MockTokenizer(vocab={}, tokens=[]), None).parser_engine_config


@dataclass(frozen=True)
class Way:
    """How a sample reaches the parser."""

    name: str
    by_ids: bool
    run: Callable[[Any, Any], Any]
    """Given the parser and the sample, what came of it."""


def streamed(size: int | None, held: int = 0) -> Callable[[Any, Any], Any]:
    def run(parser: Any, sample: Any) -> Any:
        deltas = harness.replay_streaming(
            parser,
            sample.tokens,
            chunk_size=size,
            holdback_chars=held,
            finished_on_last=True,
            tools=sample.tools,
            prompt_token_ids=sample.prompt_token_ids,
        )
        return harness.collect_output(deltas)

    return run


def late(steps: int) -> Callable[[Any, Any], Any]:
    """The text comes some steps after its ids."""

    def run(parser: Any, sample: Any) -> Any:
        given = (parser, sample.tokens, steps, sample.tools, sample.prompt_token_ids)
        return harness.collect_output(harness.replay_with_text_holdback(*given))

    return run


def whole(parser: Any, sample: Any) -> Any:
    parser.set_prompt_token_ids(sample.prompt_token_ids or [])
    request = harness._test_request(tools=sample.tools)
    return harness.parse_non_streaming(parser, sample, request)


def whole_by_ids(parser: Any, sample: Any) -> Any:
    ids = tuple(token for token, _ in sample.tokens)
    parse = parser.parse
    parser.parse = lambda *given, **options: parse(*given, **options, model_output_token_ids=ids)
    return whole(parser, sample)


WAYS = (
    *(Way(f"ids, {size or 'all'} at once", True, streamed(size)) for size in (1, 2, 5, None)),
    *(Way(f"ids, 3 at once, {held} characters late", True, streamed(3, held)) for held in (6, 24)),
    *(Way(f"ids, text {steps} steps late", True, late(steps)) for steps in (1, 3)),
    Way("ids, whole", True, whole_by_ids),
    *(Way(f"text, {size or 'all'} at once", False, streamed(size)) for size in (1, 3, None)),
    Way("text, whole", False, whole),
)


def samples() -> Iterator[Any]:
    for name in sorted(builder._BUILDERS):
        if name == "granite":
            made = [builder._build_granite(scenario) for scenario in builder._GRANITE_SCENARIOS]
        else:
            made = builder.build_samples(name)
        for sample in made:
            yield pytest.param(name, sample, id=sample.id)


def parser_for(name: str, sample: Any, by_ids: bool) -> Any:
    """As vLLM's server makes it."""
    names = engines()[name]
    tokenizer = Tokenizer(sample, by_ids)
    made = ParserManager.get_parser(
        **{f"{kind}_parser_name": f"{PREFIX}{found}" for kind, found in names.items()},
        enable_auto_tools=True,
        tokenizer=tokenizer,
    )
    return made(tokenizer, sample.tools, chat_template_kwargs=sample.chat_template_kwargs)


@cache
def markers(name: str) -> list[str]:
    """What must not show in any text."""
    parts = [getattr(MANAGERS[kind], f"get_{kind}_parser")(found) for kind, found in engines()[name].items()]
    found = config(parts[0]._parser_engine_cls)
    return sorted(text for text in found.terminal_literals | set(found.token_id_terminals.values()) if len(text) > 1)


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.name)
@pytest.mark.parametrize(("name", "sample"), samples())
def test_sample(name: str, sample: Any, way: Way) -> None:
    output = way.run(parser_for(name, sample, way.by_ids), sample)
    harness.assert_parse_output(output, sample)
    harness.assert_no_terminal_leakage(output, markers(name))
