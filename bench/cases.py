"""The benchmark's inputs: what a model writes, cut into the deltas a server would hand to a parser.

Everything here is deterministic. The one-token deltas are cut with a real tokenizer where one is at hand and every
four characters where none is; `Case.delta` says which.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

# Each of these is one token of its model, so no server ever cuts one in two, whatever the size of its deltas.
MARKERS = ("<think>", "</think>", "<tool_call>", "</tool_call>", "[TOOL_CALLS]", "[ARGS]")
_MARKER = re.compile("|".join(map(re.escape, MARKERS)))

# mistral is the array form of the tokenizers before v11. From v11 on the tokenizer writes name[ARGS]{…}
# (mistral_args), which is name{…} (mistral_v11) where a server leaves the special tokens out of the text.
CALL_FORMATS = ("hermes", "qwen25", "mistral", "mistral_v11", "mistral_args")
ARGUMENT_SIZES = {"1k": 1 << 10, "16k": 1 << 14, "128k": 1 << 17}
STRUCTURE_ROWS = 20
CHARACTERS_A_TOKEN = 4
DELTA_CHARACTERS = (16, 64)

TOOLS: list[dict[str, Any]] = [
    {
        "type": "function",
        "function": {
            "name": "write_file",
            "description": "Write a text file.",
            "parameters": {
                "type": "object",
                "properties": {"path": {"type": "string"}, "content": {"type": "string"}},
                "required": ["path", "content"],
            },
        },
    },
    {
        "type": "function",
        "function": {
            "name": "read_file",
            "description": "Read a text file.",
            "parameters": {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]},
        },
    },
    {
        "type": "function",
        "function": {
            "name": "write_rows",
            "description": "Write rows of a table.",
            "parameters": {"type": "object", "properties": {"rows": {"type": "array"}}, "required": ["rows"]},
        },
    },
]

_PARAGRAPHS = (
    "## Why the cache was cold\n\nThe deploy rolled every pod at once, so each one started with an empty cache and "
    "went to the database for its first few thousand requests. That is what the spike at 09:14 shows.",
    "Three things would have softened it:\n\n1. **Rolling** the pods in batches of `10%`, with a pause between them.\n"
    "2. *Warming* the cache from the last snapshot before a pod is marked ready.\n"
    '3. A limit on concurrent misses for one key (a "single flight"), so that a hot key is read once.',
    "The second is the cheapest. It needs about 40 lines in `startup.py` and no change to the schema; the third "
    "touches the client library, which four other teams use.",
    "| option | effort | gain |\n|---|---|---|\n| batches | low | 2x |\n| warming | low | 5x |\n| single flight | "
    "medium | 8x |",
    "> Note: the numbers come from replaying Tuesday's traffic (a < b in every run, and x > 0.95 of the keys were "
    "read more than once).",
)

_CODE = '''\
def load_{n}(path: str, *, sep: str = "\\t") -> dict[str, list[int]]:
    """Read table {n}: one "key{{sep}}value" pair a line; blank lines and '# comments' are skipped."""
    rows: dict[str, list[int]] = {{}}
    pattern = re.compile(r"^(\\w+)\\s*[:=]\\s*(-?\\d+)\\\\?$")
    with open(path, encoding="utf-8") as handle:
        for number, line in enumerate(handle, start={n}):
            if not (match := pattern.match(line.rstrip("\\r\\n"))):
                log.warning("%s:%d: can't read \\"%s\\"", path, number, line)
                continue
            rows.setdefault(match[1], []).append(int(match[2]))
    return {{key: sorted(values) for key, values in rows.items() if values != [{n}]}}


'''


@dataclass(frozen=True)
class Case:
    """One stream. `expected` has content, reasoning (None: none) and calls, their arguments decoded."""

    id: str
    format: str
    kind: str  # "content", "reasoning", "call" or "structure" (a call whose arguments are hardly strings)
    size: str  # of the text or of the call's string argument, in words
    delta: str  # how the text was cut: "token", "4" (no tokenizer), "16" or "64" characters
    deltas: list[str]
    tools: list[dict[str, Any]]
    expected: dict[str, Any]

    def job(self) -> dict[str, Any]:
        """What a peer's script needs of this case."""
        return {name: getattr(self, name) for name in ("id", "format", "kind", "deltas", "tools")}


def build(tokenizer: Path | None = None) -> list[Case]:
    """All cases; `tokenizer` is a Hugging Face tokenizer.json for the one-token deltas (see `peers.tokenizer`)."""
    encode = _token_splitter(tokenizer)
    token_label = "token" if encode else str(CHARACTERS_A_TOKEN)
    cases: list[Case] = []

    def add(format_: str, kind: str, size: str, text: str, expected: dict[str, Any]) -> None:
        cuts = {token_label: split_tokens(text, encode)}
        cuts.update({str(width): split_characters(text, width) for width in DELTA_CHARACTERS})
        for delta, deltas in cuts.items():
            name = f"{format_}/{kind}-{size}/{delta}"
            cases.append(Case(name, format_, kind, size, delta, deltas, TOOLS, expected))

    prose = _prose(2000)
    for format_ in CALL_FORMATS:
        add(format_, "content", "2k", prose, {"content": prose, "reasoning": None, "calls": []})

    answer = _PARAGRAPHS[2]
    thought = f"<think>\n{prose}\n</think>\n\n{answer}"
    add("qwen3", "reasoning", "2k", thought, {"content": answer, "reasoning": prose, "calls": []})

    for format_ in CALL_FORMATS:
        for size, characters in ARGUMENT_SIZES.items():
            arguments = {"path": "src/tables.py", "content": _code(characters)}
            call = {"name": "write_file", "arguments": arguments}
            add(format_, "call", size, call_text(format_, call), {"content": "", "reasoning": None, "calls": [call]})
        call = {"name": "write_rows", "arguments": {"rows": _rows(STRUCTURE_ROWS)}}
        expected = {"content": "", "reasoning": None, "calls": [call]}
        add(format_, "structure", f"{STRUCTURE_ROWS} rows", call_text(format_, call), expected)
    return cases


def call_text(format_: str, call: dict[str, Any]) -> str:
    """The model's text for one call and nothing else."""
    if format_ in ("hermes", "qwen25"):
        return f"<tool_call>\n{json.dumps(call)}\n</tool_call>"
    if format_ == "mistral":
        return f"[TOOL_CALLS] {json.dumps([call])}"
    if format_ == "mistral_v11":
        return f"[TOOL_CALLS]{call['name']}{json.dumps(call['arguments'])}"
    if format_ == "mistral_args":
        return f"[TOOL_CALLS]{call['name']}[ARGS]{json.dumps(call['arguments'])}"
    raise ValueError(f"no call format {format_!r}")


def matches(case: Case, result: Mapping[str, Any]) -> bool:
    """Whether a folded result is right, forgiving outer whitespace and the JSON spelling of the arguments."""
    try:
        calls = [{"name": call["name"], "arguments": json.loads(call["arguments"])} for call in result["calls"]]
    except ValueError:
        return False
    texts_match = all(
        (case.expected[key] or "").strip() == (result[key] or "").strip() for key in ("content", "reasoning")
    )
    return texts_match and calls == case.expected["calls"]


def split_characters(text: str, width: int) -> list[str]:
    """Deltas of `width` characters; a cut that would fall inside a marker moves to the marker's end."""
    spans = [match.span() for match in _MARKER.finditer(text)]
    deltas: list[str] = []
    start = 0
    while start < len(text):
        end = min(start + width, len(text))
        end = next((after for before, after in spans if before < end < after), end)
        deltas.append(text[start:end])
        start = end
    return deltas


def split_tokens(text: str, encode: Callable[[str], list[str]] | None) -> list[str]:
    """Deltas of one token; every marker is a token."""
    deltas: list[str] = []
    start = 0
    for match in _MARKER.finditer(text):
        deltas += _split_plain(text[start : match.start()], encode)
        deltas.append(match[0])
        start = match.end()
    return deltas + _split_plain(text[start:], encode)


def _split_plain(text: str, encode: Callable[[str], list[str]] | None) -> list[str]:
    if encode is not None:
        return encode(text)
    return [text[i : i + CHARACTERS_A_TOKEN] for i in range(0, len(text), CHARACTERS_A_TOKEN)]


def _token_splitter(tokenizer: Path | None) -> Callable[[str], list[str]] | None:
    if tokenizer is None:
        return None
    try:
        from tokenizers import Tokenizer
    except ImportError:
        return None
    model: Any = Tokenizer.from_file(str(tokenizer))

    def encode(text: str) -> list[str]:
        # The offsets cut the text itself, so the deltas join to it whatever the tokenizer's own spelling of a token.
        ends = [end for _, end in model.encode(text, add_special_tokens=False).offsets]
        return [text[start:end] for start, end in pairwise([0, *ends]) if end > start]

    return encode


def _prose(characters: int) -> str:
    text = ""
    while len(text) < characters:
        text += "\n\n".join(_PARAGRAPHS) + "\n\n"
    # To the end of a word, so that the text ends in no whitespace a parser may drop.
    return text[: text.index(" ", characters - 40)]


def _rows(count: int) -> list[dict[str, Any]]:
    """JSON that is brackets, keys and numbers, with few characters in strings."""
    return [
        {"id": n, "on": n % 2 == 0, "xy": [n, -n * 1.5, None], "tag": "ab", "in": {"k": "v", "z": []}}
        for n in range(count)
    ]


def _code(characters: int) -> str:
    functions: list[str] = []
    length = 0
    while length < characters:
        functions.append(_CODE.format(n=len(functions) + 1))
        length += len(functions[-1])
    return "".join(functions)[:characters]


if __name__ == "__main__":
    # For `peers.cases`, which runs this in an interpreter that has `tokenizers`.
    print(json.dumps([asdict(case) for case in build(Path(sys.argv[1]))]))
