"""One response of a conversation: a turn of the model, told as events.

A turn is planned and run as in every dialect (`server.generation`); `Blocks` says which parts its output has. A part is
an item here: text, speech or a call. Speech has a transcript and, by the vocoder, sound, which may come later than the
words it is of: so an item of speech stays open, while calls begin and end, until more speech or the end of the response
closes it. Where the model writes text and a voice is loaded, text is speech, too: a `Narrator` reads it aloud.
Reasoning has no place in this dialect; its tokens are counted.

A response that is cancelled keeps what was sent of it. `conversation.truncate` cuts that to what was heard.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from ...core.events import Event, SpeechAudio
from ...speech.audio.decode import Samples
from ...speech.audio.pcm import Resampler, SoundFormat, write_sound
from ..api.fields import Object
from ..errors import ApiError, api_error_of
from ..generation.blocks import Block, Blocks, BlockStep
from ..generation.choice import Choice
from ..generation.updates import Update, Usage
from .conversation import SpokenText, VoiceConversation
from .event_writer import EventWriter, new_id
from .narrator import ChosenVoice, Narrator, ReadAloud, parts

Stop = Literal["client_cancelled", "turn_detected"]
_EVENT = {"text": "response.output_text", "speech": "response.output_audio_transcript"}


@dataclass
class _Item:
    """An item while it grows."""

    block: Block
    index: int
    item: Object
    spoken: SpokenText | None = None
    narrator: Narrator | None = None
    """Who reads it aloud, where the model does not speak itself."""
    broken_off: bool = False
    """Whether the reading was stopped, though the model may have written all."""

    @property
    def place(self) -> dict[str, Any]:
        return {"item_id": self.item["id"], "output_index": self.index, "content_index": 0}


class AudioDeltaWriter:
    """The sound of one reply, from the vocoder's rate to what the client wants."""

    def __init__(self, rate: int, format: SoundFormat) -> None:
        self._format = format
        self._half = b""
        self._resampler = None if rate == format.rate else Resampler(rate, format.rate)

    def feed(self, data: bytes) -> bytes:
        data = self._half + data
        whole = len(data) // 2 * 2
        self._half = data[whole:]
        return self.feed_samples(np.frombuffer(data[:whole], "<i2").astype(np.float32) / np.float32(32768))

    def finish(self) -> bytes:
        return b"" if self._resampler is None else write_sound(self._resampler.finish(), self._format.kind)

    def feed_samples(self, samples: Samples) -> bytes:
        resampled = samples if self._resampler is None else self._resampler.feed(samples)
        return write_sound(resampled, self._format.kind)


class Reply:
    """One response while it is made. `start` begins it, and `stop` ends it early."""

    def __init__(
        self,
        out: EventWriter,
        conversation: VoiceConversation,
        usage: Usage,
        described: dict[str, Any],
        format: SoundFormat,
        sound_rate: int,
        *,
        voice: ChosenVoice | None = None,
        kept: bool = True,
    ) -> None:
        """voice: reads aloud what the model writes.
        kept: whether its items become part of the conversation.
        """
        self._voice = voice
        self._out = out
        self._conversation = conversation
        self.usage = usage
        self._kept = kept
        self._blocks = Blocks(speech_apart=True)
        self._sound = AudioDeltaWriter(sound_rate, format)
        self._format = format
        self._items: list[_Item] = []
        self._speech: _Item | None = None
        """The item whose sound may still come."""
        self._stopped_by: Stop | None = None
        self.task: asyncio.Task[None] | None = None
        self.response: dict[str, Any] = {
            "object": "realtime.response",
            "id": new_id("resp"),
            "status": "in_progress",
            "status_details": None,
            "output": [],
            "conversation_id": conversation.id if kept else None,
            "usage": None,
            **described,
        }

    @property
    def running(self) -> bool:
        return bool(self.response["status"] == "in_progress")

    async def stop(self, reason: Stop) -> None:
        """End it, and wait until that is told."""
        if self.task is not None and self.running and self._stopped_by is None:
            self._stopped_by = reason
            self.task.cancel()
            await asyncio.wait([self.task])

    async def start(self, choose: Callable[[], Awaitable[Choice]]) -> None:
        """Make it, in a task. `choose` may wait for what the user has said: the client knows of it before that."""
        self.task = asyncio.create_task(self._run(choose))
        await asyncio.sleep(0)  # a task that is cancelled before it has begun would tell nobody

    async def _run(self, choose: Callable[[], Awaitable[Choice]]) -> None:
        try:
            await self._event_of_response("response.created")
            choice = await choose()
            async with aclosing(choice.updates()) as updates:
                async for update in updates:
                    await self._update(update)
        except asyncio.CancelledError:
            if self._stopped_by is None:
                raise
            task = asyncio.current_task()
            assert task is not None
            task.uncancel()
            await self._silence()
            await self._close_all(cut_off=True)
            await self._done("cancelled", {"type": "cancelled", "reason": self._stopped_by})
        except OSError:
            pass  # the client has left
        except Exception as error:
            await self._silence()
            await self.fail(api_error_of(error))
        finally:
            await self._silence()

    async def _silence(self) -> None:
        """Nothing more is read aloud."""
        if self._speech is not None and self._speech.narrator is not None:
            await self._speech.narrator.close()
            self._speech.narrator, self._speech.broken_off = None, True

    async def fail(self, error: ApiError) -> None:
        """It has failed. What has come stays."""
        await self._close_all(cut_off=True)
        fields = {name: error.body()["error"][name] for name in ("type", "code", "message")}
        await self._done("failed", {"type": "failed", "error": fields})

    async def _update(self, update: Update) -> None:
        await self._feed(update.events)
        if update.sound:
            await self._say(self._sound.feed(update.sound))
        if update.end is None:
            return
        cut_off = update.end == "length"
        if self._voice is None:
            await self._say(self._sound.finish())
        await self._close_all(cut_off=cut_off)
        if cut_off:
            await self._done("incomplete", {"type": "incomplete", "reason": "max_output_tokens"})
        else:
            await self._done("completed", {"type": "completed"})

    async def _feed(self, events: Sequence[Event]) -> None:
        for event in events:
            await self._tell(self._blocks.feed((event,)))
            if isinstance(event, SpeechAudio) and self._speech is not None and self._speech.spoken is not None:
                self._speech.spoken.codes += len(event.codes)

    async def _tell(self, steps: Iterable[BlockStep]) -> None:
        for kind, block, text in steps:
            if block.kind == "reasoning":
                continue
            if kind == "open":
                await self._open(block)
            elif kind == "delta":
                await self._delta(self._items[-1], text)
            else:
                await self._close(self._items[-1])

    # Items

    async def _open(self, block: Block) -> None:
        is_spoken = self._is_spoken(block)
        if is_spoken and self._speech is not None:
            await self._end(self._speech)
        item: Object = {"id": new_id("item"), "object": "realtime.item", "type": "message", "status": "in_progress"}
        if block.kind == "call":
            item |= {"type": "function_call", "call_id": block.call_id, "name": block.name, "arguments": ""}
        else:
            item |= {"role": "assistant", "content": []}
        growing = _Item(block, len(self._items), item, SpokenText() if is_spoken else None)
        self._items.append(growing)
        self.response["output"].append(item)
        await self._event("response.output_item.added", output_index=growing.index, item=item)
        if self._kept:
            before = self._conversation.add(item)
            await self._out.event("conversation.item.added", previous_item_id=before, item=item)
            if growing.spoken is not None:
                self._conversation.spoken[item["id"]] = growing.spoken
        if growing.spoken is not None:
            self._speech = growing
            part = {"type": "audio", "transcript": ""}
            await self._event("response.content_part.added", **growing.place, part=part)
            if block.kind == "text" and self._voice is not None:
                growing.narrator = Narrator(self._voice, self._tell_read)
        elif block.kind == "text":
            await self._event("response.content_part.added", **growing.place, part={"type": "text", "text": ""})

    async def _delta(self, growing: _Item, text: str) -> None:
        if growing.block.kind == "call":
            place = {"item_id": growing.item["id"], "output_index": growing.index, "call_id": growing.block.call_id}
            await self._event("response.function_call_arguments.delta", **place, delta=text)
            return
        if growing.spoken is not None and growing.block.kind == "text":
            if growing.narrator is not None:
                growing.narrator.write(text)
            return
        if growing.spoken is not None:
            growing.spoken.said(text)
        await self._event(f"{_EVENT[growing.block.kind]}.delta", **growing.place, delta=text)

    def _is_spoken(self, block: Block) -> bool:
        return block.kind == "speech" or (block.kind == "text" and self._voice is not None)

    async def _tell_read(self, read: ReadAloud) -> None:
        """What was read aloud, by the narrator's task."""
        growing, voice = self._speech, self._voice
        assert growing is not None
        assert growing.spoken is not None
        assert voice is not None
        rate = voice.speaker.rate
        growing.spoken.read(read.text, 1000 * len(read.sound) / rate, 1000 * read.total / rate)
        if read.text:
            await self._event("response.output_audio_transcript.delta", **growing.place, delta=read.text)
        for part in parts(read.sound, rate):
            await self._say(self._sound.feed_samples(part))

    async def _say(self, sound: bytes) -> None:
        """Sound belongs to the speech that came last."""
        if not sound or self._speech is None or self._speech.spoken is None:
            return
        self._speech.spoken.ms += 1000 * self._format.seconds(len(sound))
        delta = base64.b64encode(sound).decode()
        await self._event("response.output_audio.delta", **self._speech.place, delta=delta)

    async def _close(self, growing: _Item) -> None:
        """The block is closed. Speech waits for the rest of its sound."""
        if growing is not self._speech:
            await self._end(growing)

    async def _end(self, growing: _Item) -> None:
        block, item = growing.block, growing.item
        if growing.narrator is not None:
            await growing.narrator.finish()
            growing.narrator = None
            await self._say(self._sound.finish())
        text = block.text
        item["status"] = "completed" if block.complete and not growing.broken_off else "incomplete"
        if block.kind == "call":
            item["arguments"] = text
            if not block.complete:
                # It cannot be run. What the model wrote stays, as text.
                del item["call_id"], item["name"], item["arguments"]
                part = {"type": "output_text", "text": block.raw or f"{block.name} {text}"}
                item |= {"type": "message", "role": "assistant", "content": [part]}
            else:
                place = {"item_id": item["id"], "output_index": growing.index, "call_id": block.call_id}
                done = {"name": block.name, "arguments": text}
                await self._event("response.function_call_arguments.done", **place, **done)
        elif growing.spoken is not None:
            self._speech = None
            item["content"] = [{"type": "output_audio", "transcript": growing.spoken.text}]
            await self._event("response.output_audio.done", **growing.place)
            await self._event("response.output_audio_transcript.done", **growing.place, transcript=growing.spoken.text)
            part = {"type": "audio", "transcript": growing.spoken.text}
            await self._event("response.content_part.done", **growing.place, part=part)
        else:
            item["content"] = [{"type": "output_text", "text": text}]
            await self._event("response.output_text.done", **growing.place, text=text)
            await self._event("response.content_part.done", **growing.place, part={"type": "text", "text": text})
        await self._event("response.output_item.done", output_index=growing.index, item=item)
        if self._kept:
            before = self._conversation.before(item["id"])
            await self._out.event("conversation.item.done", previous_item_id=before, item=item)

    async def _close_all(self, *, cut_off: bool) -> None:
        await self._tell(self._blocks.finish(cut_off))
        if self._speech is not None:
            await self._end(self._speech)

    async def _done(self, status: str, details: dict[str, Any]) -> None:
        self.response |= {"status": status, "status_details": details, "usage": usage_of(self.usage)}
        await self._event_of_response("response.done")

    async def _event(self, kind: str, **fields: Any) -> None:
        await self._out.event(kind, response_id=self.response["id"], **fields)

    async def _event_of_response(self, kind: str) -> None:
        await self._out.event(kind, response=self.response)


def usage_of(usage: Usage) -> dict[str, Any]:
    sound = (usage.strands or {}).get("audio", 0)
    return {
        "total_tokens": usage.prompt + usage.completion,
        "input_tokens": usage.prompt,
        "output_tokens": usage.completion,
        "input_token_details": {"cached_tokens": usage.cached, "text_tokens": usage.prompt, "audio_tokens": 0},
        "output_token_details": {"text_tokens": usage.completion - sound, "audio_tokens": sound},
    }
