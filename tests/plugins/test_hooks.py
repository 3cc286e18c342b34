"""Hooks: what the plug-ins rely on in vLLM and SGLang, against what is installed and against engines that changed.

If one of these fails with a new version of an engine, its message names what the engine changed.
"""

from __future__ import annotations

import inspect
import sys
from importlib.util import find_spec
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

import unbraid
from unbraid import Format
from unbraid.plugins import self_test
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

        def more(self, text: str, request: object, ids: object = None, *, finished: bool, priority: int = 0) -> None:
            """With optional parameters that its hook does not name."""

        def moved(self, ids: object = None, text: str = "") -> None:
            """With one before a parameter that has a position."""

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
        (Hook("engine", "Parser.more", ("self", "text", "request", "finished")), None),
        (
            Hook("engine", "Parser.more", ("self", "request", "finished")),
            "Parser.more takes (self, text, request, ids, finished, priority), not (self, request, finished)",
        ),
        (
            Hook("engine", "Parser.moved", ("self", "text")),
            "Parser.moved takes (self, ids, text), not (self, text)",
        ),
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


@pytest.fixture
def untested(engine: ModuleType) -> Supported:
    """An engine whose version nobody knows."""
    return Supported("Engine", "1", "2")


def test_a_version_that_was_not_tested_is_tested_at_start(
    untested: Supported, caplog: pytest.LogCaptureFixture
) -> None:
    assert untested.problem((), lambda: ()) is None
    assert "was tested with engine>=1,<2; Engine of an unknown version passed its self-test" in caplog.text


@pytest.mark.parametrize("fails", [lambda: ["hermes streamed reads 1 as 2"], lambda: 1 / 0])
def test_what_fails_at_start_is_named(untested: Supported, fails: Any) -> None:
    problem = untested.problem((), fails)
    assert problem is not None
    assert "this Engine (of an unknown version) does not fit: " in problem
    assert "hermes streamed reads 1 as 2" in problem or "ZeroDivisionError" in problem


def test_the_self_test_names_what_is_read_otherwise() -> None:
    def right(format: Format, text: str, whole: bool) -> self_test.Reply:
        message = unbraid.parse(format, text)
        return message.reasoning, message.content, [(call.name, call.arguments) for call in message.tool_calls]

    def wrong(format: Format, text: str, whole: bool) -> self_test.Reply:
        return right(format, text if whole else text[:-1].replace("So", "No"), whole)

    assert list(self_test.failures(right)) == []
    said = list(self_test.failures(wrong))
    assert [one.partition(" reads ")[0] for one in said] == [f"{name} streamed" for name in self_test.FORMATS]


def test_the_installed_engines_pass_it() -> None:
    parsers()  # skips without SGLang
    if find_spec("vllm") is None:
        pytest.skip("vLLM is not installed here: make test-engines")
    from unbraid.plugins.sglang.registration import self_test as of_sglang
    from unbraid.plugins.vllm.combined_parser import self_test as of_vllm

    assert [*of_vllm(), *of_sglang()] == []


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


def test_what_overrides_takes_whatever_comes() -> None:
    """A hook admits optional parameters that it does not name, so what takes the place of its function must too."""
    parsers()  # skips without SGLang
    if find_spec("vllm") is None:
        pytest.skip("vLLM is not installed here: make test-engines")
    from unbraid.plugins.sglang.detectors import ReasoningParsing, ToolParsing
    from unbraid.plugins.vllm.combined_parser import CombinedParser
    from unbraid.plugins.vllm.parsers import UnbraidReasoningParser, UnbraidToolParser

    ours: dict[str, Any] = {
        "DelegatingParser": CombinedParser,
        "ToolParser": UnbraidToolParser,
        "ReasoningParser": UnbraidReasoningParser,
        "BaseFormatDetector": ToolParsing,
        "BaseReasoningFormatDetector": ReasoningParsing,
    }
    hooks = [hook for hook in (*vllm_hooks.HOOKS, *sglang_hooks.HOOKS) if hook.parameters is not None]
    overridden = [
        (own, hook) for hook in hooks if (own := vars(ours[hook.name.split(".")[0]]).get(hook.name.split(".")[1]))
    ]
    assert len(overridden) > 15
    for own, hook in overridden:
        kinds = {one.kind for one in inspect.signature(own).parameters.values()}
        assert {inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD} <= kinds, hook.name


def test_hooks_are_those_of_the_installed_sglang() -> None:
    parsers()  # skips without SGLang
    assert broken_hooks((*sglang_hooks.HOOKS, *sglang_hooks.SERVER_HOOKS)) == []
    installed = sglang_hooks.SUPPORTED.installed()
    assert installed is None or sglang_hooks.SUPPORTED.includes(installed)
