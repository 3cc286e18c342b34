"""The file to give to vLLM if unbraid is not installed: `--tool-parser-plugin unbraid/plugins/vllm/plugin.py`, and
`--reasoning-parser-plugin` likewise. Loading it registers the formats.
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path


def _register() -> None:
    """Register through the package that this file belongs to, which need not be on the path."""
    root = str(Path(__file__).resolve().parents[3])
    sys.path.insert(0, root)
    try:
        package = importlib.import_module("unbraid.plugins.vllm")
    finally:
        sys.path.remove(root)
    package.register()


_register()
