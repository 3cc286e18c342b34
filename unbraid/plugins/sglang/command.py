"""The command `sglang` with the plug-in installed: what `python -m unbraid.plugins.sglang` runs.

SGLang spawns processes. Python runs the main module again in each of them, under the name `__mp_main__`, which is how
they get the detectors if unbraid is not installed as a package. It never does so for a module called `__main__`, hence
this module.
"""

from __future__ import annotations

import importlib
import os
import sys

from . import REPLACE, install


def main() -> None:
    """Run `sglang` with the arguments of this command, without the leading `--replace`."""
    arguments = sys.argv[1:]
    if arguments[:1] == ["--replace"]:
        os.environ[REPLACE] = "1"
        arguments = arguments[1:]
    installed = install()
    if not arguments:
        print("usage: python -m unbraid.plugins.sglang [--replace] serve …  (what follows is for the command `sglang`)")
        print("--tool-call-parser:", ", ".join(installed.tool_call_parsers))
        print("--reasoning-parser:", ", ".join(installed.reasoning_parsers))
        return
    sys.argv = ["sglang", *arguments]
    importlib.import_module("sglang.cli.main").main()


if __name__ == "__main__":
    main()
elif __name__ == "__mp_main__":
    install()
