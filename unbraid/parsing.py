"""The public parser: raw output in, events out.

A `Parser` is the machine of one format (`core/machine`) with a message that grows beside it. It knows what the core
does not: the names of formats and the tokenizers of other libraries. All its options are declared in `Parser.__init__`
and nowhere else; `parse` takes the same ones.

To change how output is read, go to `core/machine` and `core/notations`. What is done here for each delta counts: the
fast paths are most of what a stream costs.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Concatenate, Literal, ParamSpec

from .core.events import Event
from .core.grammar import Format
from .core.limits import Limits
from .core.machine.driver import Driver, driver
from .core.message import Fold, Message
from .core.tally import LabelledTally
from .core.tools import Tools, read_tools
from .errors import InvalidSnapshot, UnbraidError
from .formats import resolve
from .tokens import vocabulary

UnknownTools = Literal["text", "emit", "drop"]
"""What becomes of a call to a tool that the request does not have."""

_P = ParamSpec("_P")


class Parser:
    """Parses one response. Feed it text or token ids as they arrive, then finish it. It returns events.

    format: a name that `unbraid formats` lists, or a grammar.
    tools: the request's tools. Without them every name is accepted.
    unknown_tools: what becomes of a call to any other name, besides a diagnostic. "text" keeps it as text, unless its
        markers are spelled as no text is (`<|open|>`); "drop" leaves it out, "emit" emits it.
    tokenizer: needed for `feed_tokens`. Takes a tokenizer of `tokenizers`, `transformers`, `tiktoken` or
        `mistral-common`, or a `Vocabulary`. A marker that is one of its tokens is then that token and nothing else. A
        parser that is fed text instead finds markers in the text.
    prompt: what the model was given, as text or ids. Its end says where the output begins, so the last part will do,
        such as the template's generation prompt.
    separate_reasoning: False leaves the reasoning in the content, with its markers.
    calls_in_reasoning: whether a call inside the reasoning is a call (True) or text of the reasoning (False). None for
        what suits the model: most call where they stand, some only draft calls there.
    keep_message: False when you only want the events. Memory then does not grow with the output.
    markup: True to get `Markup` events too.
    count_tokens: True to have `tokens`.
    label_tokens: True to have `token_strands` and `token_markup` as well. Memory then grows with the output.
    limits: bounds on what the parser holds back.
    seed: makes the ids of calls reproducible.
    """

    __slots__ = ("_fold", "_machine")

    def __init__(
        self,
        format: str | Format,
        *,
        tools: Iterable[Mapping[str, Any]] | Tools | None = None,
        unknown_tools: UnknownTools = "text",
        tokenizer: object | None = None,
        prompt: str | Sequence[int] | None = None,
        separate_reasoning: bool = True,
        calls_in_reasoning: bool | None = None,
        keep_message: bool = True,
        markup: bool = False,
        count_tokens: bool = False,
        label_tokens: bool = False,
        limits: Limits | None = None,
        seed: int | None = None,
    ) -> None:
        if unknown_tools not in ("text", "emit", "drop"):
            raise UnbraidError(f'unknown_tools is "text", "emit" or "drop", not {unknown_tools!r}')
        self._fold = Fold() if keep_message else None
        of = format if type(format) is Format else resolve(format)
        offered = None if tools is None else read_tools(tools) if type(tools) is list else _checked(tools)
        options: dict[str, Any] = {
            "unknown_tools": unknown_tools,
            "separate_reasoning": separate_reasoning,
            "calls_in_reasoning": calls_in_reasoning,
            "keep_raw": keep_message,
            "markup": markup,
        }
        if limits is not None:
            options["limits"] = limits
        if count_tokens or label_tokens:
            options |= {"count_tokens": count_tokens, "label_tokens": label_tokens}
        ids = None if tokenizer is None else vocabulary(tokenizer)
        self._machine = driver(of, offered, prompt, seed, ids, **options)

    def feed(self, text: str) -> list[Event]:
        """Parse the next piece of text, cut anywhere."""
        machine = self._machine
        fast, events = machine.fast_path, None
        if fast is not None and text and type(text) is str:  # if it is no text, the machine says so
            events = fast(machine, text)
        if events is None:
            events = machine.feed(text)
        if self._fold is not None:
            self._fold.add(events)
        return events

    def feed_tokens(self, ids: Iterable[int]) -> list[Event]:
        """Parse the next token ids. Needs a `tokenizer`."""
        machine = self._machine
        events = None
        if machine.fast_tokens is not None:
            texts = machine.texts
            try:
                pieces = (texts[ids[0]],) if len(ids) == 1 else [texts[token] for token in ids]  # type: ignore[index, arg-type]
                text = "".join(pieces)
            except (KeyError, TypeError):
                text = ""  # a marker, a piece of a character, or no sequence
            if text:
                events = machine.fast_tokens(machine, text)
            if events is not None and machine.tally is not None:
                machine.tally.passed(pieces, len(text), machine.strand)
        if events is None:
            events = machine.feed_tokens(ids)
        if self._fold is not None:
            self._fold.add(events)
        return events

    def feed_codes(self, codes: Iterable[int]) -> list[Event]:
        """Parse audio codes that the model gives beside its tokens, from a head of its own (`lfm2-audio`, `mimo-audio`,
        `baichuan-audio`). Feed whole frames, in their place among the tokens. A frame without audio is left out."""
        return self._kept(self._machine.feed_codes(codes))

    def finish(self, *, end_of_turn: bool = False) -> list[Event]:
        """Say that the output is over: emit what was held back, and close what is open.

        end_of_turn: True if you know that the model ended its turn itself (`finish_reason` is "stop"), and its end
            token is not among what was fed. A call that lacks nothing but its closing marker is then complete.
            Otherwise the output may have been cut off, and a call that it ends inside of is not complete.
        """
        return self._kept(self._machine.finish(end_of_turn))

    @property
    def message(self) -> Message:
        """The message so far."""
        if self._fold is None:
            raise UnbraidError("this parser keeps no message: make it with keep_message=True")
        return self._fold.message()

    @property
    def tokens(self) -> dict[str, int]:
        """How many of the tokens so far belong to each strand: `reasoning`, `content`, `tool_calls`, `speech` (text
        that is spoken) and `audio`; see `core.tally` for the rule. Tokens whose text is held back are not counted yet;
        after `finish` all are. Needs `count_tokens`, and token ids."""
        if self._machine.tally is None:
            raise UnbraidError("this parser counts no tokens: make it with count_tokens=True")
        return dict(self._machine.tally.up_to_date().counts)

    @property
    def token_strands(self) -> tuple[str, ...]:
        """The strand of each token so far, by the rule of `tokens`. Tokens whose text is held back count as content;
        after `finish` all are known. Needs `label_tokens`."""
        return tuple(self.tally.labels)

    @property
    def token_markup(self) -> tuple[bool, ...]:
        """For each token so far whether it is markup: a marker, the end of the turn, or all of a call but its name and
        its arguments. Needs `label_tokens`."""
        return tuple(self.tally.markup)

    @property
    def tally(self) -> LabelledTally:
        """The tally that `token_strands` and `token_markup` are read from. Reading them costs time; this does not."""
        tally = self._machine.tally
        if not isinstance(tally, LabelledTally):
            raise UnbraidError("this parser labels no tokens: make it with label_tokens=True")
        return tally

    @property
    def thoughts(self) -> int:
        """How many of the tokens so far are reasoning, its markers not counted. Needs `count_tokens`."""
        if self._machine.tally is None:
            raise UnbraidError("this parser counts no tokens: make it with count_tokens=True")
        return self._machine.tally.up_to_date().thoughts

    @property
    def strand(self) -> str:
        """The strand of the next text, if it is no marker: `content`, `reasoning`, `speech` or `tool_calls`."""
        return self._machine.strand

    @property
    def holds_back(self) -> bool:
        """Whether text is held back: the beginning of what may be a marker, or a part of a character."""
        return self._machine.holds_back

    @property
    def machine(self) -> Driver:
        """The machine of this parser, for `core.machine.snapshot`."""
        return self._machine

    def snapshot(self) -> dict[str, Any]:
        """The whole state as plain values, which JSON can hold. Another parser with the same arguments can go on from
        it."""
        from .core.machine.snapshot import save  # few need it, and it loads some more

        return {**save(self._machine), "message": None if self._fold is None else self._fold.save()}

    def restore(self, snapshot: dict[str, Any]) -> None:
        """Go on from a snapshot. This parser must have been made with the same arguments as the other one."""
        from .core.machine.snapshot import load

        load(self._machine, snapshot)
        if self._fold is not None and snapshot.get("message") is not None:
            try:
                self._fold = Fold.load(snapshot["message"])
            except (KeyError, TypeError, ValueError, AttributeError) as error:
                raise InvalidSnapshot(f"this snapshot is damaged: {error!r}") from error

    def _kept(self, events: list[Event]) -> list[Event]:
        if self._fold is not None:
            self._fold.add(events)
        return events


def _checked(tools: Iterable[Mapping[str, Any]] | Tools) -> Tools:
    return tools if isinstance(tools, Tools) else read_tools(tools)


def _with_output(
    make: Callable[Concatenate[str | Format, _P], Parser],
) -> Callable[Concatenate[str | Format, str | Sequence[int], _P], Message]:
    """`parse`, with the options of `make`: so that they are declared once."""

    def parse(format: str | Format, output: str | Sequence[int], *args: _P.args, **options: _P.kwargs) -> Message:
        """Parse a whole response, given as text or, with `tokenizer=…`, as token ids. Takes the options of `Parser`."""
        if isinstance(output, bytes):
            raise UnbraidError("parse takes text or token ids, not bytes: decode them first")
        parser = make(format, *args, **options)
        if isinstance(output, str):
            parser.feed(output)
        else:
            parser.feed_tokens(output)
        parser.finish()
        return parser.message

    signature = inspect.signature(make)
    format, *options = signature.parameters.values()
    output = inspect.Parameter("output", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation="str | Sequence[int]")
    parse.__signature__ = signature.replace(  # type: ignore[attr-defined]
        parameters=[format, output, *options], return_annotation="Message"
    )
    return parse  # type: ignore[return-value]  # it takes keywords too, which `Concatenate` cannot say


parse = _with_output(Parser)
