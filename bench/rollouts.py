"""What rollouts cost, beside the package `renderers`: the two take turns, in one run, one process each.

python bench/rollouts.py [PYTHON]

PYTHON is that of an environment with `renderers` 0.1.12, `tokenizers`, `httpx` and `pydantic`; without it, only unbraid
is measured. Both render, parse and extend the same conversations of Qwen3, with its own tokenizer. The tools stay the
same, as they do in rollouts; every message and every result is another one, so that nothing is measured that was only
looked up. The last rows show that `extend` costs by the new messages, not by the conversation's length.
"""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
TURNS = 5
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
    '<think>\n{words}\n</think>\n\n{words}\n<tool_call>\n{{"name": "get_weather", "arguments": {{"city": "Paris"}}}}\n'
    "</tool_call><|im_end|>"
)


def conversation(turns: int) -> list[dict[str, Any]]:
    roles = ("user", "assistant") * turns
    said = [{"role": role, "content": f"{next(numbers)}: {WORDS * 3}"} for role in roles]
    return [*said, {"role": "user", "content": f"How is it at {next(numbers)}?"}]


def result() -> list[dict[str, Any]]:
    said = f"{next(numbers)} degrees, some clouds"
    return [{"role": "tool", "name": "get_weather", "tool_call_id": "call_0", "content": said}]


def best(work: Callable[[], int]) -> float:
    """Tokens a second, of the best of a few runs."""
    work()
    found = 0.0
    for _ in range(TURNS):
        begin, tokens = time.process_time(), 0
        while time.process_time() - begin < 0.2:
            tokens += work()
        found = max(found, tokens / (time.process_time() - begin))
    return found


def measured(tokenizer: Any, render: Any, parse: Any, extend: Any) -> dict[str, float]:
    said, reasoned = (
        list(tokenizer.encode(SAID.format(words=WORDS * count), add_special_tokens=False).ids) for count in (5, 100)
    )
    short, long = render(conversation(4)), render(conversation(64))
    assert extend(short, said) is not None
    return {
        "rendered, tokens/s": best(lambda: len(render(conversation(4)))),
        **{
            f"parsed, a turn of {len(ids)}, tokens/s": best(lambda ids=ids: (parse(ids, short), len(ids))[1])  # type: ignore[misc]
            for ids in (said, reasoned)
        },
        f"extended after {len(short)} tokens, times/s": best(lambda: (extend(short, said), 1)[1]),
        f"extended after {len(long)} tokens, times/s": best(lambda: (extend(long, said), 1)[1]),
    }


def ours(path: str) -> dict[str, float]:
    from tokenizers import Tokenizer

    import unbraid
    from tests.templates.prompt_cases import qwen3

    tokenizer = Tokenizer.from_file(path)
    made = unbraid.renderer(qwen3(), tokenizer, "qwen3")
    return measured(
        tokenizer,
        lambda messages: made.render(messages, TOOLS).ids,
        lambda ids, prompt: made.parse(ids, prompt, tools=TOOLS),
        lambda prompt, ids: made.extend(prompt, ids, result(), tools=TOOLS),
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
print(json.dumps(rollouts.measured(
    tokenizer,
    lambda messages: made.render_ids(messages, tools=rollouts.TOOLS, add_generation_prompt=True),
    lambda ids, prompt: made.parse_response(ids, tools=rollouts.TOOLS, prompt_ids=list(prompt)),
    lambda prompt, ids: made.bridge_to_next_turn(list(prompt), ids, rollouts.result(), tools=rollouts.TOOLS),
)))
"""


def theirs(python: str, path: str) -> dict[str, float]:
    code = THEIRS.format(bench=str(ROOT / "bench"), tests=str(ROOT / "tests" / "rollouts"), path=path)
    done = subprocess.run([python, "-c", code], capture_output=True, text=True, check=True, env={})
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def main() -> None:
    from tests.support.real_tokenizers import qwen3_huggingface

    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "tokenizer.json")
        qwen3_huggingface().save(path)
        mine = ours(path)
        other = theirs(sys.argv[1], path) if len(sys.argv) > 1 else {}
        again = ours(path)
    for name, speed in mine.items():
        beside = f"{other[name]:>12,.0f} renderers" if name in other else ""
        print(f"{name:<42}{max(speed, again[name]):>12,.0f} unbraid {beside}")


if __name__ == "__main__":
    main()
