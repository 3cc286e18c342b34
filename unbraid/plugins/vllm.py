"""unbraid inside vLLM: `--tool-call-parser unbraid-hermes`, `--reasoning-parser unbraid-qwen3`, and so for all formats.

vLLM finds this by itself where unbraid is installed. From a checkout it is named to it: `--tool-parser-plugin
unbraid/plugins/vllm.py`, and `--reasoning-parser-plugin` likewise. Importing this module makes the formats known.
"""

from __future__ import annotations

import importlib
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path


def register() -> None:
    """Make the formats known to vLLM. Once more does no harm."""
    try:
        parsers = importlib.import_module("unbraid.plugins.vllm_parsers")
    except (ImportError, AttributeError) as error:
        try:
            found = f"vLLM {version('vllm')}, which does not have what the plug-in needs"
        except PackageNotFoundError:
            found = "no vLLM: pip install vllm"
        raise ImportError(f"unbraid's plug-in is made for vLLM 0.32. Here is {found} ({error})") from error
    parsers.register()


def _give_the_name_back() -> None:
    """vLLM loads a file as a module of the file's name. That of this one is `vllm`, and vLLM itself would be gone."""
    del sys.modules["vllm"]
    package = importlib.import_module("vllm")
    for name, module in list(sys.modules.items()):
        parent, _, child = name.rpartition(".")
        if parent == "vllm":
            setattr(package, child, module)


def _import_unbraid() -> None:
    """The package that this file belongs to, which need not be installed."""
    root = str(Path(__file__).resolve().parents[2])
    sys.path.insert(0, root)
    try:
        importlib.import_module("unbraid")
    finally:
        sys.path.remove(root)


if __name__ != "unbraid.plugins.vllm":  # loaded as a file
    if __name__ == "vllm":
        _give_the_name_back()
    _import_unbraid()
register()
