"""Hooks: what the plug-ins rely on in vLLM and SGLang, against what is installed and against engines that changed.

If one of these fails with a new version of an engine, its message names what the engine changed.
"""

from __future__ import annotations

import sys
from importlib.util import find_spec
from types import ModuleType, SimpleNamespace

import pytest

from unbraid.plugins.hooks import Hook, Supported, broken_hooks
from unbraid.plugins.sglang import hooks as sglang_hooks
from unbraid.plugins.vllm import hooks as vllm_hooks

from .sglang.package import parsers


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """A package `engine` with a class `Parser`."""

    class Parser:
        strict = True

        def parse(self, text: str, request: object) -> str:
            return text

    module = ModuleType("engine")
    vars(module).update(Parser=Parser)
    monkeypatch.setitem(sys.modules, "engine", module)
    return module


@pytest.mark.parametrize(
    ("hook", "problem"),
    [
        (Hook("engine", "Parser.parse", ("self", "text", "request")), None),
        (Hook("engine", "Parser.parse", accepts=("request",)), None),
        (Hook("engine", "Parser.strict"), None),
        (
            Hook("engine", "Parser.parse", ("self", "text")),
            "Parser.parse takes (self, text, request), not (self, text)",
        ),
        (Hook("engine", "Parser.parse", accepts=("ids",)), "Parser.parse does not take ids"),
        (Hook("engine", "Parser.finish"), "engine has no Parser.finish"),
        (Hook("engine", "Manager.finish"), "engine has no Manager.finish"),
        (
            Hook("engine.core", "Manager"),
            "engine.core cannot be imported (No module named 'engine.core'; 'engine' is not a package)",
        ),
    ],
)
def test_what_changed_is_named(engine: ModuleType, hook: Hook, problem: str | None) -> None:
    assert hook.problem() == problem


def test_each_problem_is_named_once(engine: ModuleType) -> None:
    hooks = (Hook("gone", "a"), Hook("gone", "b"), Hook("engine", "Parser"))
    assert broken_hooks(hooks) == ["gone cannot be imported (No module named 'gone')"]


def test_supported_versions() -> None:
    supported = Supported("engine", "0.5.23", "0.6")
    assert str(supported) == "engine>=0.5.23,<0.6"
    assert [supported.includes(version) for version in ("0.5.22", "0.5.23", "0.5.31.post1", "0.6.0", "dev")] == [
        False,
        True,
        True,
        False,
        False,
    ]
    assert supported.installed() is None
    assert Supported("pytest", "1", "999").installed() == pytest.__version__


def test_hooks_are_those_of_the_installed_vllm() -> None:
    if find_spec("vllm") is None:
        pytest.skip("vLLM is not installed here: make test-engines")
    assert broken_hooks((*vllm_hooks.HOOKS, *vllm_hooks.REQUEST_HOOKS)) == []
    installed = vllm_hooks.SUPPORTED.installed()
    assert installed is not None
    assert vllm_hooks.SUPPORTED.includes(installed)


def test_a_vllm_that_changed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """A vLLM without `DelegatingParser.parse_delta`, and with another `get_parser`."""

    class Changed(ModuleType):
        def __getattr__(self, name: str) -> object:
            if name.startswith("__"):
                raise AttributeError(name)
            return SimpleNamespace(get_parser=lambda tool_parser, reasoning_parser: None, parse=lambda: None)

    for hook in vllm_hooks.HOOKS:
        for at in range(len(hook.module.split("."))):
            name = ".".join(hook.module.split(".")[: at + 1])
            monkeypatch.setitem(sys.modules, name, Changed(name))
    problems = broken_hooks(vllm_hooks.HOOKS)
    assert problems[0].startswith("ParserManager.get_parser does not take tool_parser_name, reasoning_parser_name")
    assert "vllm.parser.abstract_parser has no DelegatingParser.parse_delta" in problems


def test_hooks_are_those_of_the_installed_sglang() -> None:
    parsers()  # skips without SGLang
    assert broken_hooks((*sglang_hooks.HOOKS, *sglang_hooks.SIGNATURES)) == []
    installed = sglang_hooks.SUPPORTED.installed()
    assert installed is None or sglang_hooks.SUPPORTED.includes(installed)
