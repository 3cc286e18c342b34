"""Where things are: the repository, the cache of downloads, and the data that is shared with other projects."""

from __future__ import annotations

import os
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CACHE = Path(os.environ.get("UNBRAID_TEST_CACHE") or ROOT / ".cache")
SHARED = Path(os.environ.get("UNBRAID_SHARED") or ROOT.parent / "shared")


def absent(path: Path) -> str:
    """Why a test that needs `path` cannot run."""
    return f"no {path.relative_to(SHARED)} in the folder of shared test data: set UNBRAID_SHARED to where it is"
