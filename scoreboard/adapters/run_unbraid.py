"""unbraid as a peer: by token ids, or with the argument `text` by text alone."""

from __future__ import annotations

import sys
from typing import Any

import tokenizers

import unbraid

from . import worker


class UnbraidStream:
    def __init__(self, parser: unbraid.Parser, by_text: bool, job: worker.Job) -> None:
        self.parser, self.by_text, self.job = parser, by_text, job
        self.argument_deltas = 0

    def feed(self, ids: list[int], text: str, last: bool) -> None:
        events = self.parser.feed(text) if self.by_text else self.parser.feed_tokens(ids)
        if last:
            events += self.parser.finish(end_of_turn=not self.job["cut_off"])
        self.argument_deltas += any(isinstance(event, unbraid.ToolCallArguments) for event in events)

    def reply(self) -> worker.Fields:
        message = self.parser.message
        calls = [[call.name, call.arguments, call.complete] for call in message.tool_calls]
        texts = {"content": message.content, "reasoning": message.reasoning}
        return {**texts, "calls": calls, "argument_deltas": self.argument_deltas}


class Unbraid:
    def __init__(self, by_text: bool) -> None:
        self.by_text = by_text
        self.tokenizers: dict[str, tokenizers.Tokenizer] = {}

    def claims(self) -> dict[str, bool]:
        return {format.name: True for format in unbraid.all_formats() if not (format.speech or format.transcript)}

    def open(self, job: worker.Job) -> UnbraidStream:
        options: dict[str, Any] = {} if self.by_text else {"tokenizer": self.tokenizer(job["tokenizer"])}
        parser = unbraid.parser(job["format"], tools=job["tools"], prompt=job["prompt"], **options)
        return UnbraidStream(parser, self.by_text, job)

    def tokenizer(self, path: str) -> tokenizers.Tokenizer:
        if path not in self.tokenizers:
            self.tokenizers[path] = tokenizers.Tokenizer.from_file(path)
        return self.tokenizers[path]

    def whole(self, job: worker.Job) -> worker.Fields:
        stream = self.open(job)
        stream.feed(job["ids"], "".join(job["texts"]), last=True)
        return stream.reply()


if __name__ == "__main__":
    worker.serve(Unbraid("text" in sys.argv[1:]), "unbraid")
