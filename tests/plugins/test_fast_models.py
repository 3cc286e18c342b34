"""Messages made quickly are those that pydantic makes."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel, ConfigDict, Field, PrivateAttr

from unbraid.plugins.fast_models import unvalidated


class Function(BaseModel):
    name: str | None = None
    arguments: str | None = None


class Call(BaseModel):
    model_config = ConfigDict(extra="allow")
    index: int
    function: Function | None = None


class Delta(BaseModel):
    model_config = ConfigDict(extra="allow")
    content: str | None = None
    calls: list[Call] = Field(default_factory=list)


class Private(BaseModel):
    text: str
    _seen: int = PrivateAttr(default=0)


class Odd(BaseModel):
    text: str
    also: tuple[int, ...] = (1, 2)


def of_content(text: str) -> Any:
    return Delta(content=text)


def of_arguments(call: int, text: str) -> Any:
    return Delta(calls=[Call(index=call, function=Function(arguments=text))])


def private(text: str) -> Any:
    return Private(text=text)


def odd(text: str) -> Any:
    return Odd(text=text)


def not_a_model(text: str) -> Any:
    return {"text": text}


@pytest.mark.parametrize(
    ("make", "example", "values"),
    [
        (of_content, ("a text",), ("é\n'\"",)),
        (of_arguments, (7, "a text"), (0, "7")),
        (of_arguments, (7, "x"), (7, "")),
    ],
)
def test_unvalidated_messages_are_real_ones(make: Any, example: tuple[Any, ...], values: tuple[Any, ...]) -> None:
    made = unvalidated(make, *example)
    assert made is not make
    one, real = made(*values), make(*values)
    assert one == real
    assert repr(one) == repr(real)
    assert one.model_fields_set == real.model_fields_set
    assert one.model_dump_json(exclude_unset=True) == real.model_dump_json(exclude_unset=True)


def test_messages_share_nothing() -> None:
    made = unvalidated(of_content, "a text")
    one, other = made("a"), made("b")
    one.calls.append(Call(index=1))
    one.content = "c"
    one.more = 1
    assert other == Delta(content="b")
    assert other.model_fields_set == {"content"}
    assert one.model_fields_set == {"content", "more"}


@pytest.mark.parametrize("make", [private, odd, not_a_model])
def test_what_is_not_known_is_made_as_before(make: Any) -> None:
    """Private attributes, values of other kinds, other types than pydantic's."""
    assert unvalidated(make, "a text") is make
