"""Settings as `unbraid serve` reads them."""

from __future__ import annotations

import argparse

from unbraid.server.settings import Settings
from unbraid.server.settings_sources import add_flags, read_settings


def settings_of(*flags: str, **environment: str) -> Settings:
    command = argparse.ArgumentParser()
    add_flags(command)
    return read_settings(command.parse_args(flags), environment)
