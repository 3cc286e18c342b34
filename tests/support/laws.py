"""The laws that hold for any text whatever, as checks of one format and one text (docs/laws.md says them in full).
Some of them are in the library, for outputs that users have: `unbraid/stream_checks.py`.

`tests/core/test_laws.py` makes up the texts with Hypothesis, `tests/fuzz` has a fuzzer find them. The laws that need to
know what a text was made to say stand in the tests.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence

import unbraid
from unbraid import (
    Content,
    Event,
    Format,
    Reasoning,
    SpeechText,
    ToolCallArguments,
    ToolCallEnd,
    ToolCallStart,
)
from unbraid.core.machine.snapshot import encode, state_of
from unbraid.stream_checks import (
    Options,
    chunks_do_not_matter,
    cut_off_is_not_complete,
    nothing_is_lost,
    run,
    said,
)


def whole_is_streamed(format: Format, text: str) -> None:
    """Law 2."""
    streamed, events = run(format, list(text), prompt="")
    assert said(unbraid.parse(format, text, prompt="", seed=7)) == said(streamed)
    assert fold_deltas(events) == streamed.to_openai()


def order_is_kept(format: Format, text: str, options: Options) -> None:
    """Law 7."""
    message, events = run(format, [text], **{**options, "unknown_tools": "emit"})
    starts = [event for event in events if isinstance(event, ToolCallStart)]
    ends = [event.index for event in events if isinstance(event, ToolCallEnd)]
    assert [event.index for event in starts] == ends == list(range(len(starts)))
    assert len({event.id for event in starts}) == len(starts)
    open_calls: list[int] = []
    for event in events:
        if isinstance(event, ToolCallStart):
            open_calls = [event.index]
        elif isinstance(event, ToolCallArguments):
            assert open_calls == [event.index]
        elif isinstance(event, ToolCallEnd):
            assert open_calls.pop() == event.index
    # Apart from a name that the model wrote after the arguments, all comes in the order of the text.
    text_events = [event for event in events if isinstance(event, Content | Reasoning | SpeechText)]
    assert [e.start for e in text_events] == sorted(e.start for e in text_events)
    assert len(message.tool_calls) == len(starts)


def never_raises(format: Format, text: str, options: Options) -> None:
    """Law 8: nothing raises, a call that is complete has valid arguments, and one that is not has a diagnostic."""
    message, _ = run(format, [text], **options)
    for call in message.tool_calls:
        if call.complete:
            json.loads(call.arguments)
        else:
            assert message.diagnostics
            assert call.raw in text
    assert message.settled().content.count("x") + message.reasoning.count("x") <= text.count("x")
    json.dumps(message.to_openai())


def saving_changes_nothing(format: Format, pieces: Sequence[str], options: Options) -> None:
    """A parser saved and restored at every piece, through JSON, goes on as if nothing had happened: another one that is
    new, with whatever prompt, and one that stands elsewhere."""
    whole, events = run(format, pieces, **options)
    for used in (False, True):
        parser = unbraid.parser(format, seed=7, markup=True, **options)
        others = [unbraid.parser(format, seed=8, markup=True, **{**options, "prompt": None}) for _ in range(2)]
        others[0].feed("".join(pieces[1:3]))
        restored: list[Event] = []
        for piece in pieces:
            restored += parser.feed(piece)
            saved = json.loads(json.dumps(parser.snapshot()))
            if used:
                others.append(parser)
                parser = others.pop(0)
            else:
                parser = unbraid.parser(format, seed=8, markup=True, **{**options, "prompt": None})
            parser.restore(saved)
        restored += parser.finish()
        assert restored == events
        assert said(parser.message) == said(whole)


def moves_are_counted(format: Format, pieces: Sequence[str], options: Options) -> None:
    """What has not moved has the same state, but for where it is."""
    parser = unbraid.parser(format, keep_message=False, **options)
    machine = parser.machine
    for piece in pieces:
        moves, state = machine.moves, encode(state_of(machine))
        parser.feed(piece)
        assert machine.moves != moves or encode(state_of(machine)) == state


def all_laws(format: Format, pieces: Sequence[str], sizes: Iterable[int], options: Options) -> None:
    """Every law above, on one text in one way to cut it."""
    text = "".join(pieces)
    never_raises(format, text, options)
    chunks_do_not_matter(format, [text], [list(text), pieces], options)
    whole_is_streamed(format, text)
    nothing_is_lost(format, pieces, options)
    order_is_kept(format, text, options)
    cut_off_is_not_complete(format, text, sizes, options)
    saving_changes_nothing(format, pieces, options)


def fold_deltas(events: list[Event]) -> dict[str, object]:
    """Add streamed deltas up, the way a client does."""
    message: dict[str, object] = {"role": "assistant", "content": None, "reasoning_content": None}
    calls: list[dict[str, dict[str, str]]] = []
    speech: dict[str, str] = {}
    for event in events:
        delta = event.to_openai() or {}
        for key in ("content", "reasoning_content"):
            if key in delta:
                message[key] = f"{message[key] or ''}{delta[key]}"
        for call in delta.get("tool_calls", []):
            if call["index"] == len(calls):
                calls.append({key: value for key, value in call.items() if key != "index"})
            else:
                calls[call["index"]]["function"]["arguments"] += call["function"]["arguments"]
        for key, value in delta.get("tts_content", {}).items():
            speech = {"tts_text": "", "tts_audio": ""} | speech
            speech[key] += value
    if calls:
        message["tool_calls"] = calls
    if speech:
        message["tts_content"] = speech
    return message
