"""Runs `renderers` on jobs, in an environment of its own: jobs come in as JSON, and ids go out. It knows no unbraid.

A job has the name of a renderer, messages and tools; a bridge also has the ids before it and the new messages.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from renderers import base, configs  # type: ignore[import-not-found]
from tokenizers import Tokenizer


class Adapter:
    """What `renderers` asks of a tokenizer, from a `tokenizers.Tokenizer`."""

    name_or_path = "unbraid"
    is_fast = True
    chat_template = None

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.backend_tokenizer = tokenizer
        self.eos_token_id = self.unk_token_id = None
        self.bos_token = self.eos_token = None

    def encode(self, text: str, *args: Any, **kwargs: Any) -> list[int]:
        return list(self.backend_tokenizer.encode(text, add_special_tokens=False).ids)

    def decode(self, ids: Any, *args: Any, **kwargs: Any) -> str:
        skip = bool(kwargs.get("skip_special_tokens", False))
        return str(self.backend_tokenizer.decode(list(ids), skip_special_tokens=skip))

    def convert_tokens_to_ids(self, tokens: Any) -> Any:
        if isinstance(tokens, str):
            return self.backend_tokenizer.token_to_id(tokens)
        return [self.backend_tokenizer.token_to_id(each) for each in tokens]

    def __call__(self, text: str, **kwargs: Any) -> dict[str, Any]:
        found = self.backend_tokenizer.encode(text, add_special_tokens=False)
        return {"input_ids": list(found.ids), "offset_mapping": list(found.offsets)}


def main() -> None:
    given = json.load(sys.stdin)
    tokenizer = Adapter(Tokenizer.from_file(given["tokenizer"]))
    kinds = {
        kind.model_fields["name"].default: kind
        for kind in vars(configs).values()
        if isinstance(kind, type) and hasattr(kind, "model_fields") and "name" in kind.model_fields
    }
    json.dump([done(tokenizer, kinds, job) for job in given["jobs"]], sys.stdout)


def done(tokenizer: Adapter, kinds: dict[str, Any], job: dict[str, Any]) -> dict[str, Any]:
    try:
        renderer = base.create_renderer(tokenizer, kinds[job["renderer"]](**job.get("options", {})))
        if "sampled" in job:
            found = renderer.bridge_to_next_turn(job["prompt"], job["sampled"], job["messages"], tools=job["tools"])
        else:
            found = renderer.render(job["messages"], tools=job["tools"], add_generation_prompt=True)
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"[:300]}
    if found is None:
        return {"ids": None}
    return {"ids": list(found.token_ids), "sampled": [bool(each) for each in found.sampled_mask]}


if __name__ == "__main__":
    main()
