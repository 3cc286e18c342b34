"""All clients that the contract is asked of."""

from __future__ import annotations

from . import elsewhere, frameworks, vendors
from .contract import Client

CLIENTS: tuple[Client, ...] = (*vendors.CLIENTS, *frameworks.CLIENTS, *elsewhere.CLIENTS)
