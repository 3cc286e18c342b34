"""unbraid inside vLLM: `--tool-call-parser unbraid-hermes`, `--reasoning-parser unbraid-qwen3`, and so for all formats.

vLLM calls `register` by itself where unbraid is installed. From a checkout, name the file `plugin.py` to it.
"""

from __future__ import annotations

import importlib
from importlib.metadata import PackageNotFoundError, version


def register() -> None:
    """Make the formats known to vLLM. Once more does no harm."""
    try:
        parsers = importlib.import_module("unbraid.plugins.vllm.parsers")
    except (ImportError, AttributeError) as error:
        try:
            found = f"vLLM {version('vllm')}, which does not have what the plug-in needs"
        except PackageNotFoundError:
            found = "no vLLM: pip install vllm"
        raise ImportError(f"unbraid's plug-in is made for vLLM 0.32. Here is {found} ({error})") from error
    parsers.register()
