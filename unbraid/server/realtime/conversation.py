"""The items of a conversation by voice: kept in order, and read into the messages that a model is given.

Sound of the user goes to a model that hears; another model gets its transcript. What the assistant has said counts as
far as it was heard: `truncate` cuts it. The sound itself of replies is not kept.

Where speech is cut: text and sound come braided, and the text runs ahead. So of a text the part is taken that the heard
sound is of the whole sound, or what had been written when that sound was, whichever is less, to the end of a word. A
voice that reads a text says how long each sentence is, so only the sentence that was broken off has to be guessed.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from ...errors import Place
from ...speech.audio.pcm import wav_of_pcm
from ..api.fields import Object
from ..errors import ApiError
from ..limits import MOST
from ..responses.items import Conversation, ItemReader
from ..responses.tools import ShownTools
from .event_writer import new_id
from .known import check_names, is_one_of

_ROLES = {
    "user": ("input_text", "input_audio"),
    "assistant": ("output_text", "output_audio"),
    "system": ("input_text",),
}
_BETA_PARTS = {"text": "output_text", "audio": "output_audio"}
_ITEM = ("id", "object", "type", "status")
_KINDS = {
    "message": (*_ITEM, "role", "content"),
    "function_call": (*_ITEM, "call_id", "name", "arguments"),
    "function_call_output": (*_ITEM, "call_id", "output"),
}
_PART = ("type", "text", "audio", "transcript")


@dataclass
class SpokenText:
    """A text and its sound while they come: what is needed to say how much of the text was heard."""

    text: str = ""
    ms: float = 0.0
    """Of sound so far."""
    codes: int = 0
    marks: list[tuple[int, int]] = field(default_factory=list)
    """How many codes there were when so many characters were written."""
    sentences: list[tuple[int, float]] = field(default_factory=list)
    """Where a voice speaks one sentence after the other: the characters and the milliseconds up to the end of each."""
    _read_ms: float = 0.0
    """Of what the voice has read so far."""

    def said(self, text: str) -> None:
        self.text += text
        self.marks.append((self.codes, len(self.text)))

    def read(self, text: str, ms: float, total: float) -> None:
        """A sentence that a voice has read, with the first of its sound, or (without text) more sound of the last one.

        total: how long the sound of all of it is, as far as that is known.
        """
        begun = self._read_ms
        self._read_ms += ms
        if text:
            self.text += text
            self.sentences.append((len(self.text), begun + total))
        elif self.sentences:
            size, end = self.sentences[-1]
            self.sentences[-1] = size, max(end, self._read_ms)

    def heard_until(self, ms: float) -> str:
        """The words that were heard in so many milliseconds."""
        if self.sentences:
            return _whole_words(self.text, self._heard_of_sentences(ms))
        if ms >= self.ms or not self.ms:
            return self.text if ms > 0 else ""
        share = max(0.0, ms) / self.ms
        until = max((size for codes, size in self.marks if codes <= share * self.codes), default=0)
        size = min(round(share * len(self.text)), until or len(self.text))
        return _whole_words(self.text, size)

    def _heard_of_sentences(self, ms: float) -> int:
        """How many characters: all of the sentences before, and of the one that is heard the part that its sound is."""
        size, begun = 0, 0.0
        for until, end in self.sentences:
            if ms < end:
                return size + int((until - size) * max(0.0, ms - begun) / (end - begun))
            size, begun = until, end
        return size


def _whole_words(text: str, size: int) -> str:
    if size >= len(text) or " " not in text.strip():  # scripts without spaces are cut between characters
        return text[:size]
    if text[size].isspace() or not text[size].isalnum():
        return text[:size]
    return text[:size].rpartition(" ")[0]


class VoiceConversation:
    """All items."""

    def __init__(self, most_audio: int) -> None:
        """most_audio: bytes of sound that are kept."""
        self.id = new_id("conv")
        self.items: list[Object] = []
        self.spoken: dict[str, SpokenText] = {}
        """What can be cut, by the id of its item."""
        self._sounds: dict[str, bytes] = {}
        """The sound of user's items, as PCM of 16 kHz."""
        self._most_audio = most_audio

    @property
    def last_id(self) -> str | None:
        return self.items[-1]["id"] if self.items else None

    def add(self, item: Object, after: object = None) -> str | None:
        """Add an item, at the end or after another one (`root`: at the start). Returns the id of the one before it."""
        if len(self.items) >= MOST["items"]:
            message = f"the conversation has {MOST['items']} items, the most: delete some"
            raise ApiError(400, message, code="too_many_items")
        at = len(self.items) if after is None else 0 if after == "root" else self._place(after, "previous_item_id") + 1
        self.items.insert(at, item)
        return self.items[at - 1]["id"] if at else None

    def before(self, id: str) -> str | None:
        """The id of the item before this one; None where it is the first, or not there any more."""
        ids = [item["id"] for item in self.items]
        at = ids.index(id) if id in ids else 0
        return ids[at - 1] if at else None

    def unheard(self, items: Sequence[Object]) -> list[tuple[Object, bytes]]:
        """The parts of these items whose sound nothing has transcribed, with that sound."""
        return [
            (part, self._sounds[item["id"]])
            for item in items
            if item["type"] == "message" and item["id"] in self._sounds
            for part in item["content"]
            if part["type"] == "input_audio" and part.get("transcript") is None
        ]

    def keep_sound(self, id: str, sound: bytes) -> None:
        if sum(map(len, self._sounds.values())) + len(sound) > self._most_audio:
            message = f"the conversation has more than {self._most_audio} bytes of sound: delete items with sound"
            raise ApiError(413, message, code="too_much_audio")
        self._sounds[id] = sound

    def get(self, id: object) -> Object:
        return self.items[self._place(id, "item_id")]

    def delete(self, id: object) -> None:
        item = self.items.pop(self._place(id, "item_id"))
        self._sounds.pop(item["id"], None)
        self.spoken.pop(item["id"], None)

    def retrieved(self, id: object) -> Object:
        """An item with its sound."""
        item = self.get(id)
        sound = self._sounds.get(item["id"])
        if sound is None:
            return item
        data = base64.b64encode(sound).decode()
        parts = [{**part, "audio": data} if part["type"] == "input_audio" else part for part in item["content"]]
        return {**item, "content": parts}

    def truncate(self, id: object, content_index: object, ms: object) -> None:
        """Cut what the assistant has said to what was heard."""
        item = self.get(id)
        spoken = self.spoken.get(item["id"])
        if spoken is None:
            message = "item_id: only what the assistant has spoken can be truncated"
            raise ApiError(400, message, param="item_id")
        if content_index != 0:
            raise ApiError(400, "content_index must be 0: what is spoken has one part", param="content_index")
        if isinstance(ms, bool) or not isinstance(ms, int) or ms < 0:
            raise ApiError(400, "audio_end_ms must be a number of milliseconds, from 0 on", param="audio_end_ms")
        heard = spoken.heard_until(ms)
        spoken.text, spoken.ms = heard, min(spoken.ms, float(ms))
        item["content"] = [{"type": "output_audio", "transcript": heard}]

    def _place(self, id: object, param: str) -> int:
        for at, item in enumerate(self.items):
            if item["id"] == id:
                return at
        raise ApiError(404, f"{param}: there is no item {id!r:.80} in the conversation", param=param, code="not_found")

    # For the model

    def messages(
        self, items: Sequence[tuple[Object, Place]], instructions: str, tools: ShownTools, hears: bool
    ) -> Conversation:
        """The messages for the model. `items`: each with what the client calls it."""
        shown = [self._shown(item, hears) for item, _ in items]
        places = [place for _, place in items]
        if instructions:
            shown.insert(0, {"role": "system", "content": instructions})
            places.insert(0, Place(text="instructions"))
        return ItemReader(tools, lambda sealed: None).read(shown, places)

    def _shown(self, item: Object, hears: bool) -> Object:
        """An item as the Responses dialect has it."""
        if item["type"] != "message":
            return item
        return {**item, "content": [self._shown_part(item["id"], part, hears) for part in item["content"]]}

    def _shown_part(self, id: str, part: Object, hears: bool) -> Object:
        if part["type"] == "output_audio":
            return {"type": "output_text", "text": part.get("transcript") or ""}
        if part["type"] != "input_audio":
            return part
        sound = self._sounds.get(id)
        if hears and sound is not None:
            data = base64.b64encode(wav_of_pcm(sound)).decode()
            return {"type": "input_audio", "input_audio": {"data": data, "format": "wav"}}
        if part.get("transcript") is None:
            message = (
                f"item {id}: the model takes no sound, and what was said could not be transcribed: send text, or "
                "start the server with --transcription-model if it has none"
            )
            raise ApiError(400, message, code="unsupported")
        return {"type": "input_text", "text": part["transcript"]}


def read_item(value: object, where: str) -> tuple[Object, bytes | None]:
    """An item that a client gives, checked and with an id, and its sound, as bytes of the session's format."""
    if not isinstance(value, dict) or not is_one_of(value.get("type"), _KINDS):
        raise ApiError(400, f"{where} must be an item of the type {', '.join(_KINDS)}", param=f"{where}.type")
    check_names(value, _KINDS[value["type"]], where)
    value = {name: each for name, each in value.items() if each is not None}
    id = value.get("id")
    if not isinstance(id, str | None):
        raise ApiError(400, f"{where}.id must be a string", param=f"{where}.id")
    item: Object = {**value, "id": id or new_id("item"), "object": "realtime.item", "status": "completed"}
    if value["type"] == "function_call":
        for name in ("name", "arguments"):
            _string(value, name, where)
        item.setdefault("call_id", new_id("call"))
        _string(item, "call_id", where)
    elif value["type"] == "function_call_output":
        for name in ("call_id", "output"):
            _string(value, name, where)
    else:
        item["content"], sound = _content(value, where)
        return item, sound
    return item, None


def _content(item: Object, where: str) -> tuple[list[Object], bytes | None]:
    role, parts = item.get("role"), item.get("content")
    if not isinstance(role, str) or role not in _ROLES:
        raise ApiError(400, f"{where}.role must be one of {', '.join(_ROLES)}", param=f"{where}.role")
    if not isinstance(parts, list) or not parts:
        raise ApiError(400, f"{where}.content must be a list of parts", param=f"{where}.content")
    sound = b""
    content: list[Object] = []
    for at, part in enumerate(parts):
        place = f"{where}.content[{at}]"
        kind = part.get("type") if isinstance(part, dict) else None
        kind = _BETA_PARTS.get(str(kind), kind) if role == "assistant" else kind
        if kind not in _ROLES[role]:
            raise ApiError(400, f"{place}.type must be one of {', '.join(_ROLES[role])}", param=f"{place}.type")
        check_names(part, _PART, place)
        if kind == "input_audio":
            sound += read_base64(part.get("audio"), f"{place}.audio")
            content.append({"type": kind, "transcript": part.get("transcript")})
        elif kind == "output_audio":
            content.append({"type": kind, "transcript": _string(part, "transcript", place)})
        else:
            content.append({"type": kind, "text": _string(part, "text", place)})
    return content, sound or None


def read_base64(value: object, where: str) -> bytes:
    if isinstance(value, str):
        try:
            return base64.b64decode(value, validate=True)
        except ValueError:
            pass
    raise ApiError(400, f"{where} must be sound in base64", param=where, code="invalid_audio")


def _string(fields: dict[str, Any], name: str, where: str) -> str:
    value = fields.get(name)
    if not isinstance(value, str):
        raise ApiError(400, f"{where}.{name} must be a string", param=f"{where}.{name}")
    return value
