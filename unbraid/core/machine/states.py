"""Theory of operation, and the table of all states.

**The machine.** A parser is a pushdown automaton over characters. Its state is a stack of frames. At the bottom stands
the content; on top of it stand the strands that markers have opened (reasoning, speech) and, at the very top, the
states of a call. New input is appended to a buffer. The top frame takes what it understands and changes the stack, then
the frame that is on top runs, until one of them needs more input.

**No chunk boundaries.** A frame that lacks input returns False and has changed nothing. The next piece of input is
appended, and the frame looks again. So nothing can depend on where the stream was cut (law 1), and there is no second
code path for whole texts (law 2).

**One door.** Input leaves the buffer only through `Machine.take`, which says what it means and where it stood. So
nothing is lost and nothing is said twice (law 3).

**Nesting.** In a scope the nearest marker decides. A scope admits the openers of what is not open yet and the closers
of what is. A call in reasoning in speech is therefore no special case, and no parser has to run before another. The
stack cannot grow without bound: a strand cannot open inside itself, and calls do not nest.

**Calls.** All of a call is held back until its name is known. Then it is accepted and starts to go out, or it is
rejected and all of it is text of the strand around it. After that its arguments go out as they arrive, as JSON.

**Malformed input** never raises (law 8). There are three ways to go on:

1. *It never was a call*: no name, an unknown tool, a marker in the middle. All that was held is text. The closing
   marker that is still to come is text too, and no surprise (`ScopeFrame.orphan_closer`).
2. *An accepted call breaks* (`Malformed`): what was sent stays sent, the call ends as not complete with its raw text,
   and everything up to the nearest marker is text. In a list, the next call is read again.
3. *Its arguments break, and only they*: brackets and quotes are still followed, so that the end of the arguments is
   found and the next call is not lost. The call ends as not complete.

What is not closed at the end of the output is closed there, with a diagnostic where a closer was due.

**The table.** `STATES` says for every kind of frame what it reads, what it can put on top of itself, what ends it, and
what malformed input does to it. `docs/machine.md` is drawn from it. A test runs hostile texts through all formats and
fails on a transition that is not here, and on one that is here and never happens.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class State:
    """One kind of frame."""

    reads: str
    opens: tuple[str, ...]
    """The kinds of frames that it pushes, or that replace it."""
    ends: str
    malformed: str


START = ("scope", "header", "leading_marker")
"""What the driver pushes, by what the prompt ends with."""

STATES = {
    "scope": State(
        reads="text of one strand: content, reasoning or speech",
        opens=("scope", "leading_marker", "header", "citation", "calls"),
        ends="its closing marker, the closer of a scope around it, a header, or the end of the output",
        malformed="a closer of something that is not open is reported; it is text, or markup if it is a token",
    ),
    "leading_marker": State(
        reads="at the start: the opening marker once more, where it is open; or a closing one alone",
        opens=(),
        ends="the marker, or anything else",
        malformed="anything else belongs to the scope below",
    ),
    "header": State(
        reads="the header of a message: whose turn, which channel, to whom",
        opens=("scope", "calls"),
        ends="one of the format's ends of a header; then what it announces begins",
        malformed="its first character is text, and another header may begin after it",
    ),
    "citation": State(
        reads="a tag that says where the text comes from",
        opens=(),
        ends="its end",
        malformed="what it begins with is text",
    ),
    "calls": State(
        reads="calls between their markers, step by step",
        opens=("value", "quoted", "json_call", "tagged", "xml", "elements", "python", "python_dict", "bare"),
        ends="the closing marker, or where no further call comes",
        malformed="text up to the nearest marker; in a list, the next call is read",
    ),
    "json_call": State(
        reads="a call that is one JSON object",
        opens=("value", "quoted"),
        ends="its closing brace",
        malformed="the call is given up",
    ),
    "value": State(
        reads="one JSON value, passed on as it is",
        opens=(),
        ends="the end of the value",
        malformed="brackets and quotes are followed to its end, or to the nearest marker",
    ),
    "quoted": State(
        reads="JSON arguments that stand in a JSON string",
        opens=(),
        ends="the closing quote",
        malformed="passed on; the call is not complete",
    ),
    "tagged": State(
        reads="between arguments that stand in tags",
        opens=("tagged_value", "wrapper", "value"),
        ends="what follows the last argument, or a marker",
        malformed="the call is given up",
    ),
    "tagged_value": State(
        reads="one value between its tags",
        opens=("argument",),
        ends="its closing tag, the next opening one, or the end of the call",
        malformed="what is not of its kind is passed on as a string",
    ),
    "wrapper": State(
        reads="a value between tags that may hold all of the arguments",
        opens=(),
        ends="its closing tag, the next opening one, or the end of the call",
        malformed="it is an argument like others",
    ),
    "xml": State(
        reads="between arguments that stand in tags, as XML",
        opens=("xml_value", "xml_wrapper", "value"),
        ends="what follows the last argument, or a marker",
        malformed="the call is given up",
    ),
    "xml_value": State(
        reads="one value between its tags, with entities and CDATA sections",
        opens=("argument", "decoded"),
        ends="its closing tag, the next opening one, or the end of the call",
        malformed="what is not of its kind is passed on as a string",
    ),
    "xml_wrapper": State(
        reads="such a value that may hold all of the arguments",
        opens=(),
        ends="its closing tag, the next opening one, or the end of the call",
        malformed="it is an argument like others",
    ),
    "decoded": State(
        reads="entities and CDATA sections, for the frame below that reads an array or an object",
        opens=(),
        ends="the end of the value, or what ends the text around it",
        malformed="as in the frame below",
    ),
    "elements": State(
        reads="between elements, nested",
        opens=("leaf",),
        ends="what follows the last argument, or a marker",
        malformed="the call is given up",
    ),
    "leaf": State(
        reads="the text of an element that holds no others",
        opens=("argument",),
        ends="the next tag",
        malformed="what is not of its kind is passed on as a string",
    ),
    "argument": State(
        reads="an array or an object between tags, as JSON",
        opens=("python_argument", "escaped_argument"),
        ends="the end of the value",
        malformed="brackets and quotes are followed to its end, or to its closing tag",
    ),
    "python_argument": State(
        reads="the rest of an array or an object that goes on as Python writes it",
        opens=("argument",),
        ends="the end of the value",
        malformed="brackets and quotes are followed to its end, or to its closing tag",
    ),
    "escaped_argument": State(
        reads="the rest of an array or an object that is escaped as if it stood in a string",
        opens=("argument",),
        ends="the end of the value",
        malformed="brackets and quotes are followed to its end, or to its closing tag",
    ),
    "python": State(
        reads="arguments as in a Python call",
        opens=(),
        ends="the bracket that closes the call",
        malformed="brackets and quotes are followed to that bracket, or to the nearest marker",
    ),
    "python_dict": State(
        reads="arguments as a dict of Python's",
        opens=(),
        ends="its closing bracket",
        malformed="brackets and quotes are followed to its end, or to the nearest marker",
    ),
    "bare": State(
        reads="an object with bare keys",
        opens=(),
        ends="its closing bracket",
        malformed="passed on up to the nearest marker",
    ),
}
