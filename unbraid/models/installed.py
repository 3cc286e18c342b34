"""Models that other programs have downloaded to this machine: Ollama, LM Studio, llama.cpp and the Hugging Face hub.

All of them keep GGUF files, each in a layout of its own; `_SOURCES` has one function for each. They only look at names
and sizes, so that the server can look at every start. To add a program, add its function there.

A folder of another program may be there or not, half written, or unreadable: whatever cannot be read is left out.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from .cache import user_cache
from .file_choice import is_first

_NO_CHAT = re.compile(r"mmproj|embed|rerank|bge-|whisper|clip", re.IGNORECASE)
"""Names of files that hold no model to talk to."""
_OLLAMA_MODEL = "application/vnd.ollama.image.model"
_OLLAMA_HOME = "registry.ollama.ai"
_MOST_OFFERED = 4


@dataclass(frozen=True)
class Installed:
    """A model that is there already."""

    spec: str
    """What `--model` takes."""
    program: str
    """Whose it is."""
    path: Path
    size: int

    @property
    def name(self) -> str:
        """What to call it: the name that its program knows."""
        return self.spec.partition(":")[2] if self.program != _HUB else self.spec


def installed_models() -> list[Installed]:
    """Every model that is found, largest first."""
    models = {each.spec: each for source in _SOURCES for each in source() if not _NO_CHAT.search(each.spec)}
    return sorted(models.values(), key=lambda each: (-each.size, each.spec))


def installed_model(spec: str) -> Installed | None:
    """The model of that name; None if there is none. `ollama:qwen3` is `ollama:qwen3:latest`."""
    for name in (spec, f"{spec}:latest"):
        for each in installed_models():
            if each.spec == name:
                return each
    return None


def offer(than: int) -> str | None:
    """A sentence that offers models that are larger than so many bytes; None if there are none."""
    larger = [each for each in installed_models() if each.size > than]
    if not larger:
        return None
    shown = [f"--model {each.spec} ({_amount(each.size)}, {each.program})" for each in larger[:_MOST_OFFERED]]
    more = len(larger) - _MOST_OFFERED
    return f"larger models are on this machine: {', '.join(shown)}" + (f" and {more} more" if more > 0 else "")


def _amount(size: int) -> str:
    return f"{size / 1e9:.1f} GB" if size >= 10**9 else f"{size / 1e6:.0f} MB"


def _ollama() -> Iterator[Installed]:
    """A manifest for each model, by its registry, namespace, name and tag; it names the blob of the weights."""
    for home in _ollama_folders():
        manifests = home / "manifests"
        for path in _files(manifests):
            registry, *parts = path.relative_to(manifests).parts
            if len(parts) != 3:
                continue
            namespace, name, tag = parts
            full = name if namespace == "library" else f"{namespace}/{name}"
            full = full if registry == _OLLAMA_HOME else f"{registry}/{full}"
            blob = _blob(path, home)
            if blob is not None and (size := _size(blob)):
                yield Installed(f"ollama:{full}:{tag}", "Ollama", blob, size)


def _ollama_folders() -> list[Path]:
    named = os.environ.get("OLLAMA_MODELS")
    if named:
        return [Path(named).expanduser()]
    return [Path.home() / ".ollama" / "models", Path("/usr/share/ollama/.ollama/models")]


def _blob(manifest: Path, home: Path) -> Path | None:
    with suppress(OSError, ValueError, AttributeError, TypeError, KeyError):
        for layer in json.loads(manifest.read_bytes())["layers"]:
            if layer["mediaType"] == _OLLAMA_MODEL and re.fullmatch(r"sha256:[0-9a-f]{64}", layer["digest"]):
                return home / "blobs" / str(layer["digest"]).replace(":", "-")
    return None


def _lm_studio() -> Iterator[Installed]:
    """`PUBLISHER/REPOSITORY/FILE.gguf`."""
    for home in (Path.home() / ".lmstudio" / "models", Path.home() / ".cache" / "lm-studio" / "models"):
        for path in _ggufs(home):
            yield Installed(f"lmstudio:{path.relative_to(home).as_posix()}", "LM Studio", path, _size(path))


def _llama_cpp() -> Iterator[Installed]:
    """Files whose names hold the repository's."""
    named = os.environ.get("LLAMA_CACHE")
    home = Path(named).expanduser() if named else user_cache() / "llama.cpp"
    for path in _ggufs(home):
        yield Installed(f"llama.cpp:{path.relative_to(home).as_posix()}", "llama.cpp", path, _size(path))


_HUB = "Hugging Face"


def _hub() -> Iterator[Installed]:
    """`models--ORG--REPO/snapshots/COMMIT/FILE.gguf`, links to blobs."""
    home = _hub_folder()
    with suppress(OSError):
        for repository in sorted(home.glob("models--*--*")):
            name = repository.name.removeprefix("models--").replace("--", "/", 1)
            for path in _ggufs(repository / "snapshots"):
                file = path.relative_to(repository / "snapshots").as_posix().partition("/")[2]
                yield Installed(f"{name}:{file}", _HUB, path, _size(path))


def _hub_folder() -> Path:
    for variable, below in (("HF_HUB_CACHE", ""), ("HF_HOME", "hub")):
        if os.environ.get(variable):
            return Path(os.environ[variable]).expanduser() / below
    # Not the system's folder for caches: the hub's library has this one everywhere.
    cache = os.environ.get("XDG_CACHE_HOME")
    return (Path(cache).expanduser() if cache else Path.home() / ".cache") / "huggingface" / "hub"


def _ggufs(folder: Path) -> Iterator[Path]:
    """The models below a folder. Of one in shards, the first counts."""
    for path in _files(folder):
        if path.suffix.lower() == ".gguf" and is_first(path.name):
            yield path


def _files(folder: Path) -> list[Path]:
    paths: list[Path] = []
    for place, _, names in os.walk(folder):  # passes over what it may not read
        paths += [Path(place) / name for name in names]
    return sorted(paths)


def _size(path: Path) -> int:
    """0 for what is not there, such as a link to a blob that was deleted."""
    try:
        return path.stat().st_size
    except OSError:
        return 0


_SOURCES: tuple[Callable[[], Iterator[Installed]], ...] = (_ollama, _lm_studio, _llama_cpp, _hub)
PREFIXES = ("ollama:", "lmstudio:", "llama.cpp:")
"""What the names of models begin with that other programs have. Those of the hub are the hub's."""
