"""Which requests may enter llama.cpp, and when."""

from __future__ import annotations

import threading
from collections.abc import Callable

from unbraid.engines.llama_cpp.model import PromptQueue

from ..support.waiting import PATIENCE, wait_for


class Request:
    """A request whose thread tries to enter, as those of the engine do."""

    def __init__(self, prompts: PromptQueue, tokens: int) -> None:
        self.aborted = False
        self.entered: bool | None = None
        self._prompts = prompts
        self._thread = threading.Thread(target=self._enter, args=(tokens,), daemon=True)
        self._thread.start()

    def _enter(self, tokens: int) -> None:
        self.entered = self._prompts.enter(self, tokens)

    def abort(self) -> None:
        self.aborted = True
        self._prompts.wake()

    def done(self) -> bool | None:
        """Whether it entered, once it has tried."""
        self._thread.join(PATIENCE)
        return self.entered


def waiting(prompts: PromptQueue, count: int) -> Callable[[], bool]:
    return lambda: len(prompts._waiting) == count


def test_short_prompts_enter_together() -> None:
    prompts = PromptQueue(room=10)
    assert [Request(prompts, 4).done() for _ in range(3)] == [True] * 3
    Request(prompts, 4)
    wait_for(waiting(prompts, 1))


def test_a_long_prompt_keeps_others_out_until_it_is_nearly_read() -> None:
    prompts = PromptQueue(room=10)
    long = Request(prompts, 100)
    assert long.done()
    other = Request(prompts, 1)
    wait_for(waiting(prompts, 1))
    prompts.progress(long, 10)
    assert other.entered is None, "the rest of the long one fills a step"
    prompts.progress(long, 9)
    assert other.done()


def test_they_enter_in_the_order_in_which_they_came() -> None:
    prompts = PromptQueue(room=10)
    first = Request(prompts, 100)
    assert first.done()
    second = Request(prompts, 100)
    wait_for(waiting(prompts, 1))
    third = Request(prompts, 1)
    wait_for(waiting(prompts, 2))
    prompts.leave(first)
    assert second.done()
    assert waiting(prompts, 1)()
    prompts.leave(second)
    assert third.done()


def test_one_that_waits_is_aborted_at_once_and_lets_the_next_pass() -> None:
    prompts = PromptQueue(room=10)
    first = Request(prompts, 100)
    assert first.done()
    second = Request(prompts, 100)
    wait_for(waiting(prompts, 1))
    third = Request(prompts, 1)
    wait_for(waiting(prompts, 2))
    second.abort()
    assert second.done() is False
    prompts.leave(first)
    assert third.done()
