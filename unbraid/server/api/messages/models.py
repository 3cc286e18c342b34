"""The list of models in Anthropic's shape, for clients that send `anthropic-version`."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from ...service import Service


def model_info(service: Service, name: str) -> dict[str, Any]:
    context = service.served(name).engine.context
    return {
        "type": "model",
        "id": name,
        "display_name": name,
        "created_at": datetime.fromtimestamp(service.created, UTC).isoformat().replace("+00:00", "Z"),
        "lifecycle": "active",
        "max_input_tokens": context,
        "max_tokens": context,
    }


def model_list(service: Service, names: Sequence[str]) -> dict[str, Any]:
    """All of them: there are few, and so there are no pages."""
    found = [model_info(service, name) for name in names]
    first, last = (names[0], names[-1]) if names else (None, None)
    return {"data": found, "has_more": False, "first_id": first, "last_id": last}
