"""The inputs of the benchmark of constraints: tools, what a model writes with them, and the tokenizers it writes in.

Everything here is deterministic.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import accumulate, cycle, islice
from typing import Any

import cases

from tests.support import real_tokenizers
from unbraid.tokens import vocabulary

Schema = dict[str, Any]

_VERBS = ("create", "update", "search", "cancel", "schedule", "export", "review", "archive", "assign", "notify")
_NOUNS = (
    "invoice",
    "booking",
    "ticket",
    "shipment",
    "customer",
    "meeting",
    "report",
    "contract",
    "payment",
    "device",
)
_CHOICES = (
    ("low", "normal", "high", "urgent"),
    ("draft", "open", "waiting", "closed"),
    ("day", "week", "month", "quarter", "year"),
    ("email", "phone", "post"),
)
_STRING: Schema = {"type": "string"}
_INNER: tuple[Schema, ...] = (
    {"street": _STRING, "city": _STRING, "postcode": _STRING},
    {"from": {"type": "string"}, "until": {"type": "string"}, "whole_day": {"type": "boolean"}},
    {"amount": {"type": "number"}, "currency": {"type": "string", "enum": ["EUR", "USD", "JPY"]}},
)
_INNER_NAMES = ("address", "period", "price")
_ITEMS: tuple[Schema, ...] = (_STRING, {"type": "integer", "minimum": 1}, {"type": "string", "enum": ["a", "b", "c"]})
_EXAMPLES: dict[str, Any] = {"string": "Lindenstrasse 12", "integer": 17, "number": 249.5, "boolean": True}

PROSE = (
    "The ferry came in an hour late, with its lights still on and nobody at the rail. On the quay a woman in a yellow "
    "coat was counting crates, and every time she reached the end of the row she shook her head and began again. There "
    "should have been forty of them. The captain, who had made this crossing for thirty years, said that the number on "
    "the bill of lading was wrong; the customs officer said that it was the number of crates that was wrong. Both of "
    "them were tired.\n\nIt took until noon to find the answer, and it was a dull one. Two crates had been put ashore "
    "at the first stop because their labels had come off in the rain, and the harbour master there had kept them dry "
    "in his own kitchen. He telephoned to ask whether anyone missed them. By then the yellow coat had gone home, the "
    "captain was asleep, and only the officer was left to say that yes, somebody did.\n\nWhat follows from this? "
    "First, that labels ought to be tied on and not glued. Second, that a list is only as good as the person who "
    "reads it out. And third, if you want to know where a thing is, it helps to ask before you count: most of what we "
    "call missing is somewhere, quite safe, waiting for a call."
)
# Markers begin with < or [, and so does much of this.
CODE = """\
Here is the list as a component, and the test for it:

```tsx
export function Crates({ rows, limit = 40 }: Props<Crate[]>) {
  const [open, setOpen] = useState<number | null>(null);
  const shown = rows.filter((row) => row.id < limit && row.labels[0] !== "lost");
  return (
    <ul className="crates">
      {shown.map((row, i) => (
        <li key={row.id} onClick={() => setOpen(i)}>
          <a href={`/crates/${row.id}`}>{row.labels[0] ?? <em>no label</em>}</a>
          {open === i && <Details of={row} times={[row.from, row.until]} />}
        </li>
      ))}
    </ul>
  );
}

for (let i = 0; i < cases.length; i++) {
  const [given, expected] = cases[i];
  test(`case ${i}`, () => expect(render(<Crates rows={given} />).ids()).toEqual([...expected]));
}
```
"""
LETTER = (
    'Dear Ms Okafor,\n\nyou asked for "everything we know", so here it is: the pump (model K-7/2) stopped at 03:14, '
    "restarted at 03:20, and stopped for good at 04:02.\n\n\t1. The log shows C:\\pumps\\k7\\error.txt, 12 kB.\n\t2. "
    "The valve was 40% open -- it shouldn't have been.\n\nWe'll send someone on Monday; until then, please leave it "
    "off.\n"
)
LETTERS = 6  # in a long string


@dataclass(frozen=True)
class Model:
    """A vocabulary and the format that goes with it."""

    name: str
    format: str
    call_format: str  # of `cases.call_text`
    load: Callable[[], Any]


@dataclass(frozen=True)
class Walk:
    """An output, token by token. Of all its steps, those from `first` until `last` count."""

    name: str
    tool_choice: str
    tokens: list[int]
    first: int
    last: int


MODELS = (
    Model("Qwen3", "qwen3", "hermes", real_tokenizers.qwen3_huggingface),
    Model("tekken", "mistral", "mistral_args", lambda: real_tokenizers.mistral(13)),
)


def tools(count: int, series: int) -> list[Schema]:
    """This many strict tools, no two alike. Those of another series are of the same size, but nothing knows them."""
    return [_tool(index, series) for index in range(count)]


def walks(model: Model, tokenizer: Any, count: int) -> list[Walk]:
    """What a model with this many tools writes: prose, code, a call, and a call with a long string in it."""
    index = count // 2
    short = cases.call_text(model.call_format, {"name": _name(index), "arguments": _arguments(index, "Pump K-7/2")})
    long = cases.call_text(model.call_format, {"name": _name(index), "arguments": _arguments(index, LETTER * LETTERS)})
    start, end = _long_string(long)
    return [
        _walk("prose", "auto", tokenizer, PROSE),
        _walk("code", "auto", tokenizer, CODE),
        _walk("call", "required", tokenizer, short),
        _walk("string", "required", tokenizer, long, start, end),
    ]


def whisper_walk(tokenizer: Any) -> Walk:
    """What Whisper writes after the token that begins a transcript."""
    return _walk("prefix and prose", "", tokenizer, "<|de|><|transcribe|><|notimestamps|>" + PROSE)


def _walk(name: str, choice: str, tokenizer: Any, text: str, start: int = 0, end: int | None = None) -> Walk:
    """The steps that count are those of the tokens that lie whole between two places in the (ASCII) text."""
    tokens = real_tokenizers.encode(tokenizer, text)
    spelled = [vocabulary(tokenizer).token_bytes(token) or b"" for token in tokens]
    assert b"".join(spelled) == text.encode()
    ends = list(accumulate(map(len, spelled)))
    begins = [0, *ends[:-1]]
    whole = [at for at in range(len(tokens)) if begins[at] >= start and (end is None or ends[at] <= end)]
    return Walk(name, choice, tokens, whole[0], whole[-1] + 1)


def _long_string(text: str) -> tuple[int, int]:
    """Where the letters begin and end in a call."""
    last = "leave it off."
    return text.index("Dear"), text.rindex(last) + len(last)


def _name(index: int) -> str:
    return f"{_VERBS[index % len(_VERBS)]}_{_NOUNS[index // len(_VERBS) % len(_NOUNS)]}"


def _tool(index: int, series: int) -> Schema:
    """A tool of four to six properties: strings, a choice, a number with bounds, an object, a list."""
    parameters = _object(_properties(index, series))
    function = {"name": _name(index), "description": "One of many.", "strict": True, "parameters": parameters}
    return {"type": "function", "function": function}


def _properties(index: int, series: int) -> Schema:
    choices = [*_CHOICES[index % len(_CHOICES)], f"other-{series:06}"]
    found: Schema = {
        "summary": _STRING,
        f"{_NOUNS[index // len(_VERBS) % len(_NOUNS)]}_kind": {"type": "string", "enum": choices},
        "count": {"type": "integer", "minimum": 1, "maximum": 50 + index},
        _INNER_NAMES[index % len(_INNER)]: _object(_INNER[index % len(_INNER)]),
    }
    if index % 3 != 1:
        found["items"] = {"type": "array", "items": _ITEMS[index // 3 % len(_ITEMS)]}
    if index % 2:
        found["reference"] = _STRING
    return found


def _object(properties: Schema) -> Schema:
    return {"type": "object", "properties": properties, "required": [*properties], "additionalProperties": False}


def _arguments(index: int, summary: str) -> Schema:
    written = _example(_object(_properties(index, 0)))
    return {**written, "summary": summary}


def _example(schema: Schema) -> Any:
    if "enum" in schema:
        return schema["enum"][1]
    if schema["type"] == "object":
        return {name: _example(inner) for name, inner in schema["properties"].items()}
    if schema["type"] == "array":
        return list(islice(cycle([_example(schema["items"])]), 3))
    return _EXAMPLES[schema["type"]]
