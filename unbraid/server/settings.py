"""The settings of the server: one list, from which flags, environment variables and a configuration file are read.

To add a setting, add a field to `Settings`; its help is what `unbraid serve --help` prints. `--served-model-name` is
`UNBRAID_SERVED_MODEL_NAME` in the environment and `served_model_name` in the file. A flag wins over the environment,
and the environment over the file.

Several models are several `--model NAME=…`, or tables `[[models]]` in the file. Each may have settings of its own from
the groups in `_OF_A_MODEL`; what it leaves open is as for all.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Literal

from ..errors import UnbraidError
from ..models import DEFAULT

Kind = Literal["text", "number", "amount", "amounts", "choice", "list", "switch", "models"]


def _setting(
    help: str,
    *,
    group: str,
    default: Any = None,
    kind: Kind = "text",
    metavar: str | None = None,
    choices: Sequence[str] | None = None,
    least: int = 0,
    most: int | None = None,
    positive: bool = False,
) -> Any:
    told: dict[str, Any] = {"help": help, "group": group, "kind": kind, "metavar": metavar, "choices": choices}
    told |= {"least": least, "most": most, "positive": positive}
    if kind == "list":
        return field(default=(), metadata=told)
    return field(default=default, metadata=told)


@dataclass(frozen=True, kw_only=True)
class Settings:
    """See `unbraid serve --help`."""

    model: str | None = _setting(
        f"a GGUF file or folder, a name, ollama:NAME, ORG/REPO[:FILE], pypi:NAME or npm:NAME (default: {DEFAULT}); "
        "with an engine elsewhere, what that engine calls its model. For several: NAME=MODEL, and after commas "
        "settings of its own: NAME=MODEL,format=qwen3 or NAME=vllm=http://gpu:8000",
        group="model",
        kind="models",
    )
    served_model_name: tuple[str, ...] = _setting(
        "what clients call the model; may be given several times", group="model", kind="list", metavar="NAME"
    )
    transcription_model: str | None = _setting(
        "a Whisper that transcribes recordings: whisper-tiny, whisper-base, whisper-small, a folder, ORG/REPO …; with "
        "an engine elsewhere, what that engine calls its model",
        group="transcription",
        metavar="MODEL",
    )
    transcription_engine: Literal["embedded", "vllm-local", "vllm", "sglang", "openai", "chat"] = _setting(
        "what runs it: this process, vLLM inside of it, or a server; chat is a server's chat completions",
        group="transcription",
        default="embedded",
        kind="choice",
        choices=("embedded", "vllm-local", "vllm", "sglang", "openai", "chat"),
    )
    transcription_url: tuple[str, ...] = _setting(
        "the servers that have it, one URL each", group="transcription", kind="list", metavar="URL"
    )
    transcription_api_key: str | None = _setting("the key for these servers", group="transcription", metavar="KEY")
    transcription_device: Literal["auto", "cpu", "cuda"] = _setting(
        "where the embedded engine transcribes: auto is a GPU if ONNX Runtime can use one (onnxruntime-gpu)",
        group="transcription",
        default="auto",
        kind="choice",
        choices=("auto", "cpu", "cuda"),
    )
    transcription_vad: bool = _setting(
        "decode only what a voice activity detector takes for speech",
        group="transcription",
        default=True,
        kind="switch",
    )
    speech_model: str | None = _setting(
        "a model that speaks, for POST /v1/audio/speech: kokoro, or a folder with a Kokoro; needs unbraid[voice]",
        group="speech",
        metavar="MODEL",
    )
    speech_queue: int = _setting(
        "texts that may be spoken at once, a sentence each in turn",
        group="speech",
        default=64,
        kind="number",
        metavar="N",
        least=1,
    )
    max_speech: int = _setting(
        "the longest text that is spoken, in characters", group="speech", default=100_000, kind="number", metavar="N"
    )
    chat_template: str | None = _setting(
        "a template's file, or chatml or step-audio-2, in place of the model's own", group="model", metavar="FILE"
    )
    tokenizer: str | None = _setting(
        "a folder, a file or ORG/REPO with the tokenizer, where the engine is elsewhere", group="model", metavar="PATH"
    )
    sampling: str | None = _setting(
        "what requests leave open, as JSON: '{\"temperature\": 0.2}'", group="model", metavar="JSON"
    )

    sglang: tuple[str, ...] = _setting("SGLang servers, one URL each", group="engine", kind="list", metavar="URL")
    vllm: tuple[str, ...] = _setting("vLLM servers", group="engine", kind="list", metavar="URL")
    llama_cpp: tuple[str, ...] = _setting("llama.cpp servers", group="engine", kind="list", metavar="URL")
    openai: tuple[str, ...] = _setting("servers with OpenAI's completions", group="engine", kind="list", metavar="URL")
    vllm_local: bool = _setting("vLLM inside this process", group="engine", default=False, kind="switch")
    vllm_options: str | None = _setting(
        "further arguments of vLLM's engine inside this process, as JSON: '{\"tensor_parallel_size\": 2}'",
        group="engine",
        metavar="JSON",
    )
    replay: str | None = _setting("play a recording instead of a model", group="engine", metavar="FILE")
    tokens_only: bool = _setting(
        "no engine: render prompts and parse outputs for gateways, such as llm-d's",
        group="engine",
        default=False,
        kind="switch",
    )
    record: str | None = _setting("write all outputs of the engine to a file", group="engine", metavar="FILE")
    engine_api_key: str | None = _setting("the key for the engine's servers", group="engine", metavar="KEY")
    upstream_timeout: tuple[float, float] = _setting(
        "how long the engine's servers may take to the first piece of an output and, after a comma, to each further "
        "one; one number is for both",
        group="engine",
        default=(120.0, 120.0),
        kind="amounts",
        metavar="S[,S]",
        positive=True,
    )
    upstream_connect_timeout: float = _setting(
        "how long connecting to one of them may take",
        group="engine",
        default=5.0,
        kind="amount",
        metavar="S",
        positive=True,
    )
    upstream_retries: int = _setting(
        "how often a request is tried again, or an output goes on, at another of them",
        group="engine",
        default=3,
        kind="number",
        metavar="N",
    )
    upstream_bound: float = _setting(
        "how many times its share of all requests one of them may have for the sake of prompts that it knows; 0: they "
        "are chosen by their load alone",
        group="engine",
        default=1.25,
        kind="amount",
        metavar="X",
    )
    context: int | None = _setting("tokens of prompt and output together", group="engine", kind="number", metavar="N")
    parallel: int = _setting("requests at once (embedded)", group="engine", default=4, kind="number", metavar="N")
    queue: int = _setting("requests that may wait (embedded)", group="engine", default=64, kind="number", metavar="N")
    threads: int | None = _setting("threads that compute (embedded)", group="engine", kind="number", metavar="N")
    gpu_layers: int | None = _setting(
        "layers on the GPU (embedded)", group="engine", kind="number", metavar="N", least=-1
    )

    ray_replicas: tuple[float, float] = _setting(
        "on Ray, how many replicas of an engine there are at least and, after a comma, at most; one number is for both",
        group="engine",
        default=(1.0, 4.0),
        kind="amounts",
        metavar="N[,N]",
    )
    ray_options: str | None = _setting(
        'further options of the engine\'s deployment on Ray, as JSON: \'{"ray_actor_options": {"num_gpus": 1}}\'',
        group="engine",
        metavar="JSON",
    )

    format: str | None = _setting("what the model writes; see `unbraid formats`", group="format", metavar="NAME")
    reasoning_parser: str | None = _setting("the format of the reasoning", group="format", metavar="NAME")
    tool_call_parser: str | None = _setting("the format of tool calls", group="format", metavar="NAME")
    audio_parser: str | None = _setting("the format of speech", group="format", metavar="NAME")
    unknown_tools: Literal["text", "emit"] = _setting(
        "calls of tools that the request does not have: text, or calls all the same",
        group="format",
        default="text",
        kind="choice",
        choices=("text", "emit"),
    )
    loose_schemas: bool = _setting(
        "take strict schemas that cannot be enforced in full, and say so in a header; otherwise they are refused",
        group="format",
        default=False,
        kind="switch",
    )
    calls_in_reasoning: Literal["auto", "yes", "no"] = _setting(
        "whether a call inside the reasoning is a call; auto: as the model was trained",
        group="format",
        default="auto",
        kind="choice",
        choices=("auto", "yes", "no"),
    )
    reasoning_field: Literal["both", "reasoning_content", "reasoning"] = _setting(
        "where replies have the reasoning",
        group="format",
        default="both",
        kind="choice",
        choices=("both", "reasoning_content", "reasoning"),
    )
    audio_placeholder: str | None = _setting(
        "what stands for audio in a prompt, where the model takes it", group="format", metavar="TEXT"
    )
    vocoder: str | None = _setting(
        "MODULE:NAME of what makes a vocoder, which turns audio codes into sound", group="format", metavar="NAME"
    )

    host: str = _setting("the address to listen on", group="server", default="127.0.0.1")
    port: int = _setting("the port to listen on", group="server", default=8000, kind="number", metavar="N", most=65535)
    workers: int = _setting(
        "processes that serve on the port; each loads a model that runs in the process for itself",
        group="server",
        default=1,
        kind="number",
        metavar="N",
    )
    ray: bool = _setting(
        "serve on Ray, in the cluster that RAY_ADDRESS names or a new one on this machine; needs unbraid[ray]",
        group="server",
        default=False,
        kind="switch",
    )
    ray_api_replicas: int = _setting(
        "on Ray, how many processes answer requests", group="server", default=1, kind="number", metavar="N", least=1
    )
    api_key: tuple[str, ...] = _setting(
        "a key that clients must have; may be given several times", group="server", kind="list", metavar="KEY"
    )
    allow_origin: tuple[str, ...] = _setting(
        "a site whose pages may call this server from a browser, or *", group="server", kind="list", metavar="ORIGIN"
    )
    allow_host: tuple[str, ...] = _setting(
        "a name by which clients call this server, or *; on a loopback address, others than localhost are refused",
        group="server",
        kind="list",
        metavar="NAME",
    )
    playground: bool = _setting(
        "a page at / to try formats, constraints and the models on", group="server", default=True, kind="switch"
    )
    tls_cert: str | None = _setting("serve HTTPS with this certificate, in PEM", group="server", metavar="FILE")
    tls_key: str | None = _setting("its key, where that is not in the same file", group="server", metavar="FILE")
    tls_key_password: str | None = _setting("the password of that key", group="server", metavar="TEXT")
    tls_client_ca: str | None = _setting(
        "clients must show a certificate that this authority signed, in PEM", group="server", metavar="FILE"
    )
    requests_per_minute: int = _setting(
        "requests a minute for each API key, or each address where there are no keys; 0: any number",
        group="limits",
        default=0,
        kind="number",
        metavar="N",
    )
    tokens_per_minute: int = _setting(
        "tokens a minute, of prompts and replies, for each of the same; 0: any number",
        group="limits",
        default=0,
        kind="number",
        metavar="N",
    )
    connections: int = _setting(
        "connections at once; 0: any number", group="limits", default=8192, kind="number", metavar="N"
    )
    client_connections: int = _setting(
        "connections at once from one address; 0: any number, for servers behind a proxy",
        group="limits",
        default=2048,
        kind="number",
        metavar="N",
    )
    trusted_proxy: tuple[str, ...] = _setting(
        "the address or network of a proxy, whose X-Forwarded-For is believed",
        group="limits",
        kind="list",
        metavar="ADDRESS",
    )
    header_seconds: float = _setting(
        "how long the headers of a request may take; 0: without end",
        group="limits",
        default=10.0,
        kind="amount",
        metavar="S",
    )
    body_seconds: float = _setting(
        "how long a body may pause, and how soon it must come with 1000 bytes a second; 0: without end",
        group="limits",
        default=30.0,
        kind="amount",
        metavar="S",
    )
    keep_alive_seconds: float = _setting(
        "how long a connection may wait for its next request; 0: without end",
        group="limits",
        default=75.0,
        kind="amount",
        metavar="S",
    )
    send_seconds: float = _setting(
        "how long a client may read nothing of a reply; 0: without end",
        group="limits",
        default=60.0,
        kind="amount",
        metavar="S",
    )
    drain_seconds: float = _setting(
        "how long after SIGTERM requests are still taken, while /ready says no",
        group="server",
        default=0.0,
        kind="amount",
        metavar="S",
    )
    shutdown_seconds: float = _setting(
        "how long streams may go on after that", group="server", default=30.0, kind="amount", metavar="S"
    )
    max_audio: int = _setting(
        "the largest recording, in bytes", group="server", default=25_000_000, kind="number", metavar="N"
    )
    max_audio_seconds: float = _setting(
        "the longest recording", group="server", default=4 * 3600.0, kind="amount", metavar="S"
    )
    max_body: int = _setting(
        "the largest body of a request, in bytes", group="server", default=64_000_000, kind="number", metavar="N"
    )
    plan_seconds: float = _setting(
        "the CPU time that one request may take to be worked out: its schemas, its prompt, what it has parsed",
        group="server",
        default=10.0,
        kind="amount",
        metavar="S",
        positive=True,
    )
    plan_workers: int = _setting(
        "processes for requests that take long to be worked out; 0 for none",
        group="server",
        default=2,
        kind="number",
        metavar="N",
    )
    store: str | None = _setting(
        "the file that keeps responses for GET /v1/responses and previous_response_id, or none (default: "
        "responses.sqlite in the cache's folder)",
        group="server",
        metavar="FILE",
    )
    secret: str | None = _setting(
        "a secret that all replicas share, of 32 characters or more: what clients keep between requests is sealed with "
        "it (default: the store's)",
        group="server",
        metavar="TEXT",
    )
    store_days: float = _setting(
        "how many days responses are kept", group="server", default=30.0, kind="amount", metavar="N"
    )
    log_level: Literal["debug", "info", "warning", "error"] = _setting(
        "how much is logged",
        group="server",
        default="info",
        kind="choice",
        choices=("debug", "info", "warning", "error"),
    )
    log_format: Literal["text", "json"] = _setting(
        "what a log line looks like", group="server", default="text", kind="choice", choices=("text", "json")
    )
    otel: bool = _setting(
        "send OpenTelemetry spans, where the variables OTEL_… say; needs unbraid[otel]",
        group="server",
        default=False,
        kind="switch",
    )
    models: tuple[tuple[str, Mapping[str, Any]], ...] = ()
    """Where there are several models: the name and the own settings of each."""

    def each_model(self) -> tuple[Settings, ...]:
        """The settings of each model that writes: one by default, and none if only others are named."""
        if self.models:
            return tuple(_for_model(self, name, own) for name, own in self.models)
        named = self.model is not None or any(getattr(self, engine) for engine in _ENGINES)
        return () if (self.transcribes or self.speech_model is not None) and not named else (self,)

    @property
    def transcribes(self) -> bool:
        """Whether a model that transcribes is named."""
        elsewhere = self.transcription_engine != "embedded" or bool(self.transcription_url)
        return self.transcription_model is not None or elsewhere


GROUPS = {
    "model": "which model",
    "transcription": "which model transcribes recordings; if no other model is named, the server does nothing else",
    "speech": "which model speaks; as for transcription",
    "engine": "what runs it: llama.cpp inside this process, if nothing else is named",
    "format": "what it writes, and how that is answered",
    "server": "who may ask",
    "limits": "how much, and how slowly",
}
_OF_A_MODEL = ("model", "engine", "format")
"""The groups of settings that each of several models may have for itself."""
_ENGINES = ("sglang", "vllm", "llama_cpp", "openai", "vllm_local", "replay", "tokens_only")
_PREFIX = "UNBRAID_"
_LEAST_SECRET = 32
_NEVER_EMPTY = ("api_key",)
"""Settings for which an empty variable does not mean that it is not set."""


_FIELDS = tuple(each for each in fields(Settings) if each.metadata)
"""Those that can be given."""


def add_flags(command: argparse.ArgumentParser) -> None:
    """Flags for all settings. Those that are not given have no default here: `read_settings` fills it in."""
    command.add_argument("--config", metavar="FILE", help='a TOML file with the same settings (model = "…")')
    groups = {name: command.add_argument_group(name, text) for name, text in GROUPS.items()}
    for each in _FIELDS:
        told = each.metadata
        flag = "--" + each.name.replace("_", "-")
        help = told["help"].replace("%", "%%")
        if each.default not in (MISSING, None, (), False):
            help += f" (default: {_shown(each.default)})"
        given: dict[str, Any] = {"help": help, "default": None}
        if told["kind"] == "switch":
            given["action"] = argparse.BooleanOptionalAction
        else:
            given["metavar"] = told["metavar"] if told["choices"] is None else None
            given["choices"] = told["choices"]
        if told["kind"] in ("list", "models"):
            given["action"] = "append"
        groups[told["group"]].add_argument(flag, **given)


def read_settings(arguments: argparse.Namespace, environment: Mapping[str, str] = os.environ) -> Settings:
    """The settings of flags, environment and file together."""
    path = arguments.config or environment.get(_PREFIX + "CONFIG")
    file = _read_file(path) if path else {}
    values: dict[str, Any] = {}
    for each in _FIELDS:
        flag = "--" + each.name.replace("_", "-")
        variable = _PREFIX + each.name.upper()
        if getattr(arguments, each.name) is not None:
            values[each.name] = _value(getattr(arguments, each.name), each.metadata, flag)
        elif environment.get(variable) or (variable in environment and each.name in _NEVER_EMPTY):
            text: Any = environment[variable]
            if each.metadata["kind"] == "list":
                text = [part.strip() for part in text.split(",")]
            values[each.name] = _value(text, each.metadata, variable)
        elif each.name in file:
            values[each.name] = _value(file[each.name], each.metadata, f"{each.name} in {path}")
    settings = Settings(**(values | _several(arguments, environment, file, path)))
    check_settings(settings)
    return settings


def settings_of(given: Mapping[str, Any], environment: Mapping[str, str] = os.environ) -> Settings:
    """The same, with names and values in place of flags, as they stand in a file: for those who are not started by a
    command line of ours. In a text for a list, commas separate."""
    kinds = {each.name: each.metadata["kind"] for each in _FIELDS}
    values: dict[str, Any] = dict.fromkeys((*kinds, "config"))
    for key, value in given.items():
        name = key.replace("-", "_")
        if name not in values:
            raise UnbraidError(f"there is no setting {key!r}: see `unbraid serve --help`")
        if kinds.get(name) == "list" and isinstance(value, str):
            value = [part.strip() for part in value.split(",")]
        values[name] = [value] if kinds.get(name) == "models" and isinstance(value, str) else value
    return read_settings(argparse.Namespace(**values), environment)


def json_object(text: str | None, flag: str, example: str) -> dict[str, Any]:
    """What a setting says as JSON; nothing, if it is not given."""
    try:
        found = json.loads(text or "{}")
    except (ValueError, RecursionError) as error:
        raise UnbraidError(f"{flag} must be JSON: {error}") from error
    if not isinstance(found, dict):
        raise UnbraidError(f"{flag} must be a JSON object such as {example}")
    return found


def check_settings(settings: Settings) -> None:
    """Raise `UnbraidError` for settings that nothing can be done with, or that contradict each other."""
    if not all(key.strip() for key in settings.api_key):
        raise UnbraidError("an API key is empty, which would let everybody in: give one, or leave --api-key out")
    if settings.workers < 1:
        raise UnbraidError(f"--workers must be at least 1, not {settings.workers}")
    if settings.workers > 1 and any(each.record for each in settings.each_model()):
        raise UnbraidError("--record writes one file, which several processes would spoil: leave --workers out")
    if settings.workers > 1 and settings.ray:
        raise UnbraidError("on Ray, --ray-api-replicas says how many processes there are: leave --workers out")
    if settings.secret is not None and len(settings.secret) < _LEAST_SECRET:
        raise UnbraidError(
            f"--secret has {len(settings.secret)} characters: give at least {_LEAST_SECRET}, such as those of "
            "`openssl rand -hex 32`"
        )
    settings.each_model()  # raises what is wrong with one of them


# Several models


def _several(
    arguments: argparse.Namespace, environment: Mapping[str, str], file: Mapping[str, Any], path: str | None
) -> dict[str, Any]:
    """The field `models`, where the settings name several or give one a name."""
    variable = environment.get(_PREFIX + "MODEL")
    given: list[str] = arguments.model or ([variable] if variable else [])
    if given and (len(given) > 1 or _is_named(given[0])):
        if not all(map(_is_named, given)):
            raise UnbraidError("several models need a name each: --model NAME=MODEL, --model NAME=vllm=URL and so on")
        tables = [_table(spec) for spec in given]
    elif not given and "models" in file:
        tables = [_file_table(table, path) for table in file["models"]]
    else:
        return {}
    names = [name for name, _ in tables]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise UnbraidError(f"two models have the name {twice!r}: give each its own")
    return {"model": None, "models": tuple(tables)}


_NAMED = re.compile(r"(?P<name>[A-Za-z0-9][A-Za-z0-9._:/-]*)=(?P<rest>.+)", re.DOTALL)


def _is_named(spec: str) -> bool:
    return _NAMED.fullmatch(spec) is not None and not Path(spec).exists()


def _table(spec: str) -> tuple[str, dict[str, Any]]:
    """`NAME=MODEL,SETTING=VALUE,…`: the name, and the settings. One that is given several times is a list."""
    found = _NAMED.fullmatch(spec)
    assert found is not None
    own: dict[str, list[str]] = {}
    last = "model"
    for at, part in enumerate(found["rest"].split(",")):
        setting, equals, value = part.partition("=")
        key = setting.strip().replace("-", "_")
        if equals and key.isidentifier() and "/" not in setting:
            own.setdefault(key, []).append(value)
            last = key
        elif at == 0:
            own["model"] = [part]
        else:  # a comma inside a value
            own[last][-1] += f",{part}"
    return found["name"], {key: values if len(values) > 1 else values[0] for key, values in own.items()}


def _file_table(table: Any, path: str | None) -> tuple[str, dict[str, Any]]:
    own = {key.replace("-", "_"): value for key, value in table.items()} if isinstance(table, dict) else {}
    name = own.pop("name", None)
    if not isinstance(name, str) or not name:
        raise UnbraidError(f"each of the [[models]] in {path} needs a name, which is what clients call it")
    return name, own


def _for_model(settings: Settings, name: str, own: Mapping[str, Any]) -> Settings:
    """The settings of one of several models."""
    if settings.served_model_name:
        raise UnbraidError("with several models, their names are those in --model: leave --served-model-name out")
    known = {each.name: each.metadata for each in _FIELDS if each.metadata["group"] in _OF_A_MODEL}
    unknown = next((key for key in own if key not in known), None)
    if unknown is not None:
        raise UnbraidError(f"the model {name!r} has a setting {unknown!r}, and there are {', '.join(known)}")
    values = {key: _value(value, known[key], f"{key} of the model {name!r}") for key, value in own.items()}
    if any(engine in own for engine in _ENGINES):  # its own engine, in place of the one for all
        values = {each.name: each.default for each in _FIELDS if each.name in _ENGINES} | values
    return replace(settings, models=(), **({"served_model_name": (name,)} | values))


def _read_file(path: str) -> dict[str, Any]:
    try:
        found = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise UnbraidError(f"the configuration {path} cannot be read: {error.strerror or error}") from error
    except ValueError as error:
        raise UnbraidError(f"the configuration {path} is no TOML: {error}") from error
    known = {each.name for each in _FIELDS} | {"models"}
    unknown = sorted({name.replace("-", "_") for name in found} - known)
    if unknown:
        raise UnbraidError(f"{path} has a setting {unknown[0]!r}, and there is none: see `unbraid serve --help`")
    return {name.replace("-", "_"): value for name, value in found.items()}


def _shown(default: Any) -> str:
    return ",".join(f"{one:g}" for one in default) if isinstance(default, tuple) else str(default)


def _counted(given: Any) -> Any:
    """What may be a number. A file can say `true`, which Python takes for 1."""
    if isinstance(given, bool):
        raise TypeError
    return given


def _amount(given: Any, where: str, positive: bool) -> float:
    """A number that is not negative, and not infinite either: no clock takes that."""
    try:
        found = float(_counted(given))
    except (TypeError, ValueError):
        raise UnbraidError(f"{where} must be a number, not {given!r}") from None
    if not 0.0 <= found < float("inf"):
        raise UnbraidError(f"{where} must be a number that is not negative, not {given!r}")
    if positive and not found:
        raise UnbraidError(f"{where} must be a number above 0, not {given!r}")
    return found


def _value(given: Any, told: Mapping[str, Any], where: str) -> Any:
    kind: Kind = told["kind"]
    if kind == "models":
        given = given[-1] if isinstance(given, list) else given
    if kind == "list":
        if not isinstance(given, str | list | tuple):
            raise UnbraidError(f"{where} must be a text or a list of texts, not {given!r}")
        return tuple(str(item) for item in ([given] if isinstance(given, str) else given))
    if kind == "number":
        try:
            found = int(_counted(given))
        except (TypeError, ValueError, OverflowError):
            raise UnbraidError(f"{where} must be a number, not {given!r}") from None
        if isinstance(given, float) and found != given:
            raise UnbraidError(f"{where} must be a whole number, not {given!r}")
        least, most = told["least"], told["most"]
        if most is not None and not least <= found <= most:
            raise UnbraidError(f"{where} must be a number from {least} to {most}, not {given!r}")
        if found < least:
            raise UnbraidError(f"{where} must be a number that is not below {least}, not {given!r}")
        return found
    if kind == "amount":
        return _amount(given, where, told["positive"])
    if kind == "amounts":
        parts = given.split(",") if isinstance(given, str) else given if isinstance(given, list) else [given]
        if len(parts) not in (1, 2):
            raise UnbraidError(f"{where} must be one number or two, separated by a comma, not {given!r}")
        return _amount(parts[0], where, told["positive"]), _amount(parts[-1], where, told["positive"])
    if kind == "switch":
        if str(given).lower() in ("true", "1", "yes", "on"):
            return True
        if str(given).lower() in ("false", "0", "no", "off"):
            return False
        raise UnbraidError(f"{where} must be true or false, not {given!r}")
    if kind == "choice" and given not in told["choices"]:
        raise UnbraidError(f"{where} must be one of {', '.join(told['choices'])}, not {given!r}")
    if isinstance(given, list | dict | bool):
        raise UnbraidError(f"{where} must be a text, not {given!r}")
    return str(given)
