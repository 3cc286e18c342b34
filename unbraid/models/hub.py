"""Files of the Hugging Face hub, fetched with `huggingface_hub`, which is imported when it is needed."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

from .errors import ModelError
from .file_choice import files_below
from .packages import LONGEST_QUOTE

_TIMEOUT = 10.0
"""Seconds that the hub may take to answer. It is asked once: whoever is offline is told so, and does not wait."""


def hub_files(repository: str, cache: Path | None = None) -> list[str]:
    """The names of a repository's files. Without a network, those that were fetched before."""
    hub = _hub(repository)
    try:
        return sorted(file.rfilename for file in hub.HfApi().model_info(repository, timeout=_TIMEOUT).siblings or ())
    except Exception as error:
        problem = _hub_error(repository, None, error)
        fetched = _fetched(hub, repository, cache) if problem.unreachable else []
        if fetched:
            return fetched
        raise problem from error


def hub_download(repository: str, file: str, cache: Path | None, *, quiet: bool = False) -> Path:
    """One file of a repository, kept by the hub's own library: in `cache`, or in the hub's usual cache.

    quiet: without the library's progress bar, for small files beside a large one.
    """
    hub = _hub(repository)
    try:
        with _without_bars(hub) if quiet else nullcontext():
            return Path(hub.hf_hub_download(repository, file, cache_dir=_folder(cache), etag_timeout=_TIMEOUT))
    except Exception as error:
        raise _hub_error(repository, file, error) from error


def _folder(cache: Path | None) -> Path | None:
    return None if cache is None else cache / "huggingface"


def _fetched(hub: Any, repository: str, cache: Path | None) -> list[str]:
    """The files of a repository that the hub's library has kept."""
    try:
        folder = Path(hub.snapshot_download(repository, cache_dir=_folder(cache), local_files_only=True))
    except Exception:  # nothing of it is there, whatever the library calls that
        return []
    return files_below(folder, "")


@contextmanager
def _without_bars(hub: Any) -> Iterator[None]:
    if hub.utils.are_progress_bars_disabled():
        yield
        return
    hub.utils.disable_progress_bars()
    try:
        yield
    finally:
        hub.utils.enable_progress_bars()


def _hub(repository: str) -> Any:
    try:
        return importlib.import_module("huggingface_hub")
    except ImportError as error:
        raise ModelError(
            f"{repository} is on the Hugging Face hub, which takes a library: pip install huggingface_hub; "
            "or name a local file or folder"
        ) from error


def _hub_error(repository: str, file: str | None, error: Exception) -> ModelError:
    # By name, since the library has moved these classes between modules.
    names = {kind.__name__ for kind in type(error).__mro__}
    if "GatedRepoError" in names:
        return ModelError(f"{repository} asks for a licence: accept it on huggingface.co, then run `hf auth login`")
    if "RepositoryNotFoundError" in names:
        return ModelError(f"the Hugging Face hub has no repository {repository} (or it is private: `hf auth login`)")
    if "RemoteEntryNotFoundError" in names or (
        "EntryNotFoundError" in names and "LocalEntryNotFoundError" not in names
    ):
        return ModelError(f"{repository} on the Hugging Face hub has no file {file}")
    if "HFValidationError" in names:
        return ModelError(f"{repository!r} is no name of a repository on the Hugging Face hub: {error}")
    complaint = " ".join(str(error).split())[:LONGEST_QUOTE]
    return ModelError(
        f"the Hugging Face hub cannot be reached for {repository}: check the network (HTTPS_PROXY names a proxy, "
        f"HF_ENDPOINT a mirror), or name a model that is on this machine. It said: {complaint}",
        unreachable=True,
    )
