"""A microphone: sound as it is recorded, by PortAudio (`sounddevice`, the extra `microphone`).

    async for samples in Microphone().sound():
        ...  # mono, 16 kHz

What is recorded waits in memory until it is read: none of it is dropped.
"""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import AsyncGenerator
from typing import Any

from ...errors import UnbraidError
from .decode import RATE, Samples
from .pcm import Resampler, read_pcm

_BLOCK = 0.1  # seconds
_ADVICE = "`python -m sounddevice` lists the devices; --live FILE takes a recording, and --live - standard input"


class Microphone:
    """One recording device. Raises `UnbraidError` where there is none.

    name: its number, or a part of its name; the system's default if there is none.
    """

    def __init__(self, name: str | None = None) -> None:
        self._library = _library()
        selector = int(name) if name is not None and name.isdecimal() else name
        try:
            device = self._library.query_devices(selector, "input")
        except (ValueError, self._library.PortAudioError) as error:
            which = "microphone" if name is None else f"microphone {name!r}"
            raise UnbraidError(f"there is no {which} ({error}): {_ADVICE}") from error
        self.name = str(device["name"])
        self._device = selector
        self._rate = self._usable_rate(round(device["default_samplerate"]))
        self._blocks: asyncio.Queue[bytes | None] = asyncio.Queue()

    def _usable_rate(self, own: int) -> int:
        """16 kHz where the device records that, or else its own rate."""
        try:
            self._library.check_input_settings(self._device, channels=1, dtype="int16", samplerate=RATE)
        except (ValueError, self._library.PortAudioError):
            return own
        return RATE

    def stop(self) -> None:
        """Record no more. What was recorded is still given."""
        self._blocks.put_nowait(None)

    async def sound(self) -> AsyncGenerator[Samples, None]:
        """What is recorded, until `stop`."""
        loop = asyncio.get_running_loop()

        def recorded(data: Any, *_: object) -> None:  # in PortAudio's thread
            loop.call_soon_threadsafe(self._blocks.put_nowait, bytes(data))

        resampler = None if self._rate == RATE else Resampler(self._rate, RATE)
        try:
            with self._library.RawInputStream(
                device=self._device,
                samplerate=self._rate,
                blocksize=round(self._rate * _BLOCK),
                channels=1,
                dtype="int16",
                callback=recorded,
            ):
                while (data := await self._blocks.get()) is not None:
                    samples = read_pcm(data)
                    yield samples if resampler is None else resampler.feed(samples)
        except self._library.PortAudioError as error:
            raise UnbraidError(f"{self.name} cannot be recorded ({error}): {_ADVICE}") from error


def _library() -> Any:
    try:
        return importlib.import_module("sounddevice")
    except ImportError as error:
        raise UnbraidError(f"a microphone needs sounddevice ({error}): pip install 'unbraid[microphone]'") from error
    except OSError as error:
        advice = "install it (Debian: apt install libportaudio2; macOS: brew install portaudio)"
        raise UnbraidError(f"a microphone needs PortAudio ({error}): {advice}") from error
