"""Feed a model's raw output in small pieces and print what a chat API would stream.

python examples/stream.py qwen3 examples/qwen3.txt
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import unbraid


def main(format: str, path: str) -> None:
    tools = json.loads(Path(__file__).with_name("tools.json").read_text(encoding="utf-8"))
    parser = unbraid.parser(format, tools=tools)
    raw = Path(path).read_text(encoding="utf-8")
    pieces = [raw[at : at + 12] for at in range(0, len(raw), 12)]  # cut anywhere: markers and words in two
    for piece in pieces:
        send(parser.feed(piece))
    send(parser.finish())


def send(events: list[unbraid.Event]) -> None:
    for event in events:
        delta = event.to_openai()
        if delta is not None:  # the end of a call and diagnostics have no place in a delta
            print(json.dumps(delta, ensure_ascii=False))


if __name__ == "__main__":
    main(*sys.argv[1:])
