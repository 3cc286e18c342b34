"""The judge sees each fault, and none where there is none."""

from __future__ import annotations

from dataclasses import replace

import pytest

from scoreboard.judge import Call, Reply, judge
from scoreboard.streams import Stream, streams


def stream(kind: str) -> Stream:
    return next(streams("hermes", 1, (kind,), seed=4711))


def perfect(one: Stream) -> Reply:
    turn = one.meant.turn
    return Reply(turn.content + one.meant.after, turn.reasoning, tuple(Call(*call) for call in turn.calls))


@pytest.mark.parametrize("kind", ["answer", "call", "calls", "nested-arguments", "text-after-call", "unknown-tool"])
def test_what_was_meant_is_right(kind: str) -> None:
    verdict = judge(stream(kind), perfect(stream(kind)))
    assert verdict.faults == ()
    assert verdict.exact


def test_whitespace_at_the_ends_is_taste() -> None:
    one = stream("answer")
    verdict = judge(one, replace(perfect(one), content=f"\n{one.meant.turn.content} "))
    assert (verdict.faults, verdict.exact) == ((), False)


def test_each_fault_of_a_text() -> None:
    one = stream("answer")
    text = one.meant.turn.content
    assert judge(one, Reply(text[:-5])).faults == ("lost",)
    assert judge(one, Reply(f"{text} Q")).faults == ("invented",)
    assert judge(one, Reply(f"{text}</tool_call>")).faults == ("leaked",)
    assert judge(one, Reply(text[9:], text[:9])).faults == ("misplaced",)
    assert judge(one, Reply(error="ValueError: no")).faults == ("raises",)


def test_each_fault_of_a_call() -> None:
    one = stream("calls")
    calls = perfect(one).calls
    assert judge(one, Reply(calls=calls[:1])).faults == ("lost", "call")
    assert judge(one, Reply(calls=(*calls, calls[0]))).faults == ("invented", "call")
    assert judge(one, Reply(calls=(replace(calls[0], name="x"), *calls[1:]))).faults == ("call",)
    assert judge(one, Reply(calls=(replace(calls[0], arguments="{}"), *calls[1:]))).faults == ("arguments",)
    assert judge(one, Reply(calls=(replace(calls[0], arguments='{"a'), *calls[1:]))).faults == ("arguments",)
    assert judge(one, Reply(calls=(replace(calls[0], complete=False), *calls[1:]))).faults == ("arguments",)


def test_a_call_that_was_cut_off_must_not_look_whole() -> None:
    whole = stream("call")
    size = whole.texts.index("text") + 6
    meant = replace(whole.meant, kind="cut-off")
    cut = Stream(meant, whole.ids[:size], whole.texts[:size], cut_off=True)
    for arguments in ('{"path": "a", "te', "", "{}"):
        assert judge(cut, Reply(calls=(Call("write_file", arguments),))).faults == ()
    assert judge(cut, Reply()).faults == ()
    assert judge(cut, Reply(calls=(Call("write_file", '{"path": "a", "text": "b"}'),))).faults == ("cut-call",)
    assert judge(cut, Reply(calls=(Call("write_file", '{"path": "a", "te', complete=True),))).faults == ("cut-call",)
    assert judge(cut, Reply(content="<tool_call>")).faults == ("leaked",)


@pytest.mark.parametrize(
    ("cut", "content", "reasoning", "faults"),
    [
        ("Here are my", "Here are my", "", ()),
        ("Here are my", "", "", ()),
        ("Here are my", "", "Here are my", ("leaked",)),
        ("Here are my", "Here we are", "", ("invented",)),
        ("Here are my reasoning steps:\n", "Here are my reasoning steps:", "", ("leaked",)),
    ],
)
def test_the_beginning_of_a_marker_in_words_may_be_an_answer(
    cut: str, content: str, reasoning: str, faults: tuple[str, ...]
) -> None:
    whole = next(streams("apriel-1.6", 1, ("call",), seed=4711))
    meant = replace(whole.meant, kind="cut-off", text=f"Here are my reasoning steps:\n{whole.meant.text}")
    begun = Stream(meant, [0], [cut], cut_off=True)
    assert judge(begun, Reply(content, reasoning)).faults == faults


def test_replies_say_the_same_up_to_spelling() -> None:
    one, other = (Reply("a ", "", (Call("f", text),)) for text in ('{"a": 1, "b": 2}', '{"b":2,"a":1}'))
    assert one.settled() == other.settled()
    assert one.settled() != Reply("a").settled()
