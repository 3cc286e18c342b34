"""A session: one client's events read and answered, in the order in which they come.

Three things go on at once: the client's events are read (`run`), utterances are heard (`input_audio`), and at most one
response is made (`reply`). All of them write events, and wait where the client does not read. An event that is wrong is
answered by an `error` with its `event_id`, and changes nothing; the session goes on.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import suppress
from functools import partial
from typing import Any

import msgspec
from starlette.types import Receive

from ...errors import Place
from ...speech.audio.decode import RATE as SAMPLE_RATE
from ...speech.audio.pcm import SoundFormat, SoundReader, pcm_bytes
from ...speech.options import TranscriptionOptions
from ..access.rates import Quota
from ..api.fields import Object, template_kwargs
from ..errors import ApiError, api_error_of
from ..generation.choice import Choice
from ..generation.plan import Plan, plan_chat
from ..generation.task import ChatTask
from ..generation.updates import Usage
from ..model import Model, Served
from ..service import Service
from .conversation import VoiceConversation, read_base64, read_item
from .event_writer import EventWriter, new_id
from .input_audio import InputAudio, Utterance
from .narrator import ChosenVoice
from .options import OptionsReader, SessionOptions
from .reply import Reply

_RATE = 24_000
_CONVERSATION = Place(text="conversation")
"""Samples a second where there is no sound."""


class ClientGone(Exception):
    """The client has ended the session."""


async def next_message(receive: Receive) -> dict[str, Any]:
    """The next event of the client. Raises `ApiError` for what is none, `ClientGone` at the end."""
    message = await receive()
    if message["type"] == "websocket.disconnect":
        raise ClientGone
    text = message.get("text")
    if text is None:
        raise ApiError(400, "events are JSON in text frames, not binary ones", code="invalid_json")
    try:
        event = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError) as error:
        raise ApiError(400, f"the event is not JSON: {error}", code="invalid_json") from error
    if not isinstance(event, dict) or not isinstance(event.get("type"), str):
        raise ApiError(400, "an event is an object with a type", param="type", code="invalid_event")
    return event


class RealtimeSession:
    """One session of OpenAI's dialect. `served` is None where it only transcribes."""

    def __init__(self, service: Service, served: Served | None, options: SessionOptions, out: EventWriter) -> None:
        self._service = service
        self._served = served
        self._out = out
        self.id = new_id("sess")
        self.options = options
        self._reader = reader_for(service, served)
        self.conversation = VoiceConversation(service.max_audio)
        hears = served is not None and served.model.hears
        self.audio = InputAudio(service.transcriber, options, self, keep=hears)
        self.reply: Reply | None = None
        self._waiting: asyncio.Task[None] | None = None
        """A response that waits for a transcript."""

    @property
    def busy(self) -> bool:
        """Whether something is being made for the client."""
        waiting = self._waiting is not None and not self._waiting.done()
        replying = waiting or (self.reply is not None and self.reply.running)
        return replying or bool(self.audio.unfinished) or self.audio.open is not None

    async def begin(self) -> None:
        # vLLM's clients look for `id` and `created` in the event itself.
        await self._out.event("session.created", id=self.id, created=int(time.time()), session=self._described())
        if self.options.kind == "realtime":
            described = {"id": self.conversation.id, "object": "realtime.conversation"}
            await self._out.event("conversation.created", conversation=described)

    def _described(self) -> dict[str, Any]:
        return self.options.described(self.id, beta=self._out.beta)

    async def take(self, event: Mapping[str, Any]) -> None:
        """Answer an event of the client."""
        try:
            handle = _HANDLERS.get(event["type"])
            if handle is None:
                names = ", ".join(_HANDLERS)
                message = f"there is no event {event['type']!r:.80} here; there are {names}"
                raise ApiError(400, message, param="type", code="unknown_event")
            await handle(self, event)
        except OSError:
            raise
        except Exception as error:
            await self._out.error(api_error_of(error), event.get("event_id"))

    async def close(self) -> None:
        """Give up all that is being made."""
        for task in (self._waiting, self.reply.task if self.reply is not None else None):
            if task is not None:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
        await self.audio.close()

    # The session

    async def _update(self, event: Mapping[str, Any]) -> None:
        options = self._reader.updated(self.options, event.get("session"))
        if options.transcription is not None and self._service.transcriber is not None:
            self._service.transcriber.check(options.transcription.options)
        self.options = options
        self.audio.change(options)
        beta = event["type"].startswith("transcription_session")
        await self._out.event("transcription_session.updated" if beta else "session.updated", session=self._described())

    # Sound

    async def _append(self, event: Mapping[str, Any]) -> None:
        await self.audio.append(read_base64(event.get("audio"), "audio"))

    async def _commit(self, event: Mapping[str, Any]) -> None:
        await self.audio.commit()

    async def _clear(self, event: Mapping[str, Any]) -> None:
        await self.audio.clear()
        await self._out.event("input_audio_buffer.cleared")

    async def started(self, utterance: Utterance, seconds: float) -> None:
        detection = self.options.turn_detection
        place = {"audio_start_ms": round(1000 * seconds), "item_id": utterance.id}
        await self._out.event("input_audio_buffer.speech_started", **place)
        if detection is None or not detection.interrupt_response:
            return
        if self._waiting is not None:
            self._waiting.cancel()  # what was said goes on
        if self.reply is not None:
            await self.reply.stop("turn_detected")

    async def stopped(self, utterance: Utterance, seconds: float) -> None:
        place = {"audio_end_ms": round(1000 * seconds), "item_id": utterance.id}
        await self._out.event("input_audio_buffer.speech_stopped", **place)

    async def committed(self, utterance: Utterance, by_detector: bool) -> None:
        before = self.conversation.last_id
        await self._out.event("input_audio_buffer.committed", previous_item_id=before, item_id=utterance.id)
        part: Object = {"type": "input_audio", "transcript": None}
        item: Object = {"id": utterance.id, "object": "realtime.item", "type": "message", "status": "completed"}
        item |= {"role": "user", "content": [part]}
        if self.options.kind == "transcription":
            self.conversation.items = self.conversation.items[-1:]  # nobody asks for them
        elif utterance.kept:
            self.conversation.keep_sound(utterance.id, b"".join(utterance.kept))
        utterance.kept = []
        self.conversation.add(item)
        await self._out.event("conversation.item.added", previous_item_id=before, item=item)
        await self._out.event("conversation.item.done", previous_item_id=before, item=item)
        detection = self.options.turn_detection
        creates = by_detector and detection is not None and detection.create_response
        if creates and self.options.kind == "realtime":
            self._respond_after(utterance)

    def _respond_after(self, utterance: Utterance) -> None:
        """Make a response to what was said: at once if the model hears, otherwise once it is transcribed."""

        async def respond() -> None:
            if not self._hears and utterance.task is not None:
                await asyncio.wait([utterance.task])
                if utterance.error is None and not utterance.text.strip():
                    return  # a noise: nobody said anything
            with suppress(OSError):
                await self.take({"type": "response.create"})

        self._wait_for(respond())

    @property
    def _hears(self) -> bool:
        return self._served is not None and self._served.model.hears

    def _wait_for(self, work: Coroutine[Any, Any, None]) -> None:
        """Do this in the place of what waits now."""
        if self._waiting is not None and self._waiting is not asyncio.current_task():
            self._waiting.cancel()
        self._waiting = asyncio.create_task(work)

    async def heard(self, utterance: Utterance, text: str) -> None:
        if not self._tells:
            return
        place = {"item_id": utterance.id, "content_index": 0}
        await self._out.event("conversation.item.input_audio_transcription.delta", **place, delta=text)

    async def transcribed(self, utterance: Utterance) -> None:
        kind = "conversation.item.input_audio_transcription"
        place = {"item_id": utterance.id, "content_index": 0}
        hearing = utterance.hearing
        if hearing is None:
            return
        if utterance.error is None:
            with suppress(ApiError):  # it may have been deleted
                for part in self.conversation.get(utterance.id)["content"]:
                    part["transcript"] = hearing.text
        if not self._tells:
            return
        if utterance.error is not None:
            fields = {name: utterance.error.body()["error"][name] for name in ("type", "code", "message", "param")}
            await self._out.event(f"{kind}.failed", **place, error=fields)
            return
        await self._out.event(
            f"{kind}.completed",
            **place,
            transcript=hearing.text,
            usage={"type": "duration", "seconds": round(utterance.seconds, 3)},
            **({"languages": [{"code": code} for code in hearing.languages]} if hearing.languages else {}),
        )

    @property
    def _tells(self) -> bool:
        """Whether the client is told the words of the user."""
        return self.options.transcription is not None and self.options.transcription.told

    # Items

    async def _create_item(self, event: Mapping[str, Any]) -> None:
        item, sound = read_item(event.get("item"), "item")
        if any(one["id"] == item["id"] for one in self.conversation.items):
            raise ApiError(400, f"item.id: there is an item {item['id']!r:.80} already", param="item.id")
        if sound is not None:
            reader = SoundReader(self.options.input_format)
            self.conversation.keep_sound(item["id"], pcm_bytes(reader.feed(sound)) + pcm_bytes(reader.finish()))
        before = self.conversation.add(item, event.get("previous_item_id"))
        await self._out.event("conversation.item.added", previous_item_id=before, item=item)
        await self._out.event("conversation.item.done", previous_item_id=before, item=item)

    async def _delete_item(self, event: Mapping[str, Any]) -> None:
        self.conversation.delete(event.get("item_id"))
        await self._out.event("conversation.item.deleted", item_id=event.get("item_id"))

    async def _retrieve_item(self, event: Mapping[str, Any]) -> None:
        await self._out.event("conversation.item.retrieved", item=self.conversation.retrieved(event.get("item_id")))

    async def _truncate_item(self, event: Mapping[str, Any]) -> None:
        id, ms = event.get("item_id"), event.get("audio_end_ms")
        reply = self.reply
        if reply is not None and reply.running and any(item["id"] == id for item in reply.response["output"]):
            await reply.stop("client_cancelled")  # what comes after it was not heard either
        self.conversation.truncate(id, event.get("content_index", 0), ms)
        place = {"item_id": id, "content_index": 0, "audio_end_ms": ms}
        await self._out.event("conversation.item.truncated", **place)

    # Responses

    async def _cancel(self, event: Mapping[str, Any]) -> None:
        response_id = event.get("response_id")
        reply = self.reply
        if response_id is None and self._waiting is not None and not self._waiting.done():
            self._waiting.cancel()  # it had not begun
            return
        if reply is None or not reply.running or response_id not in (None, reply.response["id"]):
            raise ApiError(400, "there is no such response to be cancelled", code="response_cancel_not_active")
        await reply.stop("client_cancelled")

    async def _respond(self, event: Mapping[str, Any]) -> None:
        if self._served is None:
            message = "this session only transcribes: connect with the model that is to answer"
            raise ApiError(400, message, code="unsupported")
        if self.reply is not None and self.reply.running:
            message = f"the conversation has a response in progress ({self.reply.response['id']}): wait, or cancel it"
            raise ApiError(400, message, code="conversation_already_has_active_response")
        fields = event.get("response") or {}
        options = self._reader.for_response(self.options, fields)
        quota = Quota.current()
        if quota is not None:
            await quota.ask()
        if self._waiting is not None and self._waiting is not asyncio.current_task():
            self._waiting.cancel()  # this is the answer to it
        items = self._items(fields)
        unheard = [] if self._hears else self.conversation.unheard([item for item, _ in items])
        hearing = [] if self._hears or fields.get("input") is not None else self.audio.committed_tasks()
        reply = self._reply(self._served, fields, options)
        choose = partial(self._choice, self._served, reply, options, items)
        if hearing or (unheard and self._service.transcriber is not None):
            choose = partial(self._once_heard, choose, unheard, hearing)
        else:
            choose = partial(_given, await choose())  # what cannot be planned is an error of the event
        self.reply = reply
        await reply.start(choose)

    async def _once_heard(
        self,
        choose: Callable[[], Awaitable[Choice]],
        unheard: list[tuple[Object, bytes]],
        hearing: list[asyncio.Task[None]],
    ) -> Choice:
        """Choose when all that the user has said is text. The client's events are read meanwhile."""
        if hearing:
            await asyncio.wait(hearing)
        for part, sound in unheard:
            part["transcript"] = await self._transcript(sound)
        return await choose()

    async def _transcript(self, sound: bytes) -> str:
        """The words of an item's sound."""
        transcriber, heard = self._service.transcriber, self.options.transcription
        assert transcriber is not None
        reader = SoundReader(SoundFormat("pcm", SAMPLE_RATE))
        samples = [reader.feed(sound), reader.finish()]
        options = TranscriptionOptions() if heard is None else heard.options
        return (await transcriber.transcribe(samples, options)).text

    def _items(self, fields: Mapping[str, Any]) -> list[tuple[Object, Place]]:
        """The items that are answered, each with what the client calls it."""
        if fields.get("input") is None:
            return [(item, Place(text=f"item {item['id']}")) for item in self.conversation.items]
        places = [Place("response", "input", at) for at, _ in enumerate(fields["input"])]
        return [(self._given_item(*one), one[1]) for one in zip(fields["input"], places, strict=True)]

    def _reply(self, served: Served, fields: Mapping[str, Any], options: SessionOptions) -> Reply:
        """A response that nobody was told of."""
        sound = options.described(self.id)["audio"]["output"]
        described = {
            "output_modalities": list(options.output_modalities),
            "max_output_tokens": options.max_output_tokens or "inf",
            "metadata": fields.get("metadata"),
            "audio": {"output": {"format": sound["format"], "voice": sound["voice"]}},
        }
        rate = _RATE if served.vocoder is None else served.vocoder.rate
        voice = None if _speaks(served) else self._voice(options)
        return Reply(
            self._out,
            self.conversation,
            Usage(),
            described,
            options.output_format,
            rate if voice is None else voice.speaker.rate,
            voice=voice,
            kept=fields.get("conversation") != "none",
        )

    async def _choice(
        self, served: Served, reply: Reply, options: SessionOptions, items: list[tuple[Object, Place]]
    ) -> Choice:
        arrived = time.perf_counter()
        own_voice = _speaks(served)
        task = self._task(options, items, served.model, own_voice)
        plan = await self._service.planned(_plan, served.current(), task)
        if own_voice and not plan.speaking.spoken:
            reply.response["output_modalities"] = ["text"]
        (choice,) = plan.choices(self._service, served, reply.usage, arrived, keep_message=False)
        return choice

    def _voice(self, options: SessionOptions) -> ChosenVoice | None:
        """Who reads the reply aloud, where somebody is to."""
        speaker = self._service.speaker
        if speaker is None or "audio" not in options.output_modalities:
            return None
        return ChosenVoice(speaker, options.voice or speaker.voices[0], options.speed)

    def _given_item(self, value: object, where: str) -> Object:
        if isinstance(value, Mapping) and value.get("type") == "item_reference":
            return self.conversation.get(value.get("id"))
        return read_item(value, where)[0]

    def _task(
        self, options: SessionOptions, items: list[tuple[Object, Place]], model: Model, own_voice: bool
    ) -> ChatTask:
        read = self.conversation.messages(items, options.instructions, options.shown, model.hears)
        if not read.messages:
            raise ApiError(400, "there is nothing to answer: add an item, or give instructions", code="empty_input")
        sampling = {} if options.temperature is None else {"temperature": options.temperature}
        effort = (options.reasoning or {}).get("effort")
        return ChatTask(
            messages=read.messages,
            tools=options.shown.definitions(),
            tool_choice=options.shown.choice(options.tool_choice),
            parallel_tool_calls=options.parallel_tool_calls,
            template_kwargs=template_kwargs(effort, None),
            speak=own_voice and "audio" in options.output_modalities,
            sampling=sampling,
            max_tokens=options.max_output_tokens,
            clip=True,
            drop_oldest=options.truncation != "disabled",
            places={
                ("prompt",): _CONVERSATION,
                ("messages",): _CONVERSATION,
                ("max_tokens",): Place(text="max_output_tokens"),
                **options.shown.client_places(),
                **read.places,
            },
        )


async def _given(choice: Choice) -> Choice:
    return choice


def _plan(model: Model, task: ChatTask) -> Plan:
    return plan_chat(model, task)


def _speaks(served: Served) -> bool:
    """Whether the model speaks itself: clients want samples, which not every vocoder gives."""
    vocoder = served.vocoder
    return vocoder is not None and vocoder.format == "pcm16" and served.model.format.speech is not None


def reader_for(service: Service, served: Served | None) -> OptionsReader:
    """What reads the options of a session with this model."""
    transcriber = service.transcriber
    own_voice = served is not None and _speaks(served)
    speaker = None if own_voice or served is None else service.speaker
    return OptionsReader(
        detects=transcriber is not None and transcriber.detector is not None,
        transcribes=transcriber is not None,
        speaks=own_voice or speaker is not None,
        names=service.listener_names or ("",),
        speaker=speaker,
        hears=served is not None and served.model.hears,
        models=() if served is None else served.names,
    )


_HANDLERS = {
    "session.update": RealtimeSession._update,
    "transcription_session.update": RealtimeSession._update,
    "input_audio_buffer.append": RealtimeSession._append,
    "input_audio_buffer.commit": RealtimeSession._commit,
    "input_audio_buffer.clear": RealtimeSession._clear,
    "conversation.item.create": RealtimeSession._create_item,
    "conversation.item.delete": RealtimeSession._delete_item,
    "conversation.item.retrieve": RealtimeSession._retrieve_item,
    "conversation.item.truncate": RealtimeSession._truncate_item,
    "response.create": RealtimeSession._respond,
    "response.cancel": RealtimeSession._cancel,
}
"""What answers each event of the client."""
