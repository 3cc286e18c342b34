"""What rollouts cost, beside the package `renderers`: the two take turns, row by row, in one process each.

python bench/rollouts.py [PYTHON]

PYTHON is that of an environment with `renderers` 0.1.12, `tokenizers`, `httpx` and `pydantic`; without it, only unbraid
is measured. Both render, parse and extend the same conversations of Qwen3, with its own tokenizer. The tools stay the
same, as they do in rollouts; every prompt, every turn and every result is another one, so that nothing is measured
that was only looked up. Prompts are given as ids. A turn is extended after it was parsed, as in any rollout; the last
rows are rollouts, each from a prompt of its own: a turn is parsed and extended, then the next one.
"""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
RUNS = 9
"""Of each row; the best counts."""
AT_ONCE = 16
"""So many are prepared, then measured."""
TURNS = 4
"""Of a rollout."""
WORDS = "The weather in Paris is mild today, with some clouds in the afternoon. "
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "get_weather",
            "description": "The weather in a city.",
            "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
        },
    }
]
numbers = itertools.count(100_000)  # all of the same length
SAID = (
    "<think>\n{number}: {words}\n</think>\n\n{words}\n<tool_call>\n"
    '{{"name": "get_weather", "arguments": {{"city": "Paris"}}}}\n</tool_call><|im_end|>'
)


def conversation(turns: int) -> list[dict[str, Any]]:
    roles = ("user", "assistant") * turns
    said = [{"role": role, "content": f"{next(numbers)}: {WORDS * 3}"} for role in roles]
    return [*said, {"role": "user", "content": f"How is it at {next(numbers)}?"}]


def result(call: str) -> list[dict[str, Any]]:
    said = f"{next(numbers)} degrees, some clouds"
    return [{"role": "tool", "name": "get_weather", "tool_call_id": call, "content": said}]


Row = Callable[[], float]
"""Measures once: how much is done in a second of the processor's time."""


def row(prepare: Callable[[], Any], work: Callable[[Any], int]) -> Row:
    """How much `work` does. What it works with is prepared before."""

    def measure() -> float:
        done, spent = 0, 0.0
        while spent < 0.1:
            prepared = [prepare() for _ in range(AT_ONCE)]
            begin = time.process_time()
            done += sum(work(each) for each in prepared)
            spent += time.process_time() - begin
        return done / spent

    return measure


def rows(tokenizer: Any, render: Any, parse: Any, extend: Any) -> dict[str, Row]:
    """parse: returns the id of the call in a turn."""

    def turn(count: int) -> list[int]:
        text = SAID.format(number=next(numbers), words=WORDS * count)
        return list(tokenizer.encode(text, add_special_tokens=False).ids)

    def parsed(count: int) -> tuple[Sequence[int], list[int], str]:
        prompt, ids = render(conversation(count)), turn(5)
        return prompt, ids, parse(ids, prompt)

    def rollout(prompt: Sequence[int], turns: list[list[int]]) -> int:
        for ids in turns:
            prompt = extend(prompt, ids, result(parse(ids, prompt)))
        return len(turns)

    found = {"rendered, tokens/s": row(lambda: conversation(4), lambda messages: len(render(messages)))}
    prompt = render(conversation(4))
    for count in (5, 100):
        name = f"parsed, a turn of {len(turn(count))}, tokens/s"
        found[name] = row(lambda count=count: turn(count), lambda ids: (parse(ids, prompt), len(ids))[1])  # type: ignore[misc]
    for count in (4, 64):
        size = len(render(conversation(count)))
        found[f"extended first after {size} tokens, times/s"] = row(
            lambda count=count: parsed(count),  # type: ignore[misc]
            lambda each: (extend(each[0], each[1], result(each[2])), 1)[1],
        )
        found[f"{TURNS} turns after {size} tokens, turns/s"] = row(
            lambda count=count: (render(conversation(count)), [turn(5) for _ in range(TURNS)]),  # type: ignore[misc]
            lambda each: rollout(*each),
        )
    return found


def ours(path: str) -> dict[str, Row]:
    from tokenizers import Tokenizer

    import unbraid
    from tests.templates.prompt_cases import qwen3

    tokenizer = Tokenizer.from_file(path)
    made = unbraid.renderer(qwen3(), tokenizer, "qwen3")
    return rows(
        tokenizer,
        lambda messages: list(made.render(messages, TOOLS).ids),
        lambda ids, prompt: made.parse(ids, prompt, tools=TOOLS).message.tool_calls[0].id,
        lambda prompt, ids, new: list(made.extend(prompt, ids, new, tools=TOOLS).ids),  # type: ignore[union-attr]
    )


THEIRS = """
import json, sys
sys.path[:0] = [{bench!r}, {tests!r}]
import rollouts
from peer_renderers import Adapter
from renderers import base, configs
from tokenizers import Tokenizer
tokenizer = Tokenizer.from_file({path!r})
made = base.create_renderer(Adapter(tokenizer), configs.Qwen3RendererConfig())
rows = rollouts.rows(
    tokenizer,
    lambda messages: made.render_ids(messages, tools=rollouts.TOOLS, add_generation_prompt=True),
    lambda ids, prompt: made.parse_response(ids, tools=rollouts.TOOLS, prompt_ids=prompt).tool_calls[0].id or "call_0",
    lambda prompt, ids, new: made.bridge_to_next_turn(prompt, ids, new, tools=rollouts.TOOLS).token_ids,
)
for line in sys.stdin:
    print("speed", rows[json.loads(line)](), flush=True)
"""


class Theirs:
    """The rows of `renderers`, in a process of its own."""

    def __init__(self, python: str, path: str) -> None:
        code = THEIRS.format(bench=str(ROOT / "bench"), tests=str(ROOT / "tests" / "rollouts"), path=path)
        self._process = subprocess.Popen(
            [python, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={}
        )

    def __getitem__(self, name: str) -> Row:
        return lambda: self._measure(name)

    def _measure(self, name: str) -> float:
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        print(json.dumps(name), file=process.stdin, flush=True)
        return next(float(line.split()[1]) for line in process.stdout if line.startswith("speed"))

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


def main() -> None:
    from tests.support.real_tokenizers import qwen3_huggingface

    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "tokenizer.json")
        qwen3_huggingface().save(path)
        mine, other = ours(path), Theirs(sys.argv[1], path) if len(sys.argv) > 1 else None
        for name, measure in mine.items():
            runs = [(measure(), other[name]() if other else 0.0) for _ in range(RUNS)]
            speed, their_speed = map(max, zip(*runs, strict=True))
            beside = f"{their_speed:>12,.0f} renderers  {speed / their_speed:>5.2f}" if other else ""
            print(f"{name:<42}{speed:>12,.0f} unbraid {beside}", flush=True)
        if other:
            other.close()


if __name__ == "__main__":
    main()
