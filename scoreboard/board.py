"""All verdicts as one small file that travels in the package, and docs/scoreboard.md, which is written from it.

A format that a peer cannot read even where nothing is hard may say more of how we run it than of the peer: it is named
apart (`unjudged`), with the cause where we know it, and counts for nothing. Where the cause is the peer's own
(`Peer.faults`) it counts. `every` has what is right if everything counts, `read` if nothing of this does.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from .judge import FAULTS
from .peers import PEERS, ROOT, Peer

FILE = ROOT / "unbraid" / "server" / "playground" / "page" / "scoreboard.json"
DOCUMENT = ROOT / "docs" / "scoreboard.md"
PLAIN = ("answer", "call", "reasoning-and-answer")
OTHERS = (37, 4711, 8291, 70121, 70122)
"""Seeds whose results were looked at while something was mended."""
EXAMPLES = 3
"""Cells that are named for each fault of a peer."""

Lines = list[dict[str, Any]]


def collect(results: Mapping[str, Any], count: int) -> dict[str, Any]:
    """The board."""
    lines = [line for line in results["lines"] if "verdicts" in line]
    timed = [line for line in results["lines"] if "us" in line]
    peers = [
        _peer(name, about, [one for one in lines if one["peer"] == name], [one for one in timed if one["peer"] == name])
        for name, about in results["peers"].items()
    ]
    sources = {line["format"]: line["source"] == "ours" for line in lines}
    return {
        "seed": results["seed"],
        "count": count,
        "machine": results["machine"],
        "faults": FAULTS,
        "ours": sorted(name for name, ours in sources.items() if ours),
        "peers": peers,
        "better": _better(lines, peers),
    }


def _peer(name: str, about: Mapping[str, Any], lines: Lines, timed: Lines) -> dict[str, Any]:
    if "missing" in about:
        return {"name": name, "title": about["title"], "note": about["note"], "missing": about["missing"]}
    by_format = _grouped(lines, "format")
    peer = PEERS.get(name, Peer(name, "", ""))
    unread = {format: why for format, some in by_format.items() if (why := _unjudged(some))}
    unjudged = {format: peer.causes.get(format, why) for format, why in unread.items() if format not in peer.faults}
    judged = [line for line in lines if line["format"] not in unjudged]
    return {
        "name": name,
        "title": about["title"],
        "note": about["note"],
        "streams": about["streams"],
        "versions": about["versions"],
        "all": _counts(judged),
        "vendors": _counts([line for line in judged if line["source"] != "ours"])["right"],
        "formats": {format: _counts(some)["right"] for format, some in by_format.items() if format not in unjudged},
        "kinds": {kind: _counts(some)["right"] for kind, some in _grouped(judged, "kind").items()},
        "unjudged": unjudged,
        "unread": {format: peer.faults[format] for format in unread if format in peer.faults},
        "every": _counts(lines)["right"],
        "read": _counts([line for line in lines if line["format"] not in unread])["right"],
        "unknown": dict(
            Counter(one["unknown"] for line in judged for one in line["verdicts"].values() if one["unknown"])
        ),
        "flow": _flow(judged),
        "speed": _speed(timed),
        "examples": _examples(judged),
    }


def _grouped(lines: Iterable[dict[str, Any]], key: str) -> dict[str, Lines]:
    groups: defaultdict[str, Lines] = defaultdict(list)
    for line in lines:
        groups[line[key]].append(line)
    return dict(sorted(groups.items()))


def _unjudged(lines: Lines) -> str:
    """Why a format is not judged, or nothing: of some plain kind, less than half is right, and nothing of what came
    whole. Where the text is ours and not a vendor's, less than half is enough."""
    for kind in PLAIN:
        some = [line for line in lines if line["kind"] == kind]
        plain = [one for line in some for one in line["verdicts"].values()]
        right = sum(not one["faults"] for one in plain)
        whole = any(line["source"] != "ours" and not line["verdicts"]["whole"]["faults"] for line in some)
        if 2 * right < len(plain) and not whole:
            faults = sorted({fault for one in plain for fault in one["faults"]})
            return f"{right} of {len(plain)} of the kind `{kind}` are right ({', '.join(faults)})"
    return ""


def _counts(lines: Lines) -> dict[str, Any]:
    verdicts = [one for line in lines for one in line["verdicts"].values()]
    faults = Counter(fault for one in verdicts for fault in one["faults"])
    streams = [cut for line in lines if line["kind"] != "cut-off" for cut in line["verdicts"] if cut != "whole"]
    differ = sum(len(line["differs"]) for line in lines if line["kind"] != "cut-off")
    return {
        "right": [sum(not one["faults"] for one in verdicts), len(verdicts)],
        "exact": sum(one["exact"] and not one["faults"] for one in verdicts),
        "differs": [differ, len(streams)],
        **{fault: faults[fault] for fault in FAULTS if faults[fault]},
    }


def _flow(lines: Lines) -> dict[str, list[int]]:
    """Deltas that an argument of 4 kB came in, of those that were fed."""
    huge = [line for line in lines if line["kind"] == "huge-argument" and "tokens" in line["verdicts"]]
    return {line["format"]: [line["argument_deltas"], line["tokens"]] for line in huge}


def _speed(lines: Lines) -> dict[str, dict[str, Any]]:
    return {
        format: {line["kind"].removeprefix("speed-"): [line["us"], line["deltas"], line["tokens"]] for line in some}
        for format, some in _grouped(lines, "format").items()
    }


def _examples(lines: Lines) -> dict[str, list[str]]:
    cells: defaultdict[str, list[str]] = defaultdict(list)
    for line in sorted(lines, key=lambda line: (line["source"] == "ours", line["cell"])):
        for cut, verdict in line["verdicts"].items():
            for fault in verdict["faults"]:
                formats = [cell.split(":")[1] for cell in cells[fault]]
                if len(formats) < EXAMPLES and line["format"] not in formats:
                    cells[fault].append(f"{line['cell']}:{cut}")
    return dict(cells)


def _better(lines: Lines, peers: list[dict[str, Any]]) -> list[list[str]]:
    """Where unbraid is wrong: the cell, and the peers that are right."""
    ours = [line for line in lines if line["peer"] == "unbraid"]
    others: defaultdict[str, Lines] = defaultdict(list)
    for line in lines:
        others[line["cell"].split(":", 1)[1]].append(line)
    cells = []
    for line in ours:
        for cut, verdict in line["verdicts"].items():
            if verdict["faults"]:
                same = others[line["cell"].split(":", 1)[1]]
                right = [one["peer"] for one in same if not one["verdicts"].get(cut, {"faults": "none"})["faults"]]
                cells.append([f"{line['cell']}:{cut}", *right])
    return cells


# The document


def wilson(right: int, count: int) -> tuple[float, float]:
    """The 95% interval of a share."""
    if not count:
        return 0.0, 1.0
    z, share = 1.96, right / count
    middle = (share + z * z / (2 * count)) / (1 + z * z / count)
    half = z * math.sqrt(share * (1 - share) / count + z * z / (4 * count * count)) / (1 + z * z / count)
    return (max(0.0, middle - half) if right else 0.0), (min(1.0, middle + half) if right < count else 1.0)


def _share(right: int, count: int) -> str:
    low, high = wilson(right, count)
    return f"{_percent(right / count if count else 0)} ({_percent(low)}–{_percent(high)})"


def _percent(share: float) -> str:
    return "100%" if share == 1 else f"{min(99.9, 100 * share):.1f}%"


def document(board: Mapping[str, Any]) -> str:
    peers = [peer for peer in board["peers"] if "missing" not in peer]
    parts = [_head(board), _ours_wrong(board), _totals(peers), _missing(board["peers"]), _formats(board, peers)]
    parts += [_kinds(peers), _taste(peers), _flows(peers), _speeds(peers), _cells(peers), _not_judged(peers)]
    parts += [_constraints(board["constraints"])] if "constraints" in board else []
    return "\n\n".join(part for part in parts if part) + "\n"


def _seeds(seeds: Iterable[int]) -> str:
    return ", ".join(map(str, seeds))


def _head(board: Mapping[str, Any]) -> str:
    return f"""# Scoreboard

The same streams through everybody's parser, judged by the message that was written. Messages are drawn by a seed
({board["seed"]}), {board["count"]} of each kind for each format, and written by the vendor's own chat template; for
formats marked \\* no template can be had here, and unbraid's renderer writes them, which is kind to unbraid's parser: a
column has the share without them. Each goes in whole, token by token,
two to six tokens at a time, and in pieces at random. Peers run at their defaults, as their servers call them, in
environments of their own; each is judged on the formats that it has a parser for, and on reasoning where it has a
parser for that, so rows differ in what they were asked. Qwen's vocabulary with the format's markers stands in for
vocabularies that no package has. Run on {board["machine"]}.

`make scoreboard` installs the peers and runs the board (`FULL=1`: twenty times as many messages; it can be stopped and
goes on where it was). `python -m scoreboard show CELL` prints a stream, what was meant and what came.

**How to read it.** Compare by format: rows differ in the formats that count for them, and in what they were built for.
Engines and gateways stream to clients; harmony, mistral-common and transformers are libraries; renderers and
tinker-cookbook read finished samples in training, so their streams are whole outputs only and their stream columns say
so. What a peer's server does around its parser (a grammar that keeps a model from writing what the parser cannot read,
say) is not part of this. Half of the corpus is hostile on purpose, and rare in practice: the kinds are listed below.
Intervals are Wilson's, 95%, with each cut as a stream of its own; the cuts of one message are alike, so the true ones
are wider. Parsers' names are those of the peers' registries; where a peer cannot read even plain messages of a format,
the cause stands at the end of this part, and with it whether the format counts. We wrote the corpus, the judge and one
of the parsers: if your peer is run in another way than its server runs it, that is a fault of ours; the adapters are
short (`scoreboard/adapters`).

**What was settled by looking.** unbraid, the judge, the corpus and the adapters were mended on other seeds
({_seeds(OTHERS)}); the seed of this board had not been run when these were done, and they were not changed after it.
Changed because of earlier boards: vLLM gets the token that ends a turn as a delta of its own where tokens come singly,
and K2 Horizon's `tool_call_format`; gpt-oss's calls are spelled as OpenAI's library does it, with the recipient behind
the channel; OLMo 3 and Hunyuan A13B spell their thinking tags in ordinary tokens; Granite 3 and OLMo 3 reason or call;
smg is told what the prompt has opened; answers that a template refuses are drawn again; and the rule for what does not
count.

Written by `python -m scoreboard`; do not edit."""


def _table(head: list[str], rows: Iterable[list[str]], left: int = 1) -> str:
    rule = ["---"] * left + ["---:"] * (len(head) - left)
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (head, rule, *rows))


NOT_STREAMED = "does not stream"


def _totals(peers: list[dict[str, Any]]) -> str:
    columns = ["lost", "invented", "leaked", "misplaced", "call", "arguments", "cut-call", "raises"]
    head = ["peer", "version", "formats", "streams", "right", "right of vendors' own texts", "wrong"]
    head += ["right to the space", "stream ≠ whole", *columns]
    rows = []
    for peer in peers:
        counts, version = peer["all"], ", ".join(f"{k} {v}" for k, v in peer["versions"].items() if k != "python")
        (right, count), (differ, streams) = counts["right"], counts["differs"]
        row = [
            peer["title"],
            version,
            str(len(peer["formats"])),
            f"{count:,}",
            _share(right, count),
            _share(*peer["vendors"]),
            str(count - right),
        ]
        row.append(_percent(counts["exact"] / max(1, count)))
        row.append(_share(differ, streams) if peer["streams"] else NOT_STREAMED)
        rows.append(row + [str(counts.get(name, 0)) for name in columns])
    meanings = "\n".join(f"- **{name}**: {meaning}" for name, meaning in FAULTS.items())
    notes = "\n".join(f"- {peer['title']}: {peer['note']}" for peer in peers)
    table = _table(head, rows, 2)
    return f"## All formats\n\n{table}\n\nHow each is run:\n\n{notes}\n\nWhat the columns count:\n\n{meanings}"


def _missing(peers: list[dict[str, Any]]) -> str:
    rows = [[peer["title"], peer["missing"]] for peer in peers if "missing" in peer]
    return f"Not run:\n\n{_table(['peer', 'why'], rows, 2)}" if rows else ""


def _ours_wrong(board: Mapping[str, Any]) -> str:
    rows = [[f"`{cell}`", ", ".join(right) or "nobody"] for cell, *right in board["better"]]
    body = _table(["cell", "who is right"], rows, 2) if rows else "None of these streams."
    return f"## Where unbraid is wrong\n\n{body}"


def _formats(board: Mapping[str, Any], peers: list[dict[str, Any]]) -> str:
    names = sorted({name for peer in peers for name in peer["formats"]})
    rows = []
    for name in names:
        counts = [peer["formats"].get(name) for peer in peers]
        cells = ["–" if one is None else "{} / {}".format(*one) for one in counts]
        rows.append([name + (" \\*" if name in board["ours"] else ""), *cells])
    return f"## By format\n\nStreams that are right.\n\n{_table(['format', *(peer['title'] for peer in peers)], rows)}"


def _kinds(peers: list[dict[str, Any]]) -> str:
    names = sorted({name for peer in peers for name in peer["kinds"]})
    rows = [
        [name, *("–" if name not in peer["kinds"] else _share(*peer["kinds"][name]) for peer in peers)]
        for name in names
    ]
    return f"## By kind of message\n\n{_table(['kind', *(peer['title'] for peer in peers)], rows)}"


def _taste(peers: list[dict[str, Any]]) -> str:
    rows = [
        [peer["title"], *(str(peer["unknown"].get(one, 0)) for one in ("call", "text", "nothing"))] for peer in peers
    ]
    return (
        "## Taste\n\nWhitespace at the ends of an answer is kept by some and stripped by others: *right* is up to it, "
        "*right to the space* is not. A call of a tool that was not offered is a call to some, text to others, and some"
        f" show nothing of it; none counts as wrong.\n\n{_table(['peer', 'a call', 'text', 'not shown'], rows)}"
    )


def _flows(peers: list[dict[str, Any]]) -> str:
    peers = [peer for peer in peers if peer["streams"]]
    names = sorted({name for peer in peers for name in peer["flow"]})
    rows = []
    for name in names:
        cells = ["–" if name not in peer["flow"] else "{} of {}".format(*peer["flow"][name]) for peer in peers]
        rows.append([name, *cells])
    head = _table(["format", *(peer["title"] for peer in peers)], rows)
    return f"## How a long argument arrives\n\nDeltas that 4 kB of one argument came in, of the tokens fed.\n\n{head}"


def _speeds(peers: list[dict[str, Any]]) -> str:
    rows = []
    for name in sorted({name for peer in peers for name in peer["speed"]}):
        for peer in (one for one in peers if name in one["speed"]):
            sizes = peer["speed"][name]
            cells = [
                _microseconds(*sizes[size]) if size in sizes else "–" for size in ("40", "1000", "16000", "128000")
            ]
            rows.append([name, peer["title"], *cells])
    table = _table(["format", "peer", "40 B", "1 kB", "16 kB", "128 kB"], rows, 2)
    return (
        "## Microseconds a delta\n\nOne call with an argument of this size, one token a delta, the parser alone; peers"
        " that do not stream, or are reached over HTTP, are not timed. A peer"
        f" that is not done after two seconds is stopped: the mean up to there, and how far it came.\n\n{table}"
    )


def _microseconds(us: float | None, deltas: int, tokens: int) -> str:
    if us is None:
        return "not done"
    return f"{us:,.1f}" if deltas >= tokens else f"{us:,.1f} ({deltas:,} of {tokens:,})"


def _cells(peers: list[dict[str, Any]]) -> str:
    rows = [
        [peer["title"], fault, ", ".join(f"`{cell}`" for cell in cells)]
        for peer in peers
        for fault, cells in peer["examples"].items()
    ]
    return f"## Cells to look at\n\n{_table(['peer', 'fault', 'cells'], rows, 3)}" if rows else ""


def _not_judged(peers: list[dict[str, Any]]) -> str:
    rows = [
        [peer["title"], name, counts, why]
        for peer in peers
        for key, counts in (("unread", "counts"), ("unjudged", "does not count"))
        for name, why in peer[key].items()
    ]
    if not rows:
        return ""
    shares = [
        [peer["title"], *(_share(*counts) for counts in (peer["all"]["right"], peer["every"], peer["read"]))]
        for peer in peers
        if peer["unread"] or peer["unjudged"]
    ]
    return f"""## Formats that a peer cannot read

Formats that a peer has a parser for, and that it cannot read here even where nothing is hard: of plain answers, calls
or reasoning, less than half is right, and nothing of what came whole (where unbraid's renderer wrote the text, less
than half is enough). Where the cause is the peer's own, the format counts. Where it is the vocabulary that stands in,
a setting, or not known to us, nothing of it counts, in any table.

{_table(["peer", "format", "", "why"], rows, 4)}

What that rule does to the share that is right:

{_table(["peer", "as published", "if all of these counted", "if none did"], shares)}"""


# Constraints

_OUTCOMES = ("right", "refused", "valid-silent", "valid-said", "invalid-silent", "invalid-said")


def _constraints(board: Mapping[str, Any]) -> str:
    rows = [row for row in board["rows"] if "missing" not in row]
    notes = "\n".join(f"- {row['title']}: {row['note']}." for row in rows if row["note"])
    times = [
        [row["title"], *(f"{one:,.1f}" for one in row["first_ms"]), *(f"{one:,.0f}" for one in row["step_us"])]
        for row in rows
    ]
    return f"""## Constraints

The same schemas through our dialects and through each library's own converter, in the same library. A case is a schema
and a value; it is right if the value can be written just where the schema takes it, its properties in any order, with
spaces after commas and colons or without. What is not right was said (the schema is refused with a reason, there is a
warning, or a list of what is not enforced) or silent, whatever a manual says.
`python -m scoreboard constraints` runs it, and `python -m scoreboard show ROW:CORPUS[:KIND[:NUMBER]]` prints the cases
behind a figure, such as `show xgrammar:suite:anyOf` or `show llama.cpp:tools`.

{notes}

### JSON Schema's test suite, draft 2020-12

The one in jsonschema {board["suite"]}, without `format` and `vocabulary`.

{_outcome_table(rows, "suite")}

### Tool definitions

Our examples, and models of MCP's and OpenAI's types as parameters; values are drawn (seed {board["seed"]}), and the
same again with one thing changed. Whether an object takes properties that nobody named, where its schema does not say,
is a matter of taste and not asked here; the test suite asks it. How models and values are drawn was settled on other
seeds ({_seeds(OTHERS[2:])}), and our EBNF was mended then, whose steps inside a string had taken 42 ms. Bounds of
numbers with a fraction are seldom drawn: xgrammar's own and both rows of llguidance hold to them, our other rows say
that they do not, and llama.cpp's own does not.

{_outcome_table(rows, "tools")}

### Time

Processor time on one thread, for SmolLM2's 49,152 tokens. *First mask* is everything from the schema on, our own work
included: the middle and the worst of our seven examples. A step is a mask and a token.

{_table(["row", "first mask, ms", "worst", "step, µs", "worst"], times)}

### Silent cases

The kinds with most of them in each row; of ours first, if there are any.

{_silent(rows)}

{_missing(board["rows"])}""".rstrip()


def _outcome_table(rows: list[dict[str, Any]], corpus: str) -> str:
    head = ["row", "library", "cases", "right", "schema refused", "valid refused: silent", "said"]
    cells = []
    for row in rows:
        numbers = [sum(row[corpus].values()), *(row[corpus].get(name, 0) for name in _OUTCOMES)]
        cells.append([row["title"], row["library"], *(f"{number:,}" for number in numbers)])
    return _table([*head, "invalid admitted: silent", "said"], cells, 2)


def _silent(rows: list[dict[str, Any]]) -> str:
    cells = [
        [
            row["title"],
            f"`{row['name']}:{kind}`",
            *(str(counts.get(f"{one}-silent", 0)) for one in ("valid", "invalid")),
        ]
        for row in sorted(rows, key=lambda row: not row["name"].startswith("unbraid"))
        for kind, counts in row["silent"].items()
    ]
    return _table(["row", "cells", "valid refused", "invalid admitted"], cells, 2) if cells else "None."
