"""OpenAI's own parser of gpt-oss's format, in its own vocabulary. Run by an interpreter that has openai-harmony.

It reads tokens and makes messages of channels; a client that shows analysis as reasoning, calls of functions as calls
and the rest as the answer is what all servers put behind it. The vocabulary is taken from the package tml-renderers:
openai-harmony fetches it from a server of its own.
"""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

from . import worker

_data = importlib.util.find_spec("tml_renderers")
if _data is not None and _data.origin is not None:
    os.environ.setdefault("TIKTOKEN_ENCODINGS_BASE", str(Path(_data.origin).parent / "data"))

import openai_harmony  # type: ignore[import-not-found]  # noqa: E402


class HarmonyStream(worker.Folded):
    def __init__(self, harmony: Harmony, job: worker.Job) -> None:
        super().__init__()
        self.parser = openai_harmony.StreamableParser(harmony.encoding, openai_harmony.Role.ASSISTANT)
        self.harmony, self.job = harmony, job
        self.ids = worker.own_ids(job, harmony.specials, harmony.encode)
        self.iterator = iter(self.ids)

    def feed(self, ids: list[int], text: str, last: bool) -> None:
        for _ in ids:
            for id in next(self.iterator):
                self._take(id)
        if last:
            if self.job["end_text"] in self.harmony.specials:
                self._take(self.harmony.specials[self.job["end_text"]])
            if self.job["cut_off"]:
                return
            self.parser.process_eos()

    def _take(self, id: int) -> None:
        before = len(self.parser.messages)
        self.parser.process(id)
        if delta := self.parser.last_content_delta:
            self._show(before, self.parser.current_channel, self.parser.current_recipient, delta)

    def _show(self, message: int, channel: str | None, recipient: str | None, delta: str) -> None:
        if recipient is not None and recipient.startswith("functions."):
            name = None if message in self.calls else recipient.removeprefix("functions.")
            self.call(message, name, delta)
        elif channel == "analysis":
            self.reasoning += delta
        else:
            self.content += delta


class Harmony:
    def __init__(self) -> None:
        name = openai_harmony.HarmonyEncodingName.HARMONY_GPT_OSS
        self.encoding = openai_harmony.load_harmony_encoding(name)
        names = self.encoding.special_tokens_set
        self.specials = {one: self.encoding.encode(one, allowed_special="all")[0] for one in names}

    def encode(self, text: str) -> list[int]:
        ids: list[int] = self.encoding.encode(text, disallowed_special=())
        return ids

    def claims(self) -> dict[str, bool]:
        return {"harmony": True}

    def open(self, job: worker.Job) -> HarmonyStream:
        return HarmonyStream(self, job)

    def whole(self, job: worker.Job) -> worker.Fields:
        ids = [id for one in worker.own_ids(job, self.specials, self.encode) for id in one]
        ids += [self.specials[job["end_text"]]] if job["end_text"] in self.specials else []
        role = openai_harmony.Role.ASSISTANT
        messages = self.encoding.parse_messages_from_completion_tokens(ids, role)
        calls: list[tuple[str, str, None]] = []
        texts = {"analysis": "", "": ""}
        for message in messages:
            text = "".join(part.text for part in message.content)
            recipient = message.recipient or ""
            if recipient.startswith("functions."):
                calls.append((recipient.removeprefix("functions."), text, None))
            else:
                texts["analysis" if message.channel == "analysis" else ""] += text
        return worker.fields(texts[""], texts["analysis"], calls)


if __name__ == "__main__":
    worker.serve(Harmony(), "openai-harmony")
