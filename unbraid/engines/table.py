"""The table of engines. **To add one, write its module and add a field to `EngineTable`**: all else follows from it.

    sglang: tuple[str, ...] = servers("SGLang servers, one URL each", _sglang, syntax="structural_tag")

is the flag `--sglang URL`, the variable `UNBRAID_SGLANG` and the key `sglang` in a file of settings; the syntax of the
grammars that the server prints for it; how `unbraid serve` makes the engine; and whether Ray runs replicas of it. The
type of the field is what the flag takes. Engines are imported when they are made, so that the table loads none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, Literal

from ..errors import UnbraidError

if TYPE_CHECKING:
    from ..constraints.printers import GrammarSyntax
    from ..templates.sources import TokenizerFiles
    from .base import Engine, EngineOptions
    from .server import Servers

    MakeServers = Callable[..., Servers]
    """The class of an engine that is one or several servers. Takes their URLs and `ServerOptions`."""
    Loaded = tuple[Engine, TokenizerFiles]
    """An engine, and its model's tokenizer and templates, as far as they are known."""


@dataclass(frozen=True, kw_only=True)
class EngineKind:
    """One engine, as its field in the table declares it."""

    syntax: GrammarSyntax | None
    """The syntax of the grammars that it takes. None if it takes none."""
    servers: Callable[[], MakeServers] | None = None
    """Imports the class of an engine elsewhere. Its replicas are several URLs, behind `engines.routing`."""
    load: Callable[[EngineOptions], Loaded] | None = None
    """Makes an engine in this process. It may block for minutes."""
    replicas: bool = True
    """Whether Ray may run replicas of an engine in this process."""
    tokenizer_at: tuple[str, ...] = ()
    """Paths of a server, the newest first, that name the place of its model's tokenizer."""
    template_at: str | None = None
    """The path of a server that shows its model's chat template, if it shows no tokenizer."""
    may_be_ollama: bool = False
    """Whether a server may be Ollama, which templates prompts itself."""
    tokenizer_in_files: bool = False
    """Whether the tokenizer is read from the model's files, and so can be had without the engine."""
    queues: bool = False
    """Whether it runs `--parallel` requests at once, lets `--queue` more wait, and refuses all others."""
    refuses_constraints: bool = False
    """Whether requests that need a constraint must be refused. Otherwise `syntax=None` means: it ignores them."""

    @property
    def place(self) -> Literal["here", "elsewhere"]:
        """Whether the engine runs in this process."""
        return "elsewhere" if self.load is None else "here"


def servers(help: str, make: Callable[[], MakeServers], *, syntax: GrammarSyntax | None, **kind: Any) -> Any:
    """A field of the table for an engine elsewhere. Its flag takes URLs."""
    return _flag(help, (), "URL", EngineKind(servers=make, syntax=syntax, **kind))


def local(
    help: str,
    load: Callable[[EngineOptions], Loaded],
    default: object,
    metavar: str | None = None,
    *,
    syntax: GrammarSyntax | None,
    **kind: Any,
) -> Any:
    """A field of the table for an engine in this process. `default` is the value of its flag if it is not given."""
    return _flag(help, default, metavar, EngineKind(load=load, syntax=syntax, **kind))


def _flag(help: str, default: Any, metavar: str | None, kind: EngineKind) -> Any:
    return field(default=default, metadata={"help": help, "metavar": metavar, "engine": kind})


def _sglang() -> MakeServers:
    from .sglang import SGLangEngine

    return SGLangEngine


def _vllm() -> MakeServers:
    from .vllm.server import VLLMEngine

    return VLLMEngine


def _llama_cpp() -> MakeServers:
    from .llama_cpp.server import LlamaCppServerEngine

    return LlamaCppServerEngine


def _openai() -> MakeServers:
    from .openai import OpenAIEngine

    return OpenAIEngine


def _vllm_local(options: EngineOptions) -> Loaded:
    from .vllm.local import load

    return load(options)


def _replay(options: EngineOptions) -> Loaded:
    from .recording import load

    return load(options)


def _tokens_only(options: EngineOptions) -> Loaded:
    from .no_engine import load

    return load(options)


def _embedded(options: EngineOptions) -> Loaded:
    try:
        from .llama_cpp.embedded import load
    except ImportError as error:
        raise UnbraidError(f"the embedded engine is not installed ({error}): pip install 'unbraid[server]'") from error
    return load(options)


@dataclass(frozen=True, kw_only=True)
class EngineTable:
    """All engines that have a flag. `unbraid.server.settings` takes these fields as settings."""

    sglang: tuple[str, ...] = servers(
        "SGLang servers, one URL each",
        _sglang,
        syntax="structural_tag",
        tokenizer_at=("/model_info", "/get_model_info"),
    )
    vllm: tuple[str, ...] = servers("vLLM servers", _vllm, syntax="structural_tag", tokenizer_at=("/v1/models",))
    llama_cpp: tuple[str, ...] = servers("llama.cpp servers", _llama_cpp, syntax="gbnf", template_at="/props")
    openai: tuple[str, ...] = servers(
        "servers with OpenAI's completions", _openai, syntax=None, refuses_constraints=True, may_be_ollama=True
    )
    vllm_local: bool = local(
        "vLLM inside this process", _vllm_local, False, syntax="structural_tag", tokenizer_in_files=True
    )
    replay: str | None = local("play a recording instead of a model", _replay, None, "FILE", syntax=None)
    tokens_only: bool = local(
        "no engine: render prompts and parse outputs for gateways, such as llm-d's",
        _tokens_only,
        False,
        syntax="structural_tag",
        replicas=False,
    )


ENGINES: Mapping[str, EngineKind] = {each.name: each.metadata["engine"] for each in fields(EngineTable)}
"""The engines by the names of their settings."""
EMBEDDED = EngineKind(load=_embedded, syntax="gbnf", queues=True)
"""llama.cpp inside this process: the engine if no other is named."""


def engine_of(settings: EngineTable) -> tuple[str | None, EngineKind]:
    """The engine that the settings name, and the name of its setting; `EMBEDDED` and None if they name none."""
    names = [name for name in ENGINES if getattr(settings, name)]
    if len(names) > 1:
        flags = " and ".join("--" + name.replace("_", "-") for name in names)
        raise UnbraidError(f"{flags} name different engines: give one")
    return (names[0], ENGINES[names[0]]) if names else (None, EMBEDDED)
