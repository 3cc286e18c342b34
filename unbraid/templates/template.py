"""A model's chat template: messages in, text out, as Hugging Face renders it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from types import TracebackType
from typing import TYPE_CHECKING, Any

from .errors import InvalidMessages, PromptError, TemplateBroken, TemplateTooMuch, clipped
from .marks import END, NO_CONTROLS, Controls, cleaned, unmark
from .sandbox.budget import WHILE_COMPILING, TemplateLimits, spending

if TYPE_CHECKING:
    import jinja2

Messages = Sequence[Mapping[str, Any]]
_REASONING = ("reasoning_content", "thinking", "reasoning")
"""The names that templates know reasoning by."""
_WITHOUT_JINJA = (
    "chat templates are rendered with jinja2, which is not installed: pip install 'unbraid[server]', or jinja2"
)


class ChatTemplate:
    """A chat template, ready to render. It is compiled when it is first used, or by `check`.

    source: the template itself.
    bos_token, eos_token, special_tokens: what the template may call by name.
    name: for error messages.
    """

    def __init__(
        self,
        source: str,
        *,
        bos_token: str = "",
        eos_token: str = "",
        special_tokens: Mapping[str, Any] | None = None,
        name: str = "the chat template",
        limits: TemplateLimits | None = None,
    ) -> None:
        self.source = source
        self.name = name
        self.limits = limits or TemplateLimits()
        self.special_tokens = {**(special_tokens or {}), "bos_token": bos_token, "eos_token": eos_token}
        if len(source) > self.limits.source:
            raise TemplateTooMuch(f"{name} has {len(source):,} characters; {self.limits.source:,} are the most")

    def __repr__(self) -> str:
        return f"ChatTemplate({self.name!r}, {len(self.source)} characters)"

    def check(self) -> None:
        """Raise `TemplateBroken` if this is no template."""
        _ = self._plain

    def render(
        self,
        messages: Messages,
        tools: Sequence[Mapping[str, Any]] | None = None,
        *,
        documents: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
        **kwargs: Any,
    ) -> str:
        """The prompt's text, for messages as the template wants them: nothing is changed about them, save that
        reasoning goes by all of its names.

        continue_final_message: leave the last message open, for the model to go on with. Whatever the template writes
            after its content is cut off.
        kwargs: further variables of the template (`enable_thinking=False`).
        """
        names = {"tools": tools, "documents": documents, **kwargs}
        given = {name: cleaned(value) for name, value in names.items()}
        given["add_generation_prompt"] = add_generation_prompt
        return unmark(self._plain.render(cleaned(list(messages)), given, continue_final_message))

    def marked(self, controls: Controls) -> Rendering:
        """The template with its own control tokens marked; costs as much as compiling it."""
        return Rendering(self, controls)

    @cached_property
    def _plain(self) -> Rendering:
        return Rendering(self, NO_CONTROLS)


class Rendering:
    """A compiled template. What it is given must be clean of surrogates, save for marks of our own."""

    def __init__(self, template: ChatTemplate, controls: Controls) -> None:
        self._name = template.name
        self._limits = template.limits
        self._compiled = _compile(template, controls)
        self._special_tokens = {
            name: controls.mark(value) if isinstance(value, str) else value
            for name, value in template.special_tokens.items()
        }

    def render(self, messages: list[dict[str, Any]], given: Mapping[str, Any], continue_final: bool) -> str:
        messages = [_with_reasoning(message) for message in messages]
        if continue_final:
            messages = [*messages[:-1], _left_open(messages)]
        text = self._run({**self._special_tokens, **given, "messages": messages})
        return _cut(text, self._name) if continue_final else text

    def _run(self, variables: dict[str, Any]) -> str:
        written: list[str] = []
        length = 0
        with spending(self._limits):
            try:
                for piece in self._compiled.root_render_func(self._compiled.new_context(variables)):
                    length += len(piece)
                    if length > self._limits.output:
                        raise TemplateTooMuch(f"it writes more than {self._limits.output:,} characters")
                    written.append(piece)
            except PromptError as error:
                if isinstance(error, TemplateTooMuch):
                    raise TemplateTooMuch(f"{self._name}: {error}") from None
                raise
            except (RecursionError, MemoryError):
                raise TemplateTooMuch(f"{self._name} nests too deep, or calls itself without end") from None
            except Exception as error:
                line = _line(self._compiled, error.__traceback__)
                raise _broken(self._name, line, unmark(str(error)).replace(END, ""), error) from error
        return "".join(written)


def _compile(template: ChatTemplate, controls: Controls) -> jinja2.Template:
    try:
        import jinja2

        from .sandbox.environment import environment, marked_tree
    except ImportError as error:
        raise PromptError(_WITHOUT_JINJA) from error
    try:
        with spending(WHILE_COMPILING):
            return environment().from_string(marked_tree(template.source, controls))
    except jinja2.TemplateSyntaxError as error:
        raise _broken(template.name, error.lineno, str(error.message), error) from error
    except (RecursionError, MemoryError):
        raise TemplateTooMuch(f"{template.name} nests too deep") from None
    except (SyntaxError, ValueError) as error:  # Python's own limits: on how code may nest, on the digits of a number
        raise _broken(template.name, None, str(error), error) from error


def _broken(name: str, line: int | None, message: str, error: Exception) -> TemplateBroken:
    where = f"{name}, line {line}" if line else name
    kind = type(error).__name__
    return TemplateBroken(f"{where}: {clipped(message) or kind} ({kind})", line)


def _line(template: jinja2.Template, trace: TracebackType | None) -> int | None:
    """The line of the template in which an error came up."""
    line = None
    while trace is not None:
        if trace.tb_frame.f_globals.get("__jinja_template__") is template:
            line = template.get_corresponding_lineno(trace.tb_lineno)
        trace = trace.tb_next
    return line


def _with_reasoning(message: dict[str, Any]) -> dict[str, Any]:
    """As Hugging Face does: the reasoning by the names that templates read."""
    reasoning = next((message[name] for name in _REASONING if message.get(name) is not None), None)
    return message if reasoning is None else {"thinking": reasoning, **message, "reasoning_content": reasoning}


# A last message that is left open. As Hugging Face does, a tag with a space after it marks the end of the content:
# where the space is gone, the template strips, and what it would strip from the content itself must go too.


def _left_open(messages: list[dict[str, Any]]) -> dict[str, Any]:
    where = f"messages[{len(messages) - 1}]"
    if not messages or messages[-1].get("role") != "assistant":
        raise InvalidMessages(
            "continue_final_message needs a last message whose role is assistant", field="continue_final_message"
        )
    last = messages[-1]
    content = last.get("content")
    if isinstance(content, str):
        return {**last, "content": content + END + " "}
    if isinstance(content, list):
        for at in range(len(content) - 1, -1, -1):
            if isinstance(content[at], dict) and isinstance(content[at].get("text"), str):
                part = {**content[at], "text": content[at]["text"] + END + " "}
                return {**last, "content": [*content[:at], part, *content[at + 1 :]]}
    raise InvalidMessages(f"{where} has no content to go on with")


def _cut(text: str, name: str) -> str:
    at = text.rfind(END)
    if at < 0:
        raise TemplateBroken(f"{name} does not write the content of the last message, so nothing can go on with it")
    return text[:at] if text.startswith(END + " ", at) else text[:at].rstrip()
