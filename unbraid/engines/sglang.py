"""SGLang's own interface, `/generate`: token ids in, token ids out. Checked against SGLang 0.5.23.

Depending on how the server was started, its messages hold the new tokens or all tokens so far. The reader reads both.
"""

from __future__ import annotations

import base64
import json
import uuid
from collections.abc import Coroutine, Mapping, Sequence
from typing import Any, Unpack

from ..constraints import Constraint
from ..constraints.printers import SGLangSyntax
from ..core.vocabulary import Vocabulary
from .base import Audio, Generation, Piece, TokenLogprob, refuse_penalties
from .http.refusals import refusal
from .reader import OutputReader, finish_reason, token_bytes
from .routing import Routing
from .server import Message, Server, ServerOptions, Servers


class SGLangEngine(Servers):
    """One or more SGLang servers with the same model.

    syntax: what constraints are written in. Structural tags need the server's usual grammar backend, xgrammar.

    Start the servers with `--incremental-streaming-output`. Without it, each message repeats all tokens so far, which
    costs more the longer the output is.
    """

    def __init__(
        self,
        urls: str | Sequence[str],
        *,
        syntax: SGLangSyntax = "structural_tag",
        routing: Routing | None = None,
        **options: Unpack[ServerOptions],
    ) -> None:
        super().__init__(urls, lambda url: SGLangServer(url, syntax, **options), routing)


class SGLangServer(Server):
    """One SGLang server."""

    path = "/generate"
    hears = True

    def __init__(self, url: str, syntax: SGLangSyntax, **options: Unpack[ServerOptions]) -> None:
        super().__init__(url, **options)
        self._syntax = syntax

    def body(self, request: Generation) -> dict[str, Any]:
        body: dict[str, Any] = {"rid": uuid.uuid4().hex, "stream": True, "sampling_params": self._sampling(request)}
        if isinstance(request.prompt, str):
            body["text"] = request.prompt
        else:
            body["input_ids"] = list(request.prompt)
        if request.audio:
            body["audio_data"] = list(map(_data_url, request.audio))
        if request.logprobs is not None:
            body |= {"return_logprob": True, "top_logprobs_num": request.logprobs}
            body["return_text_in_logprobs"] = self.vocabulary is None
        return body

    def _sampling(self, request: Generation) -> dict[str, Any]:
        """All values, since the server has defaults of its own."""
        refuse_penalties(request, self.address.url, "presence_penalty", "frequency_penalty", "repetition_penalty")
        chosen = request.sampling
        fields: dict[str, Any] = {
            **chosen.numbers(),
            "top_k": chosen.top_k or -1,
            "max_new_tokens": request.max_tokens,
            "stop": list(request.stop),
            "stop_token_ids": list(request.stop_tokens),
            "skip_special_tokens": False,
            "spaces_between_special_tokens": False,
        }
        if chosen.seed is not None:
            fields["sampling_seed"] = chosen.seed
        if chosen.logit_bias:
            fields["logit_bias"] = {str(token): bias for token, bias in chosen.clipped_bias().items()}
        if request.constraint is not None:
            fields |= _constrained(request.constraint, self._syntax)
        return fields

    def reader(self, request: Generation, body: Mapping[str, Any]) -> SGLangReader:
        return SGLangReader(request, self.vocabulary)

    def abort(self, body: Mapping[str, Any]) -> Coroutine[Any, Any, Any]:
        """The server notices a closed connection late: only when it sends the next token."""
        return self.address.post("/abort_request", {"rid": body["rid"]}, timeout=5.0)


def _data_url(audio: Audio) -> str:
    return f"data:audio/{audio.format};base64,{base64.b64encode(audio.data).decode()}"


def _constrained(constraint: Constraint, syntax: SGLangSyntax) -> dict[str, str]:
    match syntax:
        case "structural_tag":
            return {syntax: json.dumps(constraint.to_structural_tag(), ensure_ascii=False)}
        case "ebnf":
            return {syntax: constraint.to_ebnf()}
        case "regex":
            return {syntax: constraint.to_regex()}


class SGLangReader(OutputReader[Message]):
    """Reads the answer of `/generate`."""

    def __init__(self, request: Generation, vocabulary: Vocabulary | None) -> None:
        super().__init__(request, vocabulary)
        self._logprobs = request.logprobs is not None
        self._count = 0
        self._length = 0

    def parse(self, chunk: Message) -> Piece | None:
        meta = chunk["meta_info"]
        ids = chunk["output_ids"]
        new = self._new(ids, meta)
        self._read_end(meta)
        if self.as_text:
            return self._text(chunk.get("text") or "", repeated=len(ids) > new)
        if new == 0:
            return None
        return Piece(tuple(ids[-new:]), logprobs=self._read_logprobs(meta, new) if self._logprobs else ())

    def _new(self, ids: Sequence[int], meta: Mapping[str, Any]) -> int:
        """How many of the last `ids` are new: only the count of all tokens tells. When a request is aborted, the last
        token may come a second time."""
        total: int = meta.get("completion_tokens", self._count + len(ids))
        new = min(max(0, total - self._count), len(ids))
        self._count += new
        return new

    def _read_end(self, meta: Mapping[str, Any]) -> None:
        """Read the counts, and the finish reason if there is one. Raises the error for which the server gave up."""
        self.prompt_tokens = meta.get("prompt_tokens", 0)
        self.completion_tokens = meta.get("completion_tokens", self._count)
        self.cached_tokens = meta.get("cached_tokens") or 0
        ended = meta.get("finish_reason")
        if not ended:
            return
        if ended["type"] == "abort" and ended.get("status_code"):
            raise refusal(ended["status_code"], str(ended.get("message")))
        self.reason = finish_reason(ended["type"])
        matched = ended.get("matched")
        self.stopped_by = matched if isinstance(matched, str | int) else None

    def _text(self, text: str, repeated: bool) -> Piece | None:
        text = text[self._length :] if repeated else text
        self._length += len(text)
        return Piece(text=text) if text else None

    def _read_logprobs(self, meta: Mapping[str, Any], new: int) -> tuple[TokenLogprob, ...]:
        chosen = meta["output_token_logprobs"][-new:]
        tops = (meta.get("output_top_logprobs") or [])[-new:] or [()] * len(chosen)
        return tuple(
            self._logprob(one, tuple(map(self._logprob, top or ()))) for one, top in zip(chosen, tops, strict=True)
        )

    def _logprob(self, entry: Sequence[Any], top: tuple[TokenLogprob, ...] = ()) -> TokenLogprob:
        logprob, token, text = entry
        value = float("-inf") if logprob is None else logprob  # JSON has no infinity
        return TokenLogprob(token, token_bytes(self.vocabulary, token, text), value, top)
