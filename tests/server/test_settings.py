"""Settings from flags, the environment and files: which one counts, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from unbraid import UnbraidError
from unbraid.server.settings import Settings

from ..support.settings import settings_of


def test_a_flag_goes_before_the_environment_and_that_before_the_file(tmp_path: Path) -> None:
    file = tmp_path / "unbraid.toml"
    file.write_text('model = "a"\nhost = "::1"\nport = 1\nserved-model-name = ["x", "y"]\nvllm_local = true\n')
    found = settings_of("--config", str(file), "--port", "3", UNBRAID_PORT="2", UNBRAID_HOST="0.0.0.0")
    assert (found.model, found.host, found.port, found.served_model_name) == ("a", "0.0.0.0", 3, ("x", "y"))
    assert found.vllm_local
    assert settings_of(UNBRAID_CONFIG=str(file)).port == 1


def test_what_is_not_given_has_its_default() -> None:
    assert settings_of() == Settings()


def test_one_timeout_or_two(tmp_path: Path) -> None:
    assert settings_of().upstream_timeout is None
    assert settings_of("--upstream-timeout", "30").upstream_timeout == (30.0, 30.0)
    assert settings_of("--upstream-timeout", "300, 30").upstream_timeout == (300.0, 30.0)
    assert settings_of(UNBRAID_UPSTREAM_TIMEOUT="300,30").upstream_timeout == (300.0, 30.0)
    file = tmp_path / "unbraid.toml"
    for text in ("30", "[30, 30]", '"30"', '"30,30"'):
        file.write_text(f"upstream_timeout = {text}")
        assert settings_of("--config", str(file)).upstream_timeout == (30.0, 30.0)


@pytest.mark.parametrize("given", ["x", "1,", "nan", "inf", "-1", "", "1,2,3", "0", "1,0"])
def test_what_is_no_timeout(given: str) -> None:
    with pytest.raises(UnbraidError, match="--upstream-timeout must be"):
        settings_of("--upstream-timeout", given)


def test_lists() -> None:
    assert settings_of("--sglang", "http://a", "--sglang", "http://b").sglang == ("http://a", "http://b")
    assert settings_of(UNBRAID_API_KEY="one, two").api_key == ("one", "two")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("port = 'x'", "port in .* must be a whole number from 0 to 65535, not 'x'"),
        ("workers = true", "workers in .* must be a whole number of at least 1, not True"),
        ("workers = 1.5", "workers in .* must be a whole number of at least 1, not 1.5"),
        ("port = inf", "port in .* must be a whole number from 0 to 65535, not inf"),
        ("drain_seconds = true", "drain_seconds in .* must be a number of at least 0, not True"),
        ("api_key = 5", "api_key in .* must be a text or a list of texts, not 5"),
        ("host = ['a', 'b']", "host in .* must be a text"),
        ("modles = 'x'", "a setting 'modles', and there is none"),
        ("vllm_local = 'maybe'", "must be true or false"),
        ("unknown_tools = 'drop'", "must be one of text, emit"),
        ("model =", "is no TOML"),
    ],
)
def test_files_that_are_wrong(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "unbraid.toml"
    file.write_text(text)
    with pytest.raises(UnbraidError, match=said):
        settings_of("--config", str(file))


@pytest.mark.parametrize("keys", [[""], ["one", " "]])
def test_an_empty_key_is_refused(keys: list[str]) -> None:
    with pytest.raises(UnbraidError, match="API key is empty"):
        settings_of(*(part for key in keys for part in ("--api-key", key)))


def test_an_empty_key_in_the_environment_is_refused() -> None:
    with pytest.raises(UnbraidError, match="API key is empty"):
        settings_of(UNBRAID_API_KEY="")


def test_a_short_secret_is_refused() -> None:
    with pytest.raises(UnbraidError, match="at least 32"):
        settings_of("--secret", "short")
    assert settings_of("--secret", "x" * 32).secret == "x" * 32


@pytest.mark.parametrize("port", ["-1", "65536"])
def test_a_port_that_is_none_is_refused(port: str) -> None:
    with pytest.raises(UnbraidError, match="--port must be a whole number from 0 to 65535"):
        settings_of("--port", port)
