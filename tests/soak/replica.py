"""An engine that writes the truth, as a process: `python -m tests.soak.replica PORT PACE`.

It speaks vLLM's completions. What it writes follows from the prompt, and a prompt that ends with the beginning of an
answer is gone on with. Each message has a few tokens, and comes `PACE` seconds after the one before.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from typing import Any

from ..support.byte_vocabulary import END
from ..support.fake_servers import FakeVLLM, left, run
from .truth import asked_in, truth

_TOKENS = 7
"""In one message. Characters are cut by it, too."""


class TruthServer(FakeVLLM):
    """Writes the truth."""

    def events(self, body: Any) -> Iterator[Any]:
        self.asked.clear()
        prompt = bytes(token for token in body["prompt"] if token < 256)
        text = truth(asked_in(prompt)).text.encode()
        # What stands before the answer is the end of the question, never the beginning of the answer.
        done = run(left([*text, END], body["prompt"]), (), body.get("stop_token_ids") or (), body.get("max_tokens"))
        for at in range(0, len(done.ids), _TOKENS):
            ids = done.ids[at : at + _TOKENS]
            ended = at + _TOKENS >= len(done.ids)
            yield {"choices": [{"token_ids": ids, "text": "", "finish_reason": done.reason if ended else None}]}
        yield {"choices": [], "usage": {"prompt_tokens": len(prompt), "completion_tokens": len(done.ids)}}


async def _serve(port: int, pace: float) -> None:
    async with TruthServer(pace=pace, port=port):
        print("ready", flush=True)
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(_serve(int(sys.argv[1]), float(sys.argv[2])))
