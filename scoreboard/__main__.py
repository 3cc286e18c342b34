"""The command: `python -m scoreboard [constraints | install | report [NAME] | show CELL | write]`; without a word it
runs the board of streams and writes it."""

from __future__ import annotations

import argparse
import json
import sys

from . import grammars
from .board import DOCUMENT, FILE, collect, document
from .corpus import SEED
from .judge import Reply, judge
from .peers import PEERS, Missing, Running, install_all
from .reports import report
from .run import FOLDER, Extent, run, stream_named
from .streams import CUTS

COMMANDS = ("constraints", "install", "report", "show", "write")


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m scoreboard", description="The same streams for all.")
    parser.add_argument("command", nargs="?", choices=["run", *COMMANDS], default="run")
    parser.add_argument(
        "cell", nargs="?", help="PEER:FORMAT:KIND:NUMBER[:CUT], ROW:CORPUS[:KIND[:NUMBER]], or a report's name"
    )
    parser.add_argument("--full", action="store_true", help="20 messages of a kind")
    parser.add_argument("--count", type=int, help="messages of each kind (quick: 1, full: 20)")
    parser.add_argument("--peers", default=",".join(PEERS), help="names, with commas")
    parser.add_argument("--formats", default="", help="names, with commas; all without it")
    parser.add_argument("--seed", type=int, default=SEED)
    options = parser.parse_args(arguments)
    peers = tuple(options.peers.split(","))
    if options.command == "show":
        return show(options.cell, options.seed)
    if options.command == "report":
        return report(options.cell)
    before = json.loads(FILE.read_text(encoding="utf-8")) if FILE.exists() else {}
    if options.command == "write":
        return write(before)
    if options.command == "constraints":
        return write(before | {"constraints": grammars.run()})
    if options.command == "install":
        failures = dict(install_all(peers))
        for name, why in failures.items():
            print(f"{PEERS[name].title} is not installed: {why}", file=sys.stderr)
        return 0
    formats = tuple(name for name in options.formats.split(",") if name)
    count = options.count or (20 if options.full else 1)
    board = collect(run(Extent(count, peers, formats, options.seed)), count)
    if formats or peers != tuple(PEERS):
        print(document(board))  # a part of the board is shown, and not published
        return 0
    return write(board | {key: before[key] for key in ("constraints",) if key in before})


def write(board: dict[str, object]) -> int:
    FILE.write_text(json.dumps(board, ensure_ascii=False, separators=(",", ":")) + "\n", encoding="utf-8")
    DOCUMENT.write_text(document(board), encoding="utf-8")
    print(f"{FILE.stat().st_size:,} bytes in {FILE}; {DOCUMENT} is written from it")
    return 0


def show(cell: str | None, seed: int) -> int:
    """Print one stream, what was meant, and what a peer makes of it now; or the cases of a constraint."""
    if cell and len(parts := cell.split(":")) > 1 and parts[0] in grammars.ROWS and parts[1] in grammars.CORPORA:
        return grammars.show(cell)
    if not cell or cell.count(":") < 3:
        print("name a cell: PEER:FORMAT:KIND:NUMBER, or with a cut behind it", file=sys.stderr)
        return 2
    name, rest = cell.split(":", 1)
    parts = rest.split(":")
    try:
        stream = stream_named(":".join(parts[:3]), seed)
        cuts = tuple(parts[3:]) or CUTS
        FOLDER.mkdir(parents=True, exist_ok=True)
        with Running(PEERS[name]) as running:
            replies = running.replies(stream.job(FOLDER / "tokenizers", cuts, seed))
    except (Missing, KeyError) as error:
        print(f"{cell}: {error}", file=sys.stderr)
        return 2
    turn = stream.meant.turn
    print(f"written by {stream.meant.source}, after the prompt {stream.meant.prompt[-60:]!r}\n\n{stream.text}\n")
    meant = {"content": turn.content + stream.meant.after, "reasoning": turn.reasoning, "calls": turn.calls}
    print(f"meant{', and cut off' if stream.cut_off else ''}: {json.dumps(meant, ensure_ascii=False, indent=1)}")
    for cut, fields in replies.items():
        verdict = judge(stream, Reply.of(fields))
        print(f"\n{cut}: {', '.join(verdict.faults) or 'right'}\n{json.dumps(fields, ensure_ascii=False, indent=1)}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
