"""unbraid on Ray: the server as an application of Ray Serve, and recorded outputs taken apart by Ray Data.

    application.py  settings to deployments: the API, and one for each engine that runs in a process
    ingress.py      the API's deployment: the server's ASGI application
    replicas.py     the engines' deployments: what runs in their processes
    engine.py       an engine, and a speech model, whose replicas are behind a handle of Ray Serve
    wire.py         what travels between them: requests and tokens, and errors as they were
    running.py      `unbraid serve --ray`
    data.py         `parse`, over datasets of Ray Data

Routing, health, scaling and rollout are Ray's. Token ids travel between the processes, never text that is tokenized
again. `import ray` in here is the real package.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from .data import parse

if TYPE_CHECKING:
    from ray.serve import Application

__all__ = ["app", "parse"]


def app(arguments: Mapping[str, Any]) -> Application:
    """The application, for `serve run unbraid.ray:app` and for `import_path` in a configuration of Ray Serve.

    arguments: settings by their names, as in a file for `unbraid serve --config`; `config` names such a file. They win
        over the environment (`UNBRAID_MODEL` and so on).
    """
    from ..server.settings_sources import settings_of
    from .application import build

    return build(settings_of(arguments))
