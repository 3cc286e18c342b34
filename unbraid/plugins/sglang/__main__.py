"""`python -m unbraid.plugins.sglang serve …`: SGLang's own command, with unbraid's detectors in it."""

from __future__ import annotations

from unbraid.plugins import sglang

if __name__ == "__main__":
    sglang.main()
elif __name__ == "__mp_main__":
    # A process that SGLang has started: it begins with what the first one was started with.
    sglang.install()
