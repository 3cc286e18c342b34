"""`unbraid serve`: the OpenAI-compatible server."""

from __future__ import annotations

import argparse
from functools import partial

from .. import UnbraidError
from ..server.settings import Settings
from ..server.settings_sources import add_flags, read_settings

SUMMARY = "serve a model through OpenAI's API"
EXAMPLES = """\
  unbraid serve
  unbraid serve --model path/to/model.gguf --context 8192
  unbraid serve --vllm http://gpu:8000 --tokenizer Qwen/Qwen3-8B --port 9000
  unbraid serve --ray --ray-replicas 1,8
  unbraid serve --model small=smollm2-135m-instruct --model large=vllm=http://gpu:8000
"""


def configure(command: argparse.ArgumentParser) -> None:
    add_flags(command)
    command.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    settings = read_settings(arguments)
    if settings.ray:
        return _on_ray(settings)
    try:
        from ..server.running.run import run as serve
    except ImportError as error:
        raise UnbraidError(f"the server is not installed ({error}): pip install 'unbraid[server]'") from error
    return serve(settings, partial(read_settings, arguments))


def _on_ray(settings: Settings) -> int:
    try:
        from ..ray.running import run as serve
    except ImportError as error:
        raise UnbraidError(f"Ray Serve is not installed ({error}): pip install 'unbraid[ray,server]'") from error
    return serve(settings)
