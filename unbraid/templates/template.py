"""Chat templates: Jinja programs that turn messages into the text of a prompt, as Hugging Face renders them.

`ChatTemplate` is the source with its options; `CompiledTemplate` is the source compiled for one vocabulary, with that
vocabulary's control tokens marked (`control_tokens`). Compilation and rendering run in the sandbox (`sandbox`), within
`TemplateLimits`: templates come with models, and models come from anywhere. Jinja is imported when the first template
is compiled, so that `unbraid` itself needs no dependency.

Errors of a template name it, and the line where they came up.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from types import TracebackType
from typing import TYPE_CHECKING, Any

from ..errors import Place
from .control_tokens import END, NO_CONTROL_TOKENS, ControlTokens, sanitize, unmark
from .errors import InvalidMessages, PromptError, TemplateBroken, TemplateTooMuch, clip
from .sandbox.budget import WHILE_COMPILING, TemplateLimits, spending
from .symbolic_text import Symbol
from .traced_text import REASONING_FIELDS, Trace, joined, trace_of, traced_message

if TYPE_CHECKING:
    import jinja2

Messages = Sequence[Mapping[str, Any]]
_WITHOUT_JINJA = "chat templates need jinja2, which is not installed: pip install 'unbraid[templates]'"


class ChatTemplate:
    """A chat template. It is compiled when it is first used, or by `check`.

    source: the Jinja text.
    bos_token, eos_token, special_tokens: what the template may use by name.
    name: for error messages.
    limits: what it may do; see `TemplateLimits`.
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

    def __getstate__(self) -> dict[str, Any]:
        """What is compiled stays in its process."""
        return {name: value for name, value in vars(self).items() if name != "_plain"}

    def __repr__(self) -> str:
        return f"ChatTemplate({self.name!r}, {len(self.source)} characters)"

    def check(self) -> None:
        """Compile it. Raises `TemplateBroken` for text that is no template."""
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
        """The prompt's text. Messages are passed on as they are, except that reasoning gets all of its usual names.

        continue_final_message: leave the last message open for the model to continue. Whatever the template writes
            after its content is cut off.
        kwargs: further variables of the template (`enable_thinking=False`).
        """
        values = {"tools": tools, "documents": documents, **kwargs}
        variables = {name: sanitize(value) for name, value in values.items()}
        variables["add_generation_prompt"] = add_generation_prompt
        return unmark(self._plain.render(sanitize(list(messages)), variables, continue_final_message))

    def compile(self, controls: ControlTokens, *, traced: bool = False) -> CompiledTemplate:
        """The template with these control tokens marked in its own text. This takes milliseconds: keep the result.

        traced: for `CompiledTemplate.trace`.
        """
        return CompiledTemplate(self, controls, traced)

    def limited(self, limits: TemplateLimits) -> ChatTemplate:
        """The same template with other limits."""
        tokens = dict(self.special_tokens)
        bos, eos = tokens.pop("bos_token"), tokens.pop("eos_token")
        return ChatTemplate(
            self.source, bos_token=bos, eos_token=eos, special_tokens=tokens, name=self.name, limits=limits
        )

    @cached_property
    def _plain(self) -> CompiledTemplate:
        return CompiledTemplate(self, NO_CONTROL_TOKENS)


class CompiledTemplate:
    """A template, ready to render. Its input must be sanitised: the only surrogates in it are marks of ours."""

    def __init__(self, template: ChatTemplate, controls: ControlTokens, traced: bool = False) -> None:
        self.name = template.name
        self._limits = template.limits
        self._compiled = _compile(template, controls, traced)
        self._special_tokens = {
            name: controls.mark(value) if isinstance(value, str) else value
            for name, value in template.special_tokens.items()
        }

    def render(self, messages: list[dict[str, Any]], variables: Mapping[str, Any], continue_final: bool) -> str:
        """The text, with marks in it."""
        return self._rendered(messages, variables, continue_final, [], traced=False)

    def trace(
        self, messages: list[dict[str, Any]], variables: Mapping[str, Any], continue_final: bool
    ) -> tuple[str, Trace]:
        """The text with marks in it, and where it comes from. The template must have been compiled for it."""
        from .sandbox.syntax_tree import tracing  # it needs Jinja

        lines: list[tuple[int, int]] = []
        with tracing():
            text = self._rendered(messages, variables, continue_final, lines, traced=True)
        if isinstance(text, Symbol):
            text.record.output = text.expression
        return str.__str__(text), trace_of(text, lines, self._compiled.get_corresponding_lineno)

    def _rendered(
        self,
        messages: list[dict[str, Any]],
        variables: Mapping[str, Any],
        continue_final: bool,
        lines: list[tuple[int, int]],
        traced: bool,
    ) -> str:
        messages = [_with_reasoning(message) for message in messages]
        if continue_final:
            messages = [*messages[:-1], _left_open(messages)]
        if traced:
            messages = [traced_message(message, at) for at, message in enumerate(messages)]
        text = self._run({**self._special_tokens, **variables, "messages": messages}, lines if traced else None)
        return _cut_at_end(text, self.name) if continue_final else text

    def _run(self, variables: dict[str, Any], lines: list[tuple[int, int]] | None) -> str:
        """lines: takes where each piece of the output begins, and the line of the compiled code that it comes from."""
        texts: list[str] = []
        length = 0
        with spending(self._limits):
            try:
                pieces: Any = self._compiled.root_render_func(self._compiled.new_context(variables))
                for piece in pieces:
                    if lines is not None and piece:
                        lines.append((length, pieces.gi_frame.f_lineno))
                    length += len(piece)
                    if length > self._limits.output:
                        raise TemplateTooMuch(f"it writes more than {self._limits.output:,} characters")
                    texts.append(piece)
            except PromptError as error:
                if isinstance(error, TemplateTooMuch):
                    raise TemplateTooMuch(f"{self.name}: {error}") from None
                raise
            except (RecursionError, MemoryError):
                raise TemplateTooMuch(f"{self.name} nests too deep, or calls itself without end") from None
            except Exception as error:
                line = _line(self._compiled, error.__traceback__)
                raise _broken(self.name, line, unmark(str(error)).replace(END, ""), error) from error
        return joined("", texts)


def _compile(template: ChatTemplate, controls: ControlTokens, traced: bool) -> jinja2.Template:
    try:
        import jinja2

        from .sandbox.environment import environment
        from .sandbox.syntax_tree import prepared_tree
    except ImportError as error:
        raise PromptError(_WITHOUT_JINJA) from error
    try:
        with spending(WHILE_COMPILING):
            compiled = environment().from_string(prepared_tree(environment().parse(template.source), controls, traced))
            # Copied for each rendering: a mapping of Jinja's own kind takes ten times as long.
            compiled.globals = dict(compiled.globals)
            return compiled
    except jinja2.TemplateSyntaxError as error:
        raise _broken(template.name, error.lineno, str(error.message), error) from error
    except (RecursionError, MemoryError):
        raise TemplateTooMuch(f"{template.name} nests too deep") from None
    except (SyntaxError, ValueError) as error:  # Python's own limits: on nested code, on the digits of a number
        raise _broken(template.name, None, str(error), error) from error


def _broken(name: str, line: int | None, message: str, error: Exception) -> TemplateBroken:
    where = f"{name}, line {line}" if line else name
    kind = type(error).__name__
    return TemplateBroken(f"{where}: {clip(message) or kind} ({kind})", line)


def _line(template: jinja2.Template, trace: TracebackType | None) -> int | None:
    """The line of the template in which an error came up: the innermost frame of its compiled code."""
    line = None
    while trace is not None:
        if trace.tb_frame.f_globals.get("__jinja_template__") is template:
            line = template.get_corresponding_lineno(trace.tb_lineno)
        trace = trace.tb_next
    return line


def _with_reasoning(message: dict[str, Any]) -> dict[str, Any]:
    """The message with its reasoning under each of the names that templates read: those that Hugging Face gives, and
    vLLM's `reasoning`."""
    reasoning = next((message[name] for name in REASONING_FIELDS if message.get(name) is not None), None)
    if reasoning is None:
        return message
    return {"thinking": reasoning, "reasoning": reasoning, **message, "reasoning_content": reasoning}


# A final message to continue (a prefill). As Hugging Face does it: END and a space are appended to the content, and the
# output is cut at END. If the space is gone, the template strips content, and the content's own trailing space goes
# too.


def check_continued(messages: Sequence[Mapping[str, Any]]) -> None:
    """The last message can be continued: it is the assistant's."""
    if not messages or messages[-1].get("role") != "assistant":
        raise InvalidMessages(Place("continue_final_message"), " needs a last message whose role is assistant")


def _left_open(messages: list[dict[str, Any]]) -> dict[str, Any]:
    check_continued(messages)
    last = messages[-1]
    content = last.get("content")
    if isinstance(content, str):
        return {**last, "content": content + END + " "}
    if isinstance(content, list):
        for at in range(len(content) - 1, -1, -1):
            if isinstance(content[at], dict) and isinstance(content[at].get("text"), str):
                part = {**content[at], "text": content[at]["text"] + END + " "}
                return {**last, "content": [*content[:at], part, *content[at + 1 :]]}
    raise InvalidMessages(Place("messages", len(messages) - 1), " has no content to continue")


def _cut_at_end(text: str, name: str) -> str:
    at = text.rfind(END)
    if at < 0:
        raise TemplateBroken(f"{name} does not write the content of the last message, so it cannot be continued")
    return text[:at] if text.startswith(END + " ", at) else text[:at].rstrip()
