"""Files of the Hugging Face hub, fetched with `huggingface_hub`, which is imported when it is needed."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

from .errors import ModelError
from .packages import LONGEST_QUOTE


def hub_files(repository: str) -> list[str]:
    """The names of a repository's files."""
    hub = _hub(repository)
    try:
        return sorted(hub.HfApi().list_repo_files(repository))
    except Exception as error:
        raise _hub_error(repository, None, error) from error


def hub_download(repository: str, file: str, cache: Path | None) -> Path:
    """One file of a repository, kept by the hub's own library: in `cache`, or in the hub's usual cache."""
    hub = _hub(repository)
    folder = None if cache is None else cache / "huggingface"
    try:
        return Path(hub.hf_hub_download(repository, file, cache_dir=folder))
    except Exception as error:
        raise _hub_error(repository, file, error) from error


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
    said = " ".join(str(error).split())[:LONGEST_QUOTE]
    return ModelError(
        f"the Hugging Face hub cannot be reached for {repository}: check the network (HF_ENDPOINT names a mirror), or "
        f"name a local file or folder. It said: {said}"
    )
