"""Detection: nothing is guessed, and hostile templates are errors."""

from __future__ import annotations

import pytest

import unbraid
from unbraid import UnbraidError

from .templates import CHATML, ENDLESS, SYNTHETIC


def test_tools_without_calls() -> None:
    found = unbraid.detect("{% if tools %}{{ tools | tojson }}{% endif %}" + CHATML)
    assert (found.format, found.verified) == (None, False)
    assert found.reasons == ("the template tells the model of tools, but does not write the calls of earlier turns",)


def test_reasoning_that_is_only_known_by_name() -> None:
    text = "{% for m in messages %}[{{ m.role }}]{{ m.content.split('</think>')[-1] }}[end]{% endfor %}"
    found = unbraid.detect(text)
    assert (found.name, found.verified, found.how) == ("think", False, "markers")


def test_a_template_that_takes_no_assistant() -> None:
    text = (
        "{% for m in messages %}{% if m.role == 'assistant' %}{{ raise_exception('Not here.') }}{% endif %}"
        "{{ m.content }}{% endfor %}"
    )
    found = unbraid.detect(text)
    assert (found.format, found.verified) == (None, False)
    assert "Not here." in found.reasons[-1]


HOSTILE = {
    "raises": ("{{ raise_exception('Go away.') }}", "Go away."),
    "a loop without end": (ENDLESS, "steps"),
    "a loop where there are calls": (
        CHATML + "{% if messages[-1].tool_calls %}" + ENDLESS + "{% endif %}",
        "steps",
    ),
    "output without end": ("{% set x = 'x' * 99999 %}{% for i in range(99999) %}{{ x }}{% endfor %}", "characters"),
    "a list without end": ("{{ [0] * 99999999 }}", "does too much"),
    "calls itself": ("{% macro again() %}{{ again() }}{% endmacro %}{{ again() }}", "without end"),
    "nests too deep": ("{{ " + "(" * 5000 + "1" + ")" * 5000 + " }}", "nests too deep"),
    "five megabytes": (CHATML + "x" * 5_000_000, "5,000,0"),
    "a turn without end": (CHATML + "{{ 'x y ' * 9999 }}", "of a few words"),
    "too large to be a template": (CHATML + "{{ a }}" * 30_000, "100,000 are the most"),
    "no template at all": ("It was a dark and stormy night.", "no chat template"),
    "nothing": ("", "no chat template"),
    "broken": ("{% for m in messages %}", "Unexpected end of template"),
    "reaches out": ("{{ ''.__class__.__mro__ }}", "unsafe"),
    "a number without end": ("{{ " + "9" * 50_000 + " }}", "digits"),
    "constants without end": ("{{''|center(999999)}}" * 2_000, "characters"),
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_a_hostile_template_is_an_error(kind: str) -> None:
    text, said = HOSTILE[kind]
    with pytest.raises(UnbraidError, match=said):
        unbraid.detect(text)


def test_variables_that_a_template_cannot_do_without() -> None:
    text = "{{ 'Today is ' + date_of_today }}" + SYNTHETIC["JSON in tags"]
    assert unbraid.detect(text).how == "derived"
