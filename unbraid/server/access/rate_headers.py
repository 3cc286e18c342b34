"""What is left of a client's limits, as headers and as the refusal, in the words of each vendor.

OpenAI has `x-ratelimit-remaining-requests: 59` and times such as `6m0s`; Anthropic has
`anthropic-ratelimit-requests-remaining: 59` and times of day. `Retry-After` is the same in both.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from ..errors import ApiError
from .rates import Standing


def openai_headers(standings: Sequence[Standing]) -> dict[str, str]:
    found = {}
    for each in standings:
        found[f"x-ratelimit-limit-{each.counted}"] = str(each.limit)
        found[f"x-ratelimit-remaining-{each.counted}"] = str(each.remaining)
        found[f"x-ratelimit-reset-{each.counted}"] = duration(each.reset)
    return found


def anthropic_headers(standings: Sequence[Standing]) -> dict[str, str]:
    found = {}
    now = datetime.now(UTC)
    for each in standings:
        prefix = f"anthropic-ratelimit-{each.counted}"
        found[f"{prefix}-limit"] = str(each.limit)
        found[f"{prefix}-remaining"] = str(each.remaining)
        reset = now + timedelta(seconds=each.reset)
        found[f"{prefix}-reset"] = reset.isoformat(timespec="seconds").replace("+00:00", "Z")
    return found


def duration(seconds: float) -> str:
    """As Go writes it, and OpenAI: `120ms`, `8.64s`, `6m0s`, `1h0m0s`."""
    if seconds < 1:
        return f"{round(seconds * 1000)}ms"
    minutes, rest = divmod(round(seconds, 2), 60)
    hours, minutes = divmod(int(minutes), 60)
    text = f"{round(rest, 2):g}s"
    if hours:
        return f"{hours}h{minutes}m{text}"
    return f"{minutes}m{text}" if minutes else text


def refusal(standings: Sequence[Standing]) -> ApiError:
    """What a client is told that has to wait."""
    worst = max(standings, key=lambda each: each.wait)
    message = (
        f"Rate limit reached for {worst.counted}: {worst.limit} a minute for each client. "
        f"Please try again in {duration(worst.wait)}."
    )
    return ApiError(429, message, code="rate_limit_exceeded", kind=worst.counted, retry_after=worst.wait)
