"""What a session is to do: `session.update`, read in the shape of the present API or in the flat one of the beta.

What cannot be done here is refused, with the field's name, or is null in `session.updated`: noise reduction, tracing.
Nothing of an update counts where one field of it is wrong.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from ...errors import Place, UnbraidError
from ...speech.audio.pcm import SoundFormat
from ...speech.live.utterances import UtteranceOptions
from ...speech.options import TranscriptionOptions
from ...speech.synthesis.speaker import FASTEST, CannotSpeak, Speaker, SpeakRequest
from ..api.fields import Object
from ..errors import ApiError
from ..generation.task import client_words
from ..limits import check_limits
from ..responses.tools import ShownTools
from .known import check_names, is_one_of

Kind = Literal["realtime", "transcription"]
_FORMATS = {"pcm16": ("pcm", 24_000), "g711_ulaw": ("pcmu", 8_000), "g711_alaw": ("pcma", 8_000)}
"""The beta's names."""
_TYPES = {"audio/pcm": "pcm", "audio/pcmu": "pcmu", "audio/pcma": "pcma"}
_EAGER = {"low": 1.2, "medium": 0.7, "high": 0.35, "auto": 0.7}
"""Seconds of silence that end an utterance for `semantic_vad`. What is said is not looked at."""
_OPENAI_LISTENERS = ("whisper-1", "gpt-4o-transcribe", "gpt-4o-mini-transcribe")
"""What OpenAI's clients ask for unless they are told otherwise. Here the model that is loaded answers to it."""
_OPENAI_VOICES = (
    *("default", "alloy", "ash", "ballad", "cedar", "coral", "echo", "fable", "marin", "nova", "onyx", "sage"),
    *("shimmer", "verse"),
)
"""OpenAI's clients always name one of these. A model that speaks itself has one voice: `default`, as it is told."""
_MOST_MS = 60_000
_USUAL = SoundFormat("pcm", 24_000)
_FLAT = {
    "input_audio_format": ("input", "format"),
    "input_audio_transcription": ("input", "transcription"),
    "input_audio_noise_reduction": ("input", "noise_reduction"),
    "turn_detection": ("input", "turn_detection"),
    "output_audio_format": ("output", "format"),
    "voice": ("output", "voice"),
    "speed": ("output", "speed"),
}
"""Where the beta's fields stand today."""
_RENAMED = {"modalities": "output_modalities", "max_response_output_tokens": "max_output_tokens"}
_REPLY = (
    *("audio", "instructions", "max_output_tokens", "output_modalities", "temperature", "parallel_tool_calls"),
    *("prompt", "reasoning", "tool_choice", "tools"),
)
_KNOWN = {
    "session": (
        *(*_REPLY, "type", "model", "include", "tracing", "truncation"),
        *("id", "object", "expires_at", "client_secret"),
    ),
    "response": (*_REPLY, "conversation", "input", "metadata"),
    "input": ("format", "transcription", "noise_reduction", "turn_detection"),
    "output": ("format", "voice", "speed"),
    "turn_detection": (
        *("type", "threshold", "prefix_padding_ms", "silence_duration_ms", "idle_timeout_ms", "eagerness"),
        *("create_response", "interrupt_response"),
    ),
    "transcription": ("model", "language", "languages", "prompt", "keywords"),
}
"""The fields of each object."""
_EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh")
_PLAIN = ("instructions", "max_output_tokens", "tool_choice", "parallel_tool_calls", "truncation", "reasoning")


@dataclass(frozen=True, slots=True)
class TurnDetection:
    """Who says when an utterance is over: the detector. What the client gave is told back to it."""

    given: Object
    turns: UtteranceOptions
    create_response: bool = True
    interrupt_response: bool = True


@dataclass(frozen=True, slots=True)
class Transcribed:
    """How what the user says is transcribed."""

    given: Object
    options: TranscriptionOptions
    told: bool = True
    """Whether the client is told the words. It may want none, where the model needs them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionOptions:
    """All options of a session."""

    kind: Kind
    model: str
    input_format: SoundFormat = _USUAL
    output_format: SoundFormat = _USUAL
    turn_detection: TurnDetection | None = None
    transcription: Transcribed | None = None
    output_modalities: tuple[str, ...] = ("audio",)
    voice: str | None = None
    """None for the first one."""
    speed: float = 1.0
    instructions: str = ""
    tools: tuple[Object, ...] = ()
    tool_choice: str | Object = "auto"
    parallel_tool_calls: bool | None = None
    max_output_tokens: int | None = None
    temperature: float | None = None
    truncation: object = "auto"
    reasoning: Object | None = None
    shown: ShownTools = field(default_factory=lambda: ShownTools([]))

    def described(self, id: str, *, beta: bool = False) -> dict[str, Any]:
        """The session object."""
        detection = None if self.turn_detection is None else self.turn_detection.given
        heard = self.transcription.given if self.transcription is not None and self.transcription.told else None
        sound_in: dict[str, Any] = {
            "format": _described(self.input_format),
            "transcription": heard,
            "turn_detection": detection,
            "noise_reduction": None,
        }
        if self.kind == "transcription":
            kind = "realtime.transcription_session"
            fields: dict[str, Any] = {"type": "transcription", "object": kind, "id": id, "audio": {"input": sound_in}}
            return {**fields, "include": None, **(self._flat(heard, detection) if beta else {})}
        out = {"format": _described(self.output_format), "voice": self.voice or "default", "speed": self.speed}
        fields = {
            "type": "realtime",
            "object": "realtime.session",
            "id": id,
            "model": self.model,
            "output_modalities": list(self.output_modalities),
            "audio": {"input": sound_in, "output": out},
            "instructions": self.instructions,
            "tools": list(self.tools),
            "tool_choice": self.tool_choice,
            "max_output_tokens": self.max_output_tokens or "inf",
            "truncation": self.truncation,
            "tracing": None,
            "prompt": None,
            "include": None,
        }
        return fields | (self._flat(heard, detection) if beta else {})

    def _flat(self, heard: object, detection: object) -> dict[str, Any]:
        flat = {"input_audio_format": _flat_name(self.input_format), "input_audio_transcription": heard}
        return {**flat, "turn_detection": detection, "input_audio_noise_reduction": None}


def _flat_name(format: SoundFormat) -> str:
    return next(name for name, (kind, _) in _FORMATS.items() if kind == format.kind)


def _described(format: SoundFormat) -> dict[str, Any]:
    name = next(name for name, kind in _TYPES.items() if kind == format.kind)
    return {"type": name, "rate": format.rate} if format.kind == "pcm" else {"type": name}


class OptionsReader:
    """Reads updates.

    detects: whether there is a voice activity detector.
    transcribes: whether there is a model that transcribes; its names in `names`.
    speaks: whether replies can have sound.
    speaker: the model that reads them aloud, where that of the conversation does not speak itself.
    hears: whether the model of the conversation takes sound. Where it does not, what is said is always transcribed.
    models: the names of the model of the conversation.
    """

    def __init__(
        self,
        *,
        detects: bool,
        transcribes: bool,
        speaks: bool,
        names: tuple[str, ...] = (),
        speaker: Speaker | None = None,
        hears: bool = False,
        models: tuple[str, ...] = (),
    ) -> None:
        self._detects = detects
        self._transcribes = transcribes
        self._speaks = speaks
        self._names = names
        self._speaker = speaker
        self._hears = hears
        self._models = models

    def first(self, kind: Kind, model: str) -> SessionOptions:
        """A session that nobody has updated."""
        begun = SessionOptions(kind=kind, model=model, output_modalities=("audio",) if self._speaks else ("text",))
        detection = self._detection({"type": "server_vad"}) if self._detects else None
        listens = self._transcribes and (kind == "transcription" or not self._hears)
        heard = self._heard({"model": self._names[0]}, "") if listens else None
        voice = None if self._speaker is None else self._speaker.voices[0]
        return replace(begun, turn_detection=detection, transcription=heard, voice=voice)

    def updated(self, now: SessionOptions, update: object) -> SessionOptions:
        """The options after an update. Raises `ApiError` for what is wrong with it."""
        if not isinstance(update, Mapping):
            raise _wrong("session", "an object")
        update, audio = self._shaped(update)
        kind = update.get("type", now.kind)
        if kind != now.kind:
            message = f"session.type: this is a {now.kind} session; connect again for another"
            raise ApiError(400, message, param="session.type")
        changes: dict[str, Any] = {}
        self._input(audio.get("input") or {}, changes)
        self._output(audio.get("output") or {}, "session.audio.output", changes)
        self._rest(update, changes)
        return _checked(replace(now, **changes))

    def for_response(self, now: SessionOptions, fields: object) -> SessionOptions:
        """The options of one response: those of the session, and what `response.create` says."""
        if not isinstance(fields, Mapping):
            raise _wrong("response", "an object")
        rest, audio = self._sides(fields, "response")
        changes = reply_options(rest, "response", self._speaks)
        self._output(audio["output"], "response.audio.output", changes)
        return _checked(replace(now, **changes))

    def _shaped(self, update: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
        """An update as the present API writes it, with its `audio` apart."""
        rest, sides = self._sides(update, "session")
        model = rest.get("model")
        if model is not None and self._models and model not in self._models:
            message = f"session.model: {model!r:.80} does not answer here; connect with the model that is to answer"
            raise ApiError(400, message, param="session.model", code="model_not_found")
        return rest, sides

    def _sides(self, update: Mapping[str, Any], where: str) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
        audio = update.get("audio") or {}
        if not isinstance(audio, Mapping) or not all(isinstance(one or {}, Mapping) for one in audio.values()):
            raise _wrong(f"{where}.audio", "an object with input and output")
        check_names(audio, ("input", "output") if where == "session" else ("output",), f"{where}.audio")
        sides = {side: dict(audio.get(side) or {}) for side in ("input", "output")}
        rest: dict[str, Any] = {}
        for name, value in update.items():
            if name in _FLAT:
                side, key = _FLAT[name]
                sides[side][key] = value
            else:
                rest[_RENAMED.get(name, name)] = value
        check_names(rest, _KNOWN[where], where)
        for side, fields in sides.items():
            check_names(fields, _KNOWN[side], f"{where}.audio.{side}")
        return rest, sides

    def _input(self, fields: dict[str, Any], changes: dict[str, Any]) -> None:
        where = "session.audio.input"
        if fields.get("format") is not None:
            changes["input_format"] = _format(fields["format"], f"{where}.format")
        if "turn_detection" in fields:
            detection = fields["turn_detection"]
            changes["turn_detection"] = None if detection is None else self._detection(detection)
        if "transcription" in fields:
            heard = fields["transcription"]
            if heard is not None:
                changes["transcription"] = self._heard(heard, f"{where}.transcription")
            elif self._transcribes and not self._hears and self._models:
                changes["transcription"] = Transcribed({}, TranscriptionOptions(), told=False)
            else:
                changes["transcription"] = None

    def _output(self, fields: dict[str, Any], where: str, changes: dict[str, Any]) -> None:
        if fields.get("format") is not None:
            changes["output_format"] = _format(fields["format"], f"{where}.format")
        voice, speed = fields.get("voice"), fields.get("speed")
        if self._speaker is not None:
            changes |= self._spoken(self._speaker, voice, speed, where)
        elif speed not in (None, 1) or voice not in (None, *(_OPENAI_VOICES if self._speaks else ("default",))):
            name = "speed" if speed not in (None, 1) else "voice"
            own = f"the model speaks with its own {name}" if self._speaks else "nothing speaks here"
            raise ApiError(400, f"{where}.{name}: {own}; leave it out", param=f"{where}.{name}", code="unsupported")

    def _spoken(self, speaker: Speaker, voice: object, speed: object, where: str) -> dict[str, Any]:
        """Who reads replies aloud, and how fast."""
        changes: dict[str, Any] = {}
        if voice is not None and voice != "default":
            name = voice.get("id") if isinstance(voice, Mapping) else voice
            if not isinstance(name, str):
                raise _wrong(f"{where}.voice", 'a name, or {"id": NAME}')
            changes["voice"] = name
        if speed is not None:
            changes["speed"] = _number({"speed": speed}, "speed", where, FASTEST, 1.0)
        try:
            chosen = SpeakRequest(
                text="a", voice=changes.get("voice", speaker.voices[0]), speed=changes.get("speed", 1.0)
            )
            speaker.check_request(chosen)
        except CannotSpeak as error:
            param = f"{where}.{error.field}"
            raise ApiError(400, f"{where}.{error}", param=param) from error
        return changes

    def _rest(self, fields: dict[str, Any], changes: dict[str, Any]) -> None:
        if fields.get("include"):
            raise ApiError(400, "session.include: there are no logprobs here; leave it out", param="session.include")
        changes |= reply_options(fields, "session", self._speaks)

    def _detection(self, value: object) -> TurnDetection:
        where = "session.audio.input.turn_detection"
        if not isinstance(value, Mapping) or value.get("type") not in ("server_vad", "semantic_vad", None):
            raise _wrong(where, "null, or an object of the type server_vad or semantic_vad")
        if not self._detects:
            message = f"{where}: this server has no voice activity detector; give null, and commit yourself"
            raise ApiError(400, message, param=where, code="unsupported")
        check_names(value, _KNOWN["turn_detection"], where)
        for name in ("create_response", "interrupt_response"):
            _check(value, name, bool, where)
        usual = UtteranceOptions()
        if value.get("type") == "semantic_vad":
            eagerness = value.get("eagerness") or "auto"
            if not is_one_of(eagerness, _EAGER):
                raise _wrong(f"{where}.eagerness", "low, medium, high or auto")
            turns = replace(usual, silence=_EAGER[eagerness])
            described = {"type": "semantic_vad", "eagerness": eagerness}
        else:
            turns = UtteranceOptions(
                threshold=_number(value, "threshold", where, 1.0, usual.threshold),
                padding=_number(value, "prefix_padding_ms", where, _MOST_MS, 1000 * usual.padding) / 1000,
                silence=_number(value, "silence_duration_ms", where, _MOST_MS, 1000 * usual.silence) / 1000,
            )
            described = {
                "type": "server_vad",
                "threshold": turns.threshold,
                "prefix_padding_ms": round(1000 * turns.padding),
                "silence_duration_ms": round(1000 * turns.silence),
                "idle_timeout_ms": None,
            }
        creates, interrupts = (value.get(name) is not False for name in ("create_response", "interrupt_response"))
        described |= {"create_response": creates, "interrupt_response": interrupts}
        return TurnDetection(described, turns, creates, interrupts)

    def _heard(self, fields: object, where: str) -> Transcribed | None:
        if not isinstance(fields, Mapping):
            raise _wrong(where, "null or an object")
        check_names(fields, _KNOWN["transcription"], where)
        if not self._transcribes:
            return None  # told back as null: there is nothing that could
        language, languages, prompt = fields.get("language"), fields.get("languages") or (), fields.get("prompt") or ""
        if not isinstance(language, str | None) or not isinstance(prompt, str):
            raise _wrong(where, "an object with language and prompt as strings")
        keywords = fields.get("keywords") or ()
        for name, value in (("languages", languages), ("keywords", keywords)):
            if not isinstance(value, list | tuple) or not all(isinstance(one, str) for one in value):
                raise _wrong(f"{where}.{name}", "a list of strings")
        model = fields.get("model") or self._names[0]
        if where and model not in (*self._names, *_OPENAI_LISTENERS):
            message = (
                f"{where}.model: {model!r:.80} does not transcribe here; it is {', '.join(map(repr, self._names))}"
            )
            raise ApiError(400, message, param=f"{where}.model", code="model_not_found")
        language = None if language in ("", "auto") else language
        described = {
            "model": model,
            "language": language,
            "languages": languages,
            "prompt": prompt,
            "keywords": keywords,
        }
        options = TranscriptionOptions(
            language=language, languages=tuple(languages), prompt=prompt, hotwords=", ".join(keywords)
        )
        return Transcribed({key: value for key, value in described.items() if value}, options)


def reply_options(fields: Mapping[str, Any], where: str, speaks: bool) -> dict[str, Any]:
    """The options of replies, of a session or of one response."""
    options: dict[str, Any] = {name: fields[name] for name in _PLAIN if fields.get(name) is not None}
    _check(options, "instructions", str, where)
    _check(options, "parallel_tool_calls", bool, where)
    _check(options, "reasoning", dict, where)
    reasoning = options.get("reasoning", {})
    check_names(reasoning, ("effort",), f"{where}.reasoning")
    effort = reasoning.get("effort")
    if effort is not None and not is_one_of(effort, _EFFORTS):
        raise _wrong(f"{where}.reasoning.effort", ", ".join(_EFFORTS))
    _check(fields, "metadata", dict, where)
    if not is_one_of(fields.get("conversation") or "auto", ("auto", "none")):
        raise _wrong(f"{where}.conversation", "auto or none")
    if not isinstance(fields.get("input") or [], list):
        raise _wrong(f"{where}.input", "a list of items")
    if fields.get("prompt") is not None:
        message = f"{where}.prompt: no prompts are stored here; give instructions"
        raise ApiError(400, message, param=f"{where}.prompt", code="unsupported")
    if fields.get("tools") is not None:
        tools = fields["tools"]
        if not isinstance(tools, list):
            raise _wrong(f"{where}.tools", "a list of tools")
        shown = ShownTools([(tool, Place(where, "tools", at)) for at, tool in enumerate(tools)])
        with client_words(shown.client_places()):
            check_limits(tools=shown.all)
        options["shown"] = shown
        options["tools"] = tuple(tools)
    most = options.pop("max_output_tokens", None)
    if most is not None:
        if most != "inf" and (not isinstance(most, int) or isinstance(most, bool) or most < 1):
            raise _wrong(f"{where}.max_output_tokens", 'a number from 1 on, or "inf"')
        options["max_output_tokens"] = None if most == "inf" else most
    if fields.get("temperature") is not None:
        options["temperature"] = _number(fields, "temperature", where, 2.0, 1.0)
    modalities = fields.get("output_modalities")
    if modalities is not None:
        if not isinstance(modalities, list) or not modalities or not all(map(_is_modality, modalities)):
            raise _wrong(f"{where}.output_modalities", '["audio"] or ["text"]')
        if "text" not in modalities and not speaks:
            message = (
                f"{where}.output_modalities: nothing speaks here; start the server with --speech-model kokoro, or give "
                '["text"]'
            )
            raise ApiError(400, message, param=f"{where}.output_modalities", code="unsupported")
        options["output_modalities"] = ("audio",) if "audio" in modalities and speaks else ("text",)
    return options


def _is_modality(value: object) -> bool:
    return is_one_of(value, ("text", "audio"))


def _checked(options: SessionOptions) -> SessionOptions:
    """What only all options together can say."""
    options.shown.choice(options.tool_choice)
    kept = options.truncation
    kept_share = isinstance(kept, Mapping) and kept.get("type") == "retention_ratio"
    if not kept_share and not is_one_of(kept, ("auto", "disabled")):
        raise _wrong("session.truncation", "auto, disabled, or an object of the type retention_ratio")
    return options


def _check(options: Mapping[str, Any], name: str, kind: type, where: str) -> None:
    if options.get(name) is not None and not isinstance(options[name], kind):
        raise _wrong(f"{where}.{name}", {str: "a string", bool: "true or false"}.get(kind, "an object"))


def _format(value: object, where: str) -> SoundFormat:
    try:
        if isinstance(value, str) and value in _FORMATS:
            return SoundFormat(*_FORMATS[value])
        if isinstance(value, Mapping) and is_one_of(value.get("type"), _TYPES):
            check_names(value, ("type", "rate"), where)
            kind = _TYPES[value["type"]]
            rate = value.get("rate") or (24_000 if kind == "pcm" else 8_000)
            return SoundFormat(kind, rate)
    except UnbraidError as error:
        raise ApiError(400, f"{where}: {error}", param=where) from error
    raise _wrong(where, "an object with the type audio/pcm (with a rate), audio/pcmu or audio/pcma")


def _number(fields: Mapping[str, Any], name: str, where: str, most: float, usual: float) -> float:
    value = fields.get(name)
    if value is None:
        return usual
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= most:
        raise _wrong(f"{where}.{name}", f"a number from 0 to {most:g}")
    return float(value)


def _wrong(where: str, rule: str) -> ApiError:
    return ApiError(400, f"{where} must be {rule}", param=where)
