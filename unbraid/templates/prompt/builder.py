"""From a request's messages to a prompt."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from ...core.grammar import Format
from ...core.tools import Tools
from ...errors import MissingTokens
from ..errors import InvalidMessages, PromptError, PromptTooLarge
from ..marks import BREAK, MARK, NO_CONTROLS, Controls, cleaned, unmark
from ..shape import Prober, Shape
from ..template import ChatTemplate, Messages, Rendering
from .encoding import Encoder
from .encoding import encoder as encoder_of
from .fallback import ToolsInWords, system_in_user
from .messages import PartHook, Reader, tool_definitions

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Prompt:
    """What the model is asked to go on with."""

    text: str
    ids: tuple[int, ...] | None = None
    """Where the tokenizer is known. The text alone does not say which of its control tokens are meant."""
    notes: tuple[str, ...] = ()
    """What was done that the template would not have done."""


def supports_tools(template: ChatTemplate) -> bool:
    """Whether the template tells the model about tools."""
    return Prober(template.marked(NO_CONTROLS), template.source).shape().tools


class PromptBuilder:
    """Builds the prompts of one model.

    template: the model's, or several by name, of which `tool_use` is for requests with tools.
    encoder: the model's tokenizer, any that `encoding.encoder` takes; without it there is only text, in which nobody
        can tell a control token from its spelling.
    format: what the model writes; calls are written so where the template has no way to.
    part_hook: what stands for parts of a content that are no text, such as audio.
    longest: how many characters a prompt may have; more are refused before they are cut into tokens.
    """

    def __init__(
        self,
        template: ChatTemplate | Mapping[str, ChatTemplate],
        encoder: object | None = None,
        format: Format | None = None,
        *,
        part_hook: PartHook | None = None,
        longest: int | None = None,
    ) -> None:
        templates = {"default": template} if isinstance(template, ChatTemplate) else dict(template)
        if not templates:
            raise PromptError("no template was given")
        self.encoder: Encoder | None = None if encoder is None else encoder_of(encoder)
        self.format = format
        self.controls = NO_CONTROLS if self.encoder is None else self.encoder.controls
        if format is not None and self.encoder is not None:
            format = format.for_version(self.encoder.vocabulary.version)
        first = templates.get("default") or next(iter(templates.values()))
        self._plain = _Prepared(first, self.controls)
        self._with_tools = _Prepared(templates["tool_use"], self.controls) if "tool_use" in templates else self._plain
        self._reader = Reader(self.controls, part_hook)
        self._words = ToolsInWords(format, self.controls)
        self._longest = longest
        self._said: set[str] = set()

    def prepare(self) -> None:
        """Do now what the first requests would wait for: compile and try the templates, get the tokenizer ready. Raises
        `TemplateError` if a template cannot be compiled."""
        for prepared in (self._plain, self._with_tools):
            _ = prepared.shape
        if self.encoder is not None:
            for text in list(self.controls.ids)[:1]:
                self.encoder.encode(text)

    def shape(self, tools: bool = False) -> Shape:
        """What the template wants, as far as it could be found out."""
        return (self._with_tools if tools else self._plain).shape

    def build(
        self,
        messages: Messages,
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        documents: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
        tts_output: bool = False,
        template_kwargs: Mapping[str, Any] | None = None,
    ) -> Prompt:
        """The prompt for messages of the chat API.

        continue_final_message: the model goes on with the last message, which is the assistant's. `"eot": false` in
            that message means the same.
        tts_output: the model is to speak.
        template_kwargs: further variables of the template. Those that this sets itself cannot be set so.
        """
        prepared = self._with_tools if tools else self._plain
        definitions = tool_definitions(tools)
        if definitions:
            Tools(definitions)  # raises what is wrong with them
        found = self._reader.read(messages)
        if continue_final_message or _left_open(messages):
            continue_final_message = True
            found[-1]["content"] = self._as_written(found[-1]["content"])
        given: dict[str, Any] = {
            **cleaned(dict(template_kwargs or {})),
            "documents": cleaned(list(documents)) if documents else None,
            "add_generation_prompt": add_generation_prompt and not continue_final_message,
        }
        found, given["tools"], notes = self._fitted(found, definitions, prepared.shape)
        text = prepared.render([prepared.shape.message(each) for each in found], given, continue_final_message)
        if tts_output:
            text += self._speech_start()
        if self._longest is not None and len(text) > self._longest:
            raise PromptTooLarge(f"messages: a prompt of {len(text)} characters cannot fit the model's context")
        ids = None if self.encoder is None else tuple(self.encoder.encode(text))
        return Prompt(unmark(text), ids, tuple(notes))

    def _fitted(
        self, messages: list[dict[str, Any]], tools: list[dict[str, Any]] | None, shape: Shape
    ) -> tuple[list[dict[str, Any]], list[dict[str, Any]] | None, list[str]]:
        """The messages without what the template has no place for."""
        notes = []
        in_words = not shape.tools
        if any(message.get("tool_calls") for message in messages) and (in_words or not shape.calls):
            messages = self._words.with_calls(messages)
            notes.append("the template does not show tool calls: they are written into the content")
        if any(message["role"] == "tool" for message in messages) and (in_words or not shape.results):
            messages = self._words.with_results(messages)
            notes.append("the template does not show tool results: they are turns of the user")
        if tools and in_words:
            messages, tools = self._words.with_tools(messages, tools), None
            notes.append("the template has no place for tools: they are described in the system message")
        if not shape.system and any(message["role"] in ("system", "developer") for message in messages):
            messages = system_in_user(messages)
            notes.append("the template takes no system message: it stands before the user's")
        for note in notes:
            if note not in self._said:
                self._said.add(note)
                _log.warning("%s: %s", self._plain.name, note)
        return messages, tools, notes

    # Speech

    @property
    def _speech_open(self) -> str:
        speech = self.format.speech if self.format is not None else None
        return speech.open if speech is not None else "<tts_start>"

    def _speech_start(self) -> str:
        """What makes the model speak, as the token."""
        open = self._speech_open
        if self.encoder is None:
            if self.format is not None and self.format.speech is None:
                raise PromptError(f"tts_output: the format {self.format.name!r} has no speech", field="tts_output")
            return open
        if open not in self.controls.ids:
            raise MissingTokens(f"tts_output: the model's vocabulary has no token {open!r}", field="tts_output")
        return MARK + open

    def _as_written(self, content: str) -> str:
        """The content of a message that the model goes on with. The format's markers in it are meant, as if the model
        had written them; `<tts_start>` there is the older way to ask for speech."""
        if not content.startswith(self._speech_open):
            return self._markers.mark(content)
        return self._speech_start() + self._markers.mark(content.removeprefix(self._speech_open))

    @cached_property
    def _markers(self) -> Controls:
        """The control tokens that open and close the strands of the format."""
        strands = () if self.format is None else (self.format.reasoning, self.format.tools, self.format.speech)
        texts = [text for strand in strands if strand is not None for text in (strand.open, strand.close)]
        ids = self.controls.ids
        return Controls({token: id for token, id in ids.items() if any(token in text for text in texts)})


def _left_open(messages: Messages) -> bool:
    last = messages[-1]
    if last.get("eot", True) is not False:
        return False
    if last.get("role") != "assistant":
        where = f"messages[{len(messages) - 1}]"
        raise InvalidMessages(f'{where}: only a message of the assistant can have "eot": false', field=f"{where}.eot")
    return True


class _Prepared:
    """A template for one vocabulary, made ready when it is first used."""

    def __init__(self, template: ChatTemplate, controls: Controls) -> None:
        self.name = template.name
        self._template = template
        self._controls = controls

    @cached_property
    def _found(self) -> tuple[Rendering, Shape, Controls]:
        rendering = self._template.marked(self._controls)
        prober = Prober(rendering, self._template.source)
        shape = prober.shape()
        # Our messages spell no control token: those without a mark are put together by the template, `<|` and `user`
        # and `|>`. Only they need to be kept out of the messages.
        made = {text for written in prober.written for text in self._controls.unmarked(written)}
        return rendering, shape, Controls({text: self._controls.ids[text] for text in made})

    @property
    def shape(self) -> Shape:
        return self._found[1]

    def render(self, messages: list[dict[str, Any]], given: Mapping[str, Any], continue_final: bool) -> str:
        rendering, _, made = self._found
        if not made.ids:
            return rendering.render(messages, given, continue_final)
        text = rendering.render(made.break_up(messages), made.break_up(dict(given)), continue_final)
        return made.mark_rest(text).replace(BREAK, "")
