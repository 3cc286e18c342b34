"""How much the property tests try: `HYPOTHESIS_PROFILE=long` for more than the ordinary run."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

# No deadlines: shared machines are noisy, and no test here is about time.
_always = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])
settings.register_profile("ordinary", _always, max_examples=40)
settings.register_profile("long", _always, max_examples=1000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ordinary"))
