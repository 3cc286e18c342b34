"""Types of request fields, and the fields that dialects share."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

from msgspec import Meta, Struct

from ...caching import LocalDict
from ...engines.base import SAMPLING
from ..errors import ApiError
from ..limits import MOST

Temperature = Annotated[float, Meta(ge=0.0, le=2.0)]
Share = Annotated[float, Meta(ge=0.0, le=1.0)]
Penalty = Annotated[float, Meta(ge=-2.0, le=2.0)]
Count = Annotated[int, Meta(ge=1)]
Choices = Annotated[int, Meta(ge=1, le=128)]
Top = Annotated[int, Meta(ge=0, le=20)]
Budget = Annotated[int, Meta(ge=-1)]
"""How many tokens there may be; -1 for any number, as in vLLM."""
Seed = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
Ids = list[Annotated[int, Meta(ge=0)]]
Object = dict[str, Any]
MessageList = Annotated[list[Object], Meta(extra_json_schema={"maxItems": MOST["messages"]})]
ToolList = Annotated[list[Object], Meta(extra_json_schema={"maxItems": MOST["tools"]})]
"""Described with their limits; `limits.check_limits` checks these for all dialects."""


class StreamOptions(Struct):
    include_usage: bool | None = None
    continuous_usage_stats: bool | None = None
    include_obfuscation: bool | None = None


class ReasoningFields(Struct, forbid_unknown_fields=True):
    """How the model is to reason, as some clients write it."""

    effort: str | None = None
    max_tokens: Budget | None = None


class RequestFields(Struct, kw_only=True, dict=True):
    """What every request has."""

    PLANNED: ClassVar[tuple[str, ...]] = ()
    """The fields that may be large and that nobody looks at once the plan is made."""
    VARIES: ClassVar[str] = ""
    """The field in which the requests of an application differ, where all others are kept for the next one."""
    model: str | None = None

    @property
    def kept(self) -> dict[str, Any]:
        """What is kept for requests that differ from this one in `VARIES` alone."""
        kept: dict[str, Any] = self.__dict__.setdefault("kept", LocalDict())
        return kept


class SamplingFields(RequestFields, kw_only=True):
    """The fields that say how tokens are chosen. `null` means that a field is not given."""

    seed: Seed | None = None
    temperature: Temperature | None = None
    top_p: Share | None = None
    top_k: int | None = None
    min_p: Share | None = None
    presence_penalty: Penalty | None = None
    frequency_penalty: Penalty | None = None
    repetition_penalty: Annotated[float, Meta(ge=0.01, le=100.0)] | None = None

    def chosen_sampling(self) -> dict[str, Any]:
        """The values of `SAMPLING` that the request sets."""
        return {name: value for name in SAMPLING if (value := getattr(self, name)) is not None}


class GenerationFields(SamplingFields, kw_only=True):
    """The fields that chat and completions share."""

    stream: bool | None = None
    stream_options: StreamOptions | None = None
    n: Choices | None = None
    stop: str | list[str] | None = None
    stop_token_ids: list[int] | None = None
    logit_bias: dict[str, Annotated[float, Meta(ge=-100.0, le=100.0)]] | None = None
    max_tokens: Count | None = None
    response_format: Object | None = None
    return_token_ids: bool | None = None
    user: str | None = None
    metadata: dict[str, str] | None = None

    def stop_texts(self) -> tuple[str, ...]:
        stop = [self.stop] if isinstance(self.stop, str) else self.stop or []
        if "" in stop:
            raise ApiError(400, "stop: an empty text is everywhere; leave it out", param="stop")
        return tuple(stop)

    def token_bias(self) -> dict[int, float]:
        try:
            return {int(token): bias for token, bias in (self.logit_bias or {}).items()}
        except ValueError as error:
            raise ApiError(400, f"logit_bias: its keys are token ids ({error})", param="logit_bias") from error

    def wants_usage(self) -> bool:
        """Whether a stream is to end with the token counts."""
        return self.stream_options is not None and bool(self.stream_options.include_usage)

    def wants_running_usage(self) -> bool:
        """Whether each chunk of a stream is to have the token counts so far."""
        return (
            self.wants_usage() and self.stream_options is not None and bool(self.stream_options.continuous_usage_stats)
        )


def budget_of(tokens: int | None) -> int | None:
    """A budget of tokens; None for a negative one, which in vLLM means no limit."""
    return None if tokens is None or tokens < 0 else tokens


def template_kwargs(effort: str | None, more: Object | None) -> Object:
    """The template's variables for a degree of reasoning, and further ones, which win."""
    variables: Object = {}
    if effort is not None:
        variables["reasoning_effort"] = effort
        if effort == "none":  # templates with a switch and no degrees
            variables["enable_thinking"] = False
    return {**variables, **(more or {})}
