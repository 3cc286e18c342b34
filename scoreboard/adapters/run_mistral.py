"""mistral-common's own way back from tokens to a message, as the `/v1/detokenize/` of its app. Run by an interpreter
that has mistral-common.

Its newest vocabularies are in no package; the one that is, is given the version and the special tokens of each format.
"""

from __future__ import annotations

import asyncio
import json
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import mistral_common  # type: ignore[import-not-found,unused-ignore]
from mistral_common.experimental.app.models import Settings  # type: ignore[import-not-found,unused-ignore]
from mistral_common.experimental.app.routers import (  # type: ignore[import-not-found,unused-ignore]
    detokenize_to_assistant_message,
)
from mistral_common.tokens.tokenizers.base import SpecialTokens  # type: ignore[import-not-found,unused-ignore]
from mistral_common.tokens.tokenizers.mistral import MistralTokenizer  # type: ignore[import-not-found,unused-ignore]

from . import worker

VERSIONS = {"mistral-v3": "v3", "mistral-v11": "v11", "mistral-v13": "v13"}


class MistralCommon(worker.NotStreamed):
    def claims(self) -> dict[str, bool]:
        return {format: version == "v13" for format, version in VERSIONS.items()}

    def whole(self, job: worker.Job) -> worker.Fields:
        tokenizer = _tokenizer(VERSIONS[job["format"]])
        inner = tokenizer.instruct_tokenizer.tokenizer
        specials = {str(one): inner.get_special_token(str(one)) for one in _specials(inner)}
        ids = [
            id
            for one in worker.own_ids(job, specials, lambda text: list(inner.encode(text, False, False)))
            for id in one
        ]
        ids += [] if job["end"] is None else [inner.eos_id]
        settings = Settings()
        settings._tokenizer = tokenizer
        message = asyncio.run(detokenize_to_assistant_message(settings, ids))
        calls = [(one.function.name, one.function.arguments, None) for one in message.tool_calls or ()]
        if isinstance(message.content, list):
            texts = [getattr(part, "text", "") for part in message.content]
            thoughts = [getattr(part, "thinking", "") for part in message.content]
            return worker.fields("".join(texts), "".join(thoughts), calls)
        return worker.fields(message.content, "", calls)


def _specials(tokenizer: Any) -> list[str]:
    return [one for one in SpecialTokens if tokenizer.is_special(str(one))]


@cache
def _tokenizer(version: str) -> Any:
    data = Path(mistral_common.__file__).parent / "data" / "tekken_240911.json"
    fields = json.loads(data.read_text(encoding="utf-8"))
    fields["config"]["version"] = version
    fields.pop("image", None)
    order = list(dict.fromkeys(["<unk>", "<s>", "</s>", *map(str, SpecialTokens)]))
    fields["special_tokens"] = [
        {"rank": rank, "token_str": text, "is_control": True} for rank, text in enumerate(order)
    ]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "tekken.json"
        path.write_text(json.dumps(fields), encoding="utf-8")
        return MistralTokenizer.from_file(str(path))


if __name__ == "__main__":
    worker.serve(MistralCommon(), "mistral_common")
