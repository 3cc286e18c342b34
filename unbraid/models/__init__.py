"""Model files: found on disk or downloaded, checked and cached; and what a GGUF file says about its model.

    files = resolve("smollm2-135m-instruct")  # or a path, "ORG/REPO:FILE", "pypi:NAME==VERSION", "npm:NAME@VERSION"
    files.gguf

From a name to its files:

    model_files.py  every way to name a model, to its files; the catalog
    file_choice.py  which file of a model is meant: quantisations, shards
    installed.py    models that other programs have downloaded
    hub.py          files of the Hugging Face hub
    packages.py     packages of PyPI and npm, downloaded and unpacked
    pinned.py       files of packages whose SHA-256 is known
    cache.py        the cache of downloads: entries are whole or absent
    progress.py     how far a download is
    gguf.py         the header of a GGUF file, and its tokens as a vocabulary
    errors.py       `ModelError`
"""

from __future__ import annotations

from .cache import cache_folder
from .errors import ModelError
from .gguf import Gguf, GgufVocabulary
from .installed import Installed, installed_models, offer
from .model_files import CATALOG, DEFAULT, CatalogModel, ModelFiles, package_folder, resolve
from .progress import Progress, bar

__all__ = [
    "CATALOG",
    "DEFAULT",
    "CatalogModel",
    "Gguf",
    "GgufVocabulary",
    "Installed",
    "ModelError",
    "ModelFiles",
    "Progress",
    "bar",
    "cache_folder",
    "installed_models",
    "offer",
    "package_folder",
    "resolve",
]
