"""What a chunk of a stream costs that is parsed by whichever process it comes to, and how large its state is.

python bench/derender.py [URL]

A chunk is one token: a body of JSON in, a body of JSON out, with everything in between but HTTP. "at hand" is a chunk
that comes to the process that had the one before; "elsewhere" is one that comes to the other of two, which has to read
the state. URL is that of a `vllm launch render` with Qwen3's tokenizer (`--reasoning-parser qwen3 --tool-call-parser
hermes --enable-auto-tool-choice`): it is asked the same over HTTP.
"""

from __future__ import annotations

import gc
import json
import sys
import time
from collections.abc import Callable
from itertools import cycle
from pathlib import Path
from statistics import median
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
LENGTHS = (1_000, 8_000, 32_000, 128_000)
CHUNKS = 300
WORDS = "The quick brown fox jumps over the lazy dog, and nothing else happens. "
STREAMS = {
    "reasoning": "<think>\n{}",
    "content": "<think>\nHm.\n</think>\n\n{}",
    "a string in a call": '<think>\nHm.\n</think>\n\n<tool_call>\n{{"name": "get_weather", "arguments": {{"city": "{}',
}
TOOL = {
    "name": "get_weather",
    "description": "The weather in a city.",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}
REQUEST = json.dumps({"tools": [{"type": "function", "function": TOOL}]}).encode()
Answer = Callable[[bytes], bytes]


def body(ids: list[int], state: bytes) -> bytes:
    """A chunk. The prompt goes with the first."""
    prompt = b',"prompt_token_ids":[198]' if state == b"null" else b""
    return (
        b'{"stream":true,"generate_chunk":{"request_id":"r","choices":[{"index":0,"token_ids":%b}]},'
        b'"chat_request":%b,"stream_state":%b%b}' % (json.dumps(ids).encode(), REQUEST, state, prompt)
    )


def state_in(reply: bytes) -> bytes:
    return reply[reply.index(b'"stream_state":') + len(b'"stream_state":') : -1]


def measured(answer: Answer, ids: list[int]) -> dict[int, tuple[float, int]]:
    """For each length: the median of what a chunk takes there, in µs, and the bytes of the state."""
    found: dict[int, tuple[float, int]] = {}
    state, at = b"null", 0
    for length in LENGTHS:
        while at < length - CHUNKS:
            part = ids[at : min(at + 64, length - CHUNKS)]
            state = state_in(answer(body(part, state)))
            at += len(part)
        times = []
        for token in ids[at:length]:
            asked = body([token], state)
            begin = time.process_time_ns()
            reply = answer(asked)
            times.append(time.process_time_ns() - begin)
            state = state_in(reply)
        at = length
        found[length] = median(times) / 1000, len(state)
    return found


def ours() -> tuple[Any, Answer, Answer]:
    from tests.support.scripted_server import Scripted
    from unbraid.server.tokens.derender import chunk_reply
    from unbraid.server.tokens.streams import Streams

    server = Scripted()
    service = server.service
    near, far = service.own(Streams), cycle([Streams(service), Streams(service)])

    def at_hand(asked: bytes) -> bytes:
        return chunk_reply(service, near, asked, "")

    def elsewhere(asked: bytes) -> bytes:
        return chunk_reply(service, next(far), asked, "")

    return server, at_hand, elsewhere


def theirs(url: str, ids: list[int], lengths: tuple[int, ...] = (250, 1_000, 4_000)) -> None:
    """vLLM's, with a history of that length, over HTTP."""
    import httpx

    prompt = json.dumps([198]).encode()
    for length in lengths:
        history = {"output_token_ids": ids[:length], "output_chunk_lens": [1] * length, "role_sent": True}
        state = json.dumps(history).encode()
        request = {**json.loads(REQUEST), "messages": [{"role": "user", "content": "Hello?"}]}
        asked = body([ids[length]], state).replace(REQUEST, json.dumps(request).encode())
        asked = asked[:-1] + b',"prompt_token_ids":' + prompt + b"}"
        times = []
        for _ in range(5):
            begin = time.perf_counter()
            reply = httpx.post(
                f"{url}/v1/chat/completions/derender",
                content=asked,
                headers={"content-type": "application/json"},
                timeout=600,
            )
            times.append(time.perf_counter() - begin)
            reply.raise_for_status()
        print(f"vLLM, {length:,} tokens: {min(times) * 1e6:,.0f} µs with HTTP, state {len(state):,} bytes")


def main() -> None:
    from tests.support.real_tokenizers import encode

    server, at_hand, elsewhere = ours()
    gc.collect()
    gc.freeze()
    print("| stream | tokens so far | at hand, µs | elsewhere, µs | state, bytes |")
    print("| --- | ---: | ---: | ---: | ---: |")
    ids: list[int] = []
    for name, pattern in STREAMS.items():
        ids = encode(server.tokenizer, pattern.format(WORDS * 10_000))[: max(LENGTHS)]
        near, far = measured(at_hand, ids), measured(elsewhere, ids)
        for length in LENGTHS:
            print(f"| {name} | {length:,} | {near[length][0]:.0f} | {far[length][0]:.0f} | {near[length][1]} |")
    if len(sys.argv) > 1:
        theirs(sys.argv[1], ids)


if __name__ == "__main__":
    main()
