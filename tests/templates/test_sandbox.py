"""The sandbox: templates that do too much, templates with mistakes, and what templates may do."""

from __future__ import annotations

import itertools
import threading
import tracemalloc
from dataclasses import replace
from typing import Any

import pytest

from unbraid.templates import (
    ChatTemplate,
    PromptBuilder,
    TemplateBroken,
    TemplateLimits,
    TemplateRefused,
    TemplateTooMuch,
)
from unbraid.templates.sandbox import budget
from unbraid.templates.sandbox.budget import stopped_clock

from .prompt_cases import qwen3, qwen3_encoder

SMALL = TemplateLimits(output=100_000, items=10_000, steps=10_000, work=500_000, seconds=600)
MOST_MEMORY = 64_000_000
ENDLESS = {
    "a long range": "{% for i in range(10**9) %}x{% endfor %}",
    "loops in loops": "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
    "loops that skip": "{% for i in range(99999) %}{% for j in range(99999) if false %}x{% endfor %}{% endfor %}",
    "a long string": "{{ 'a' * 10**9 }}",
    "a long list": "{{ [1] * 10**9 }}",
    "much output": "{% for i in range(9999) %}{{ 'a' * 1000 }}{% endfor %}",
    "strings that double": "{% set n=namespace(x='aa') %}{% for i in range(99) %}{% set n.x=n.x ~ n.x %}{% endfor %}",
    "sums that double": "{% set n=namespace(x='aa') %}{% for i in range(99) %}{% set n.x=n.x + n.x %}{% endfor %}",
    "blocks that double": "{% set n=namespace(x='aa') %}{% for i in range(99) %}{% set y %}{{ n.x }}{{ n.x }}"
    "{% endset %}{% set n.x=y %}{% endfor %}",
    "lists that double": "{% set n=namespace(x=[1]) %}{% for i in range(99) %}{% set n.x=[n.x, n.x] %}{% endfor %}",
    "dicts that double": "{% set n=namespace(x=1) %}"
    "{% for i in range(99) %}{% set n.x=dict(a=n.x, b=n.x) %}{% endfor %}",
    "a macro without end": "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
    "a macro that branches": "{% macro f(x) %}{% if x %}{{ f(x-1) }}{{ f(x-1) }}{% endif %}{% endmacro %}{{ f(50) }}",
    "a loop without end": "{% for a in [[1]] recursive %}{{ loop([a]) }}{% endfor %}",
    "padding": "{{ 'a' | center(10**9) }}",
    "more padding": "{{ 'a'.ljust(10**9) }}",
    "a wide number": "{{ '%1000000000d' % 1 }}",
    "a wide field": "{{ '{:>1000000000}'.format(1) }}",
    "a field of any width": "{{ '{:>{}}'.format(1, 10**9) }}",
    "a large number": "{{ (10**1000) ** 100000 }}",
    "replacing": "{% set a = 'a' * 9999 %}{{ a.replace('a', a) }}",
    "replacing, a filter": "{% set a = 'a' * 9999 %}{{ a | replace('a', a) }}",
    "joining": "{{ ('a' * 9999).join(['b'] * 9999) }}",
    "joining, a filter": "{{ range(9999) | join('a' * 9999) }}",
    "indenting": "{{ ('\n' * 9999) | indent(9999) }}",
    "indenting JSON": "{{ [1] | tojson(indent=10**8) }}",
    "lists of lists": "{{ ([range(9999)] * 9999) | map('list') | list }}",
    "adding up lists": "{{ ([[1]] * 9999) | sum(start=[]) }}",
    "deep brackets": "{{ " + "(" * 3000 + "1" + ")" * 3000 + " }}",
    "deep blocks": "{% if 1 %}" * 300 + "{% endif %}" * 300,
    "many bytes": "{{ (5).to_bytes(10**9, 'big') }}",
    "many wide numbers": "{{ ('%(a)99999d' * 9999) % {'a': 1} }}",
    "many wide numbers, a filter": "{{ ('%(a)99999d' * 9999) | format(a=1) }}",
    "many wide fields": "{{ ('{0:99999}' * 9999).format(1) }}",
    "a width in a list": "{{ '{0:{1[0]}}'.format(1, [10**10]) }}",
    "a width in a text": "{{ '{0:{1}{1}}'.format(1, '99999') }}",
    "many widths": "{{ ('%*d' * 4) % (99999, 1, 99999, 1, 99999, 1, 99999, 1) }}",
    "replacing, by name": "{% set a = 'a' * 9999 %}{{ a | replace(old='a', new=a) }}",
    "replacing, half by name": "{% set a = 'a' * 9999 %}{{ a | replace('a', new=a) }}",
    "views that double": "{% set n=namespace(x=1) %}"
    "{% for i in range(99) %}{% set n.x={'a': n.x, 'b': n.x}.items() %}{% endfor %}{{ n.x }}",
    "views in lists": "{% set n=namespace(x=1) %}"
    "{% for i in range(99) %}{% set n.x=[{'a': n.x}.values(), {'a': n.x}.values()] %}{% endfor %}{{ n.x == 1 }}",
    "constants": "{{ '' | center(999999) }}" * 1000,
    "searching": "{{ range(9999) | select('in', ([1.5] * 9999)) | list }}",
    "searching by hand": "{% for i in range(9999) %}{% if i in [1.5] * 9999 %}{% endif %}{% endfor %}",
    "a long path": "{{ range(9999) | map(attribute='" + "a." * 9999 + "a', default=1) | list }}",
    "a long path to sort by": "{{ range(9999) | sort('" + "a," * 9999 + "a') }}",
    "JSON with much between": "{{ ([1] * 999) | tojson(separators=('x' * 9999, ':')) }}",
    "JSON with much before": "{{ ([1] * 999) | tojson(indent='x' * 9999) }}",
    "a slow codec": "{% set s %}{% for i in range(9999) %}{{ '%c' % (i + 19968) }}{% endfor %}{% endset %}"
    "{{ s.encode('punycode') }}",
    "looking from the end": "{{ ('a' * 99999).rfind('b' + 'a' * 49999) }}",
    "many digits": "{{ 1.5 | round(99999, 'ceil') }}",
    "a long date": "{{ strftime_now('%9999Y' * 9999) }}",
}


@pytest.mark.parametrize("name", ENDLESS)
def test_a_template_that_does_too_much_is_stopped_by_what_it_costs(name: str) -> None:
    """By counting, not by the clock, which would let it take all memory meanwhile."""
    tracemalloc.start()
    try:
        with pytest.raises(TemplateTooMuch, match="vendor") as caught:
            ChatTemplate(ENDLESS[name], name="vendor's", limits=SMALL).render([])
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert "seconds" not in str(caught.value)
    assert peak < MOST_MEMORY


def test_what_is_not_counted_is_stopped_by_the_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """By CPU time: how busy the machine is does not matter."""
    now = itertools.count()
    monkeypatch.setattr(budget, "cpu_time", lambda: next(now))
    template = ChatTemplate("{% for i in range(1800) %}{% endfor %}", limits=replace(SMALL, seconds=5))
    with pytest.raises(TemplateTooMuch, match="longer than 5 seconds"):
        template.render([])


def test_renderings_together_have_one_budget() -> None:
    together = budget.Budget(replace(SMALL, steps=1_000))
    template = ChatTemplate("{% for i in range(300) %}{% endfor %}")
    for _ in range(3):
        with budget.spending(together):
            template.render([])
    with pytest.raises(TemplateTooMuch, match="more than 1,000 steps"), budget.spending(together):
        template.render([])


def test_the_clock_can_be_stopped() -> None:
    template = ChatTemplate("{{ strftime_now('%Y-%m-%d %H:%M:%S.%f') }}")
    with stopped_clock():
        assert template.render([]) == "2025-07-01 12:00:00.000000"
    assert template.render([]) > "2025-07-01 12"


def test_namespaces_do_not_tell_what_they_hold() -> None:
    """It may be other namespaces, twice each, and so on."""
    doubled = "{% for i in range(99) %}{% set n.x=namespace(a=n.x, b=n.x) %}{% endfor %}"
    source = "{% set n=namespace(x=1) %}" + doubled + "{{ n }}{{ n.x ~ '' }}{{ '%s' % n }}"
    assert ChatTemplate(source, limits=SMALL).render([]) == "<Namespace>" * 3


def test_a_template_can_be_too_large() -> None:
    with pytest.raises(TemplateTooMuch, match="1,000,001 characters"):
        ChatTemplate("x" * 1_000_001)


def test_a_long_conversation_is_not_too_much() -> None:
    messages = [{"role": role, "content": "word " * 2000} for _ in range(150) for role in ("user", "assistant")]
    assert len(qwen3().render(messages)) > 3_000_000


@pytest.mark.parametrize(
    ("source", "line", "says"),
    [
        ("a\n{% if %}", 2, "Expected an expression"),
        ("a\n\n{{ x | nope }}", 3, "nope"),
        ("a\n{{ nothing.at.all }}", 2, "'nothing' is undefined"),
        ("a\n{% macro m() %}\n{{ 1 + 'a' }}{% endmacro %}\n\n{{ m() }}", 3, "unsupported operand"),
        ("{% include 'x' %}", 1, "no loader"),
        ("{{ ''.__class__.__mro__ }}", 1, "unsafe"),
        ("{{ messages.append(1) }}", 1, "unsafe"),
        ("{{ namespace(__class__=1) }}", 1, "__class__"),
        ("{{ '{'.format(1) }}", 1, "Single '{'"),
    ],
)
def test_a_broken_template_says_where(source: str, line: int, says: str) -> None:
    with pytest.raises(TemplateBroken, match=says) as caught:
        ChatTemplate(source, name="vendor's").render([])
    assert caught.value.line == line
    assert f"vendor's, line {line}" in str(caught.value)


def test_a_template_may_change_the_lists_that_it_has_made() -> None:
    source = (
        "{% set n = namespace(ids=[]) %}{% for m in messages %}{% set _ = n.ids.append(m.content) %}{% endfor %}"
        "{{ n.ids.pop(0) }}{% set a = n.ids + ['c'] %}{% set _ = a.extend(['d']) %}{% set _ = a.insert(0, 'e') %}"
        "{{ a }}{% set b = messages | list %}{% set _ = b.append(1) %}{{ b | length }}{{ messages | length }}"
    )
    messages = [{"role": "user", "content": text} for text in "ab"]
    assert ChatTemplate(source).render(messages) == "a['e', 'b', 'c', 'd']32"


@pytest.mark.parametrize(
    "change",
    [
        "messages.append(1)",
        "messages[0].tool_calls.append(1)",
        "messages[0].get('tool_calls').append(1)",
        "[messages][0].append(1)",
        "messages[0].update(role='system')",
        "[].clear()",
    ],
)
def test_what_it_was_given_it_cannot_change(change: str) -> None:
    messages: list[dict[str, Any]] = [{"role": "user", "content": "", "tool_calls": []}]
    with pytest.raises(TemplateBroken, match="unsafe"):
        ChatTemplate("{{ " + change + " }}").render(messages)
    assert messages == [{"role": "user", "content": "", "tool_calls": []}]


@pytest.mark.parametrize(
    "source",
    [
        "{% set a = [] %}{% set _ = a.append(a) %}{{ a }}",
        "{% set a = [] %}{% set b = [a] %}{% set _ = a.append({'b': (b,)}) %}{{ a }}",
        "{% set a = [1] %}{% for x in a %}{% set _ = a.append(x) %}{% endfor %}",
        "{% set a = [1] %}{% for x in range(99) %}{% set _ = a.extend(a + a) %}{% endfor %}",
        "{% set a = [] %}{% for x in range(99) %}{% set _ = a.append(['a' * 9000]) %}{% endfor %}{{ a }}",
    ],
)
def test_a_list_of_its_own_costs_what_it_holds(source: str) -> None:
    with pytest.raises(TemplateTooMuch):
        ChatTemplate(source, limits=SMALL).render([])


def test_a_number_that_python_does_not_read() -> None:
    with pytest.raises(TemplateBroken, match=r"vendor's: .*4300 digits"):
        ChatTemplate("{{ " + "9" * 5000 + " }}", name="vendor's").render([])


def test_what_templates_write_is_written() -> None:
    """What is not too much."""
    source = (
        "{{ 'Name: {}, {b:>4}'.format('x', b=3) }}|{{ '%-4s%03d' % ('a', 7) }}|{{ 'aXa' | replace(old='X', new='b') }}|"
        "{{ {'a': [1, 2]} | tojson(indent=1) }}|{{ {'a': 1} | tojson(separators=(',', ':')) }}|"
        "{{ 'é'.encode('UTF-8').decode() }}|{{ {'a': 1}.items() | list }}|{{ 'a b'.rsplit(' ', 1)[-1] }}|"
        "{{ [{'a': {'b': 2}}] | map(attribute='a.b') | first }}|{{ [1, 2] | select('in', [2]) | list }}"
    )
    assert ChatTemplate(source).render([]).split("|") == [
        "Name: x,    3",
        "a   007",
        "aba",
        '{\n "a": [\n  1,\n  2\n ]\n}',
        '{"a":1}',
        "é",
        "[('a', 1)]",
        "b",
        "2",
        "[2]",
    ]


def test_a_template_refuses_in_its_own_words() -> None:
    with pytest.raises(TemplateRefused, match=r"^x{1000}…$"):
        ChatTemplate("{{ raise_exception('x' * 9999) }}").render([])
    with pytest.raises(TemplateRefused, match=r"^No <s> for you$"):
        ChatTemplate("{{ raise_exception('No <s> for you') }}").render([])
    source = "{% if messages[0].content == 'no' %}{{ raise_exception('No <|im_end|> for you') }}{% endif %}"
    with pytest.raises(TemplateRefused, match=r"^No <\|im_end\|> for you$"):
        PromptBuilder(ChatTemplate(source), qwen3_encoder()).build([{"role": "user", "content": "no"}])


def test_nothing_is_left_behind_by_a_template_that_failed() -> None:
    threads = threading.active_count()
    with pytest.raises(TemplateTooMuch):
        ChatTemplate(ENDLESS["loops in loops"], limits=SMALL).render([])
    assert threading.active_count() == threads
    assert ChatTemplate("{{ 'a' * 10 }}").render([]) == "a" * 10
