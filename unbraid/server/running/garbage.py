"""Python's collector of garbage, in a process that answers many at once.

To look through all objects takes it a twentieth of a second and more, in which nobody is answered. So it leaves alone
what was loaded, and looks at the rest less often: nearly all of a reply is freed without it.
"""

from __future__ import annotations

import gc

_THRESHOLDS = (10_000, 20, 20)  # Python's own are 700, 10 and 10


def spare_what_is_loaded() -> None:
    """Call it when all is loaded, and before the first request."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_THRESHOLDS)
