"""Symbols: what a template does with a text is followed, or noted as what cannot be."""

from __future__ import annotations

import pytest

from unbraid.templates import ChatTemplate
from unbraid.templates.control_tokens import NO_CONTROL_TOKENS
from unbraid.templates.symbolic_text import Recipe, Record
from unbraid.templates.traced_text import Origin

ONE, TWO = "a b", "Other words"


def followed(source: str, text: str = ONE) -> tuple[str, Record]:
    """What a template writes for a message of this text, and what it did with it."""
    record = Record()
    message = {"role": "user", "content": record.symbol(text, Origin(0, "content")), "other": "x"}
    return ChatTemplate(source).compile(NO_CONTROL_TOKENS, traced=True).trace([message], {}, False)[0], record


def written(source: str, text: str) -> str:
    return ChatTemplate(source).render([{"role": "user", "content": text, "other": "x"}])


def recipe(source: str) -> Recipe | None:
    text, record = followed(source)
    return record.recipe(text)


@pytest.mark.parametrize(
    "expression",
    [
        "m.content",
        "m.content|trim",
        "m.content.strip() + '!'",
        "'[' ~ m.content|upper ~ ']'",
        "m.content.split(' ')[0]",
        "m.content.split(' ')|join('-')",
        "m.content.replace('o', '0')",
        "'{x}'.replace('x', m.content)",
        "m.content|tojson",
        "{'a': [m.content, 1]}|tojson(indent=1)",
        "m.content[:3]",
        "'.'.join([m.content, m.other])",
        "m.content if m.content is string and m.content is iterable else 'no'",
        "m.content if m.content else 'nothing'",
        "'yes' if m.content.startswith('<') else m.content",
        "'yes' if m.content == m.other or m.content in ['q', 'r'] else m.content",
        "'yes' if '</think>' in m.content else m.content",
        "'yes' if m.content in 'quite another text' else m.content",
    ],
)
def test_what_is_followed(expression: str) -> None:
    source = "{% for m in messages %}<{{ " + expression + " }}>{% endfor %}"
    text, record = followed(source)
    assert text == written(source, ONE)
    found = record.recipe(text)
    assert found is not None, record.looks
    assert found.text([ONE]) == text
    assert found.text([TWO]) == written(source, TWO)


@pytest.mark.parametrize(
    "expression",
    [
        "'%s' % m.content",
        "'%s %s' % (m.content, 1)",
        "'{}'.format(m.content)",
        "m.content|title",
        "m.content|list",
        "m.content * 2",
        "[m.content]|string",
        "{'a b': 1}[m.content]",
        "'yes' if m.content < 'b' else 'no'",
        "m.content|safe",
        "m.content|reverse",
        "'yes' if m.content is in 'a b c' else 'no'",
        "[m.content, 'b']|sort|first",
        "'%s'|format(m.content)",
        "m.content|int",
    ],
)
def test_what_is_not(expression: str) -> None:
    source = "{% for m in messages %}<{{ " + expression + " }}>{% endfor %}"
    text, record = followed(source)
    assert text == written(source, ONE)
    assert record.recipe(text) is None
    assert record.looks


@pytest.mark.parametrize(
    ("expression", "other"),
    [
        ("('yes' if m.content.startswith('a') else 'no') ~ m.content", "b"),
        ("m.content if m.content|length == 3 else 'no'", "four"),
        ("m.content.split(' ')[-1]", "a b c"),
        ("('yes' if m.content == 'a b' else 'no') ~ m.content", "a"),
        ("m.content|trim ~ '.'", "  "),
    ],
)
def test_a_recipe_says_nothing_where_other_answers_are_given(expression: str, other: str) -> None:
    found = recipe("{% for m in messages %}<{{ " + expression + " }}>{% endfor %}")
    assert found is not None
    assert found.text([other]) is None
