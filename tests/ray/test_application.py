"""What settings make of an application of Ray Serve. No cluster is needed for that."""

from __future__ import annotations

from typing import Any

import pytest

from unbraid import UnbraidError


@pytest.fixture(autouse=True)
def ray_serve() -> None:
    pytest.importorskip("ray.serve", reason="Ray Serve is not installed: pip install 'unbraid[ray]'")


def options(**given: Any) -> dict[str, Any]:
    """The options of the engine's deployment."""
    from unbraid.ray import app

    engine = app(given)._bound_deployment.init_args[1][""]._bound_deployment
    config = engine._deployment_config
    scaling = config.autoscaling_config
    return {
        "replicas": config.num_replicas if scaling is None else (scaling.min_replicas, scaling.max_replicas),
        "target": scaling and scaling.target_ongoing_requests,
        "resources": {name: value for name, value in engine.ray_actor_options.items() if value},
    }


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ({}, {"replicas": (1, 4), "target": 2.0, "resources": {"num_cpus": 1}}),
        ({"threads": 3, "ray_replicas": 2}, {"replicas": (2, 2), "target": 2.0, "resources": {"num_cpus": 3}}),
        (
            {"ray_options": '{"autoscaling_config": {"max_replicas": 9}, "ray_actor_options": {"num_gpus": 1}}'},
            {"replicas": (1, 9), "target": 2.0, "resources": {"num_cpus": 1, "num_gpus": 1}},
        ),
        ({"ray_options": '{"num_replicas": 3}'}, {"replicas": 3, "target": None, "resources": {"num_cpus": 1}}),
    ],
)
def test_options(given: dict[str, Any], found: dict[str, Any]) -> None:
    assert options(**given) == found


def test_health_checks_are_those_of_the_api_too() -> None:
    """Where the machine is busy, Ray would replace a process of the API that is only slow."""
    from unbraid.ray import app

    given = {"ray_options": '{"health_check_timeout_s": 77.0, "ray_actor_options": {"num_gpus": 1}}'}
    api = app(given)._bound_deployment
    assert api._deployment_config.health_check_timeout_s == 77.0
    assert not api.ray_actor_options.get("num_gpus")


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"ray_options": "{"}, "--ray-options must be JSON"),
        ({"ray_options": "[1]"}, "--ray-options must be a JSON object such as"),
        ({"ray_options": '{"nonsense": 1}'}, "--ray-options: Ray Serve does not take them .*nonsense"),
        ({"ray_options": '{"ray_actor_options": {"nonsense": 1}}'}, "--ray-options: .*nonsense"),
        ({"ray_options": '{"autoscaling_config": {"max_replicas": "x"}}'}, "--ray-options: .*max_replicas"),
        ({"ray_options": '{"autoscaling_config": 1}'}, "autoscaling_config in --ray-options must be a JSON object"),
        ({"ray_replicas": "4,1"}, "--ray-replicas must be one whole number or two, the smaller first, not 4,1"),
        ({"ray_replicas": "1.5"}, "--ray-replicas must be one whole number"),
        ({"record": "out.jsonl", "ray_api_replicas": 2}, "give --ray-api-replicas 1"),
        ({"threds": 1}, "there is no setting 'threds'"),
    ],
)
def test_what_is_wrong_is_told(given: dict[str, Any], told: str) -> None:
    with pytest.raises(UnbraidError, match=told):
        options(**given)
