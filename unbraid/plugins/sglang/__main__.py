"""`python -m unbraid.plugins.sglang serve …`: the command `sglang`, with unbraid's detectors."""

from __future__ import annotations

import runpy

if __name__ == "__main__":
    runpy.run_module("unbraid.plugins.sglang.command", run_name="__main__", alter_sys=True)
