"""A traced text is the text, and carries where it comes from through all that templates do with text."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unbraid.templates import ChatTemplate
from unbraid.templates.control_tokens import NO_CONTROL_TOKENS
from unbraid.templates.traced_text import Origin, TracedText, joined, trace_of

from ..support.examples import examples

TEXTS = st.text("ab <>/\n,é", max_size=12)
WORDS = st.text("ab <>,", min_size=1, max_size=2)
ONE, TWO = Origin(1, "content"), Origin(2, "content")
OPERATIONS: dict[str, Callable[[str, str, int], object]] = {
    "strip": lambda text, word, at: text.strip(),
    "strip characters": lambda text, word, at: text.strip(word),
    "lstrip": lambda text, word, at: text.lstrip(),
    "rstrip": lambda text, word, at: text.rstrip(word),
    "split": lambda text, word, at: text.split(word),
    "split at whitespace": lambda text, word, at: text.split(),
    "split once": lambda text, word, at: text.split(word, 1),
    "split at whitespace once": lambda text, word, at: text.split(None, 1),
    "rsplit": lambda text, word, at: text.rsplit(word, 1),
    "rsplit at whitespace": lambda text, word, at: text.rsplit(None, 1),
    "splitlines": lambda text, word, at: text.splitlines(),
    "lines": lambda text, word, at: text.splitlines(True),
    "partition": lambda text, word, at: text.partition(word),
    "rpartition": lambda text, word, at: text.rpartition(word),
    "replace": lambda text, word, at: text.replace(word, "-"),
    "replace once": lambda text, word, at: text.replace(word, "", 1),
    "join": lambda text, word, at: text.join([word, "x", word]),
    "add": lambda text, word, at: text + word,
    "added": lambda text, word, at: word + text,
    "from": lambda text, word, at: text[at:],
    "to": lambda text, word, at: text[:at],
    "backwards": lambda text, word, at: text[::-1],
    "characters": lambda text, word, at: list(text),
    "upper": lambda text, word, at: text.upper(),
    "title": lambda text, word, at: text.title(),
    "removeprefix": lambda text, word, at: text.removeprefix(word),
    "removesuffix": lambda text, word, at: text.removesuffix(word),
}


@pytest.mark.parametrize("name", OPERATIONS)
@examples(10)
@given(TEXTS, WORDS, st.integers(-5, 5))
def test_what_is_done_with_it_gives_the_same_text(name: str, text: str, word: str, at: int) -> None:
    operation = OPERATIONS[name]
    made, expected = operation(TracedText.of(text, ONE), word, at), operation(text, word, at)
    assert made == expected
    for each in made if isinstance(made, list | tuple) else [made]:
        assert isinstance(each, TracedText)
        for begin, end, _ in trace_of(each).spans:
            assert 0 <= begin <= end <= len(each)


@examples(10)
@given(TEXTS, TEXTS, WORDS)
def test_each_character_keeps_its_origin(one: str, two: str, word: str) -> None:
    """Characters are told apart by their origin: after cutting and joining, each still comes from its own text."""
    whole = TracedText.of(one.replace(",", "a"), ONE) + word + TracedText.of(two.upper(), TWO)
    cut = joined("", whole.split(word))
    for begin, end, origin in trace_of(cut).spans:
        source = one.replace(",", "a") if origin == ONE else two.upper()
        assert str.__str__(cut)[begin:end] in source


@pytest.mark.parametrize(
    "expression",
    [
        "m.content",
        "m.content | trim",
        "'<' + m.content + '>'",
        "m.content ~ '!'",
        "m.content.split('</think>')[-1]",
        "[m.content] | join(', ')",
        "', '.join([m.content])",
        "m | tojson",
        "shown(m.content)",
        "'{}'.replace('{}', m.content)",
    ],
)
def test_templates_say_where_text_comes_from(expression: str) -> None:
    source = (
        "{% macro shown(text) %}<b>{{ text }}</b>{% endmacro %}"
        "{% for m in messages %}[{{ " + expression + " }}]{% endfor %}end"
    )
    compiled = ChatTemplate(source).compile(NO_CONTROL_TOKENS, traced=True)
    messages = [{"role": "user", "content": " Hello "}, {"role": "assistant", "content": "Hm</think>there"}]
    text, trace = compiled.trace(messages, {}, False)
    assert text == trace.text == compiled.render(messages, {}, False)
    assert [origin.message for _, _, origin in trace.spans] == [0, 1]
    said = [text[begin:end] for begin, end, _ in trace.spans]
    assert "Hello" in said[0]
    assert "there" in said[1]
    assert not {"[", "<b>"} & set(said[0])
    begins = {point.value: at for at, point in trace.points}
    assert (begins[0], text[begins[1]], text[begins[-1] :]) == (0, "[", "end")


def test_a_trace_knows_the_lines() -> None:
    compiled = ChatTemplate("{{ 1 }}\n{% for m in messages %}\n\n{{ m.content }}{% endfor %}").compile(
        NO_CONTROL_TOKENS, traced=True
    )
    text, trace = compiled.trace([{"role": "user", "content": "Hi"}], {}, False)
    assert trace.line(text.index("Hi")) == 4
