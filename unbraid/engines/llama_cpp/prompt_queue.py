"""Which requests may enter llama.cpp now, so that each of them can be aborted within a step.

llama.cpp fills each step with prompt tokens, slot by slot. While one slot has a long prompt, the slots after it are not
even begun: they say nothing, and a request that says nothing cannot be aborted, since only its callback can cancel it.
It would hold its slot until all of the other prompt has been read, which takes minutes on a slow machine.

So a request waits here, where it can be aborted at once, until the prompts that are being read leave room in the next
step. From then on llama.cpp reports its progress after every step. Short prompts still share a step; a long one is read
beside nothing but generation, which does not make it slower.
"""

from __future__ import annotations

import threading
from collections import deque
from typing import Protocol


class Abortable(Protocol):
    """A request that may be given up at any time."""

    @property
    def aborted(self) -> bool: ...


class PromptQueue:
    """First come, first served. Its methods may be called from any thread.

    room: how many prompt tokens fit into one step, at least.
    """

    def __init__(self, room: int) -> None:
        self._room = room
        self._waiting: deque[Abortable] = deque()
        self._unread: dict[Abortable, int] = {}
        """For each request that is in: how many tokens of its prompt are still to be read."""
        self._changed = threading.Condition()

    def enter(self, request: Abortable, tokens: int) -> bool:
        """Wait until a request with so long a prompt may enter. False if it was aborted before."""
        with self._changed:
            self._waiting.append(request)
            self._changed.wait_for(lambda: request.aborted or self._is_next(request))
            self._waiting.remove(request)
            if not request.aborted:
                self._unread[request] = tokens
            self._changed.notify_all()
            return request in self._unread

    def _is_next(self, request: Abortable) -> bool:
        return self._waiting[0] is request and sum(self._unread.values()) < self._room

    def progress(self, request: Abortable, unread: int) -> None:
        """So many tokens of the prompt of `request`, which has entered, are still to be read."""
        with self._changed:
            if self._unread[request] != unread:
                self._unread[request] = unread
                self._changed.notify_all()

    def leave(self, request: Abortable) -> None:
        """llama.cpp is done with a request that had entered."""
        with self._changed:
            del self._unread[request]
            self._changed.notify_all()

    def wake(self) -> None:
        """Some request was aborted."""
        with self._changed:
            self._changed.notify_all()
