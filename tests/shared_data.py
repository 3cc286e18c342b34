"""Test data that many formats share: `../shared` beside the repository, or the folder named by UNBRAID_SHARED."""

from __future__ import annotations

import os
from pathlib import Path

SHARED = Path(os.environ.get("UNBRAID_SHARED") or Path(__file__).resolve().parents[2] / "shared")


def absent(path: Path) -> str:
    """Why a test that needs `path` cannot run."""
    return f"no {path.relative_to(SHARED)} in the folder of shared test data: set UNBRAID_SHARED to where it is"
