"""Charges the tokens of a request to the client that sent it, also where the client leaves before the end.

A meter that lets a request in (`Meter.ask`) is the one of its task, and every generation that is begun there finds it
(`Meter.current`), in tasks that go on in the background too. So a dialect has nothing to do with it.

A prompt is charged when its generation begins: once, however many choices there are. What is written is charged when
the generation ends, in whatever way. Where the engine counts tokens itself, its count is the one; until then, and
for good if the client leaves, tokens are counted as they come, and text that has no tokens as four characters each.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from contextvars import ContextVar
from dataclasses import dataclass, field

from ...engines import Finish, Generation, Piece
from .rate_headers import refusal
from .rates import Rates

_CHARACTERS = 4
"""Of a text that stand for a token, where only the engine knows the tokenizer."""


@dataclass(slots=True)
class Meter:
    """Who pays for a request."""

    rates: Rates
    client: str
    _prompts: dict[str | tuple[int, ...], int] = field(default_factory=dict, init=False)
    """What was charged for the prompts so far."""

    @staticmethod
    def current() -> Meter | None:
        return _current.get()

    def count(self, generation: Generation, outputs: AsyncGenerator[Piece | Finish, None]) -> Metered:
        """The same outputs, counted."""
        return _counted(self, generation.prompt, outputs)

    def charge_prompt(self, prompt: str | tuple[int, ...], tokens: int) -> None:
        """That a prompt has so many tokens. What was charged for it before is settled."""
        self.rates.charge(self.client, tokens - self._prompts.get(prompt, 0))
        self._prompts[prompt] = tokens

    def knows(self, prompt: str | tuple[int, ...]) -> bool:
        """Whether a prompt was charged."""
        return prompt in self._prompts

    def ask(self) -> None:
        """Take one request. Raises `ApiError` where the client has to wait."""
        standings = self.rates.ask(self.client)
        if any(each.wait for each in standings):
            raise refusal(standings)
        _current.set(self)


Metered = AsyncGenerator[Piece | Finish, None]
_current: ContextVar[Meter | None] = ContextVar("meter", default=None)


async def _counted(meter: Meter, prompt: str | tuple[int, ...], outputs: Metered) -> Metered:
    if not meter.knows(prompt):
        meter.charge_prompt(prompt, _tokens(prompt))
    written = 0
    try:
        async with aclosing(outputs):
            async for output in outputs:
                if isinstance(output, Finish):
                    meter.charge_prompt(prompt, output.prompt_tokens or _tokens(prompt))
                    written = output.completion_tokens or written
                else:
                    written += len(output.ids) or _tokens(output.text or "")
                yield output
    finally:
        meter.rates.charge(meter.client, written)


def _tokens(text: str | tuple[int, ...]) -> int:
    return -(-len(text) // _CHARACTERS) if isinstance(text, str) else len(text)
