"""vLLM's server, by `/v1/completions`: token ids in, token ids out. Checked against vLLM 0.32.

It is `engines.openai` with vLLM's own fields: ids in the answer, and constraints as `structured_outputs`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Unpack

from ...constraints import Constraint
from ...constraints.printers import VLLMSyntax
from ..base import Generation, PromptTooLong
from ..openai import CompletionServer
from ..routing import Routing
from ..server import ServerOptions, Servers


class VLLMEngine(Servers):
    """One or more vLLM servers with the same model.

    syntax: what constraints are written in. xgrammar, vLLM's usual backend, takes all of them. Its guidance backend
        takes Lark and regular expressions, and refuses structural tags.

    How much of the prompt was cached is known only where the server runs with `--enable-prompt-tokens-details`.
    """

    def __init__(
        self,
        urls: str | Sequence[str],
        *,
        syntax: VLLMSyntax = "structural_tag",
        routing: Routing | None = None,
        **options: Unpack[ServerOptions],
    ) -> None:
        super().__init__(urls, lambda url: VLLMServer(url, syntax, **options), routing)


class VLLMServer(CompletionServer):
    """One vLLM server."""

    health = "/health"

    def __init__(self, url: str, syntax: VLLMSyntax, **options: Unpack[ServerOptions]) -> None:
        super().__init__(url, lambda each: {"structured_outputs": structured_outputs(each, syntax)}, **options)

    def body(self, request: Generation) -> dict[str, Any]:
        self._refuse_if_too_long(request)
        own: dict[str, Any] = {
            **request.sampling.numbers(),  # all of them, since the server has the defaults of the model
            "return_token_ids": True,
            "skip_special_tokens": False,
            "spaces_between_special_tokens": False,
            "add_special_tokens": False,
        }
        if request.logprobs is not None:
            own["return_tokens_as_token_ids"] = self.vocabulary is not None
        return super().body(request) | own

    def _refuse_if_too_long(self, request: Generation) -> None:
        """The server would refuse such a prompt too, but would blame a `max_tokens` of 0, which it computes itself."""
        if self.context is not None and not isinstance(request.prompt, str) and len(request.prompt) >= self.context:
            raise PromptTooLong(
                f"a prompt of {len(request.prompt)} tokens leaves no room in the context of {self.context} tokens",
                field="prompt",
            )

    def _room(self, request: Generation) -> int | None:
        """The limit of the output. The server cuts a limit of up to the whole context down to the free room."""
        return self.context if request.max_tokens is None else request.max_tokens


def structured_outputs(constraint: Constraint, syntax: VLLMSyntax) -> dict[str, str]:
    """The fields that hold a constraint for vLLM, over HTTP and inside the process."""
    match syntax:
        case "structural_tag":
            return {syntax: json.dumps(constraint.to_structural_tag(), ensure_ascii=False)}
        case "ebnf":
            return {"grammar": constraint.to_ebnf()}
        case "lark":
            return {"grammar": constraint.to_lark()}
        case "regex":
            return {"regex": constraint.to_regex()}
