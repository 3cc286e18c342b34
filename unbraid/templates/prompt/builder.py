"""The prompt builder: from the messages of a request to the text and token ids of a prompt.

The steps: read the messages (`messages`), rewrite what the template does not say (`bridges`), adapt the rest to the
template (`TemplateCapabilities`), render with control tokens marked, encode (`encoders`). A builder serves one
model and many threads; whatever is costly is done once, in `prepare` or at the first request.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from ...caching import LruCache
from ...core.compiler.compiler import compile_format
from ...core.compiler.prompt_end import read_end
from ...core.events import Content, Reasoning, ToolCallArguments, ToolCallStart
from ...core.grammar import Format
from ...core.message import Message as WrittenMessage
from ...core.message import Text, ToolCall
from ...core.render import render
from ...core.tools import Tools
from ...errors import MissingTokens, Place
from ...parsing import Parser, parse
from ..capabilities import TemplateCapabilities
from ..control_tokens import (
    BREAK,
    MARK,
    NO_CONTROL_TOKENS,
    ControlTokens,
    mark_grammar,
    sanitize,
    sanitize_text,
    unmark,
)
from ..errors import InvalidMessages, PromptError, PromptTooLarge, TemplateError
from ..recipes import Recipes
from ..symbolic_text import Record, places
from ..template import ChatTemplate, Messages, check_continued
from ..traced_text import AT, Origin, Trace, TracePoint, reasoning_of
from .beginnings import list_so_far, render_before_call, render_begun, shared
from .encoders import Encoder, encode_inside
from .encoders import encoder as encoder_of
from .messages import MessageReader, PartHook, begun_arguments, tool_definitions
from .polyfills import ToolPolyfill, together
from .prepared import LONGEST_KEY, MOST_TOOLS, PreparedTemplate

_log = logging.getLogger(__name__)
_SPEAKERS = ("system", "developer", "user", "assistant")


@dataclass(frozen=True, slots=True)
class TracedPrompt:
    """A prompt, and where its text comes from."""

    text: str
    """The prompt text. `MARK` precedes every genuine control token; spelled-out lookalikes have none."""
    trace: Trace
    """Of the text without marks. Messages are numbered as they were given."""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class BegunCall:
    """The end of a prompt, where it is a turn that broke off inside a call: what the model has written of that turn.
    The parser of what comes next is to be fed with it first."""

    text: str
    ids: tuple[int, ...]
    """Empty if the builder has no tokenizer."""
    id: str
    """The id of the call, if the client gave one."""
    before: int
    """How many calls of the turn the client has already."""
    named: bool
    """Whether it has the name of this one."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """What the model is asked to continue."""

    text: str
    ids: tuple[int, ...] | None = None
    """None if the builder has no tokenizer. The text alone does not say which control tokens are real."""
    notes: tuple[str, ...] = ()
    """What was changed because the template does not support it."""
    spoken: bool = False
    """Whether it makes the model speak."""
    speech_marker: str = ""
    """The marker that was appended to make it speak."""
    silence: str = ""
    """Why it does not make the model speak, if that was requested."""
    begun_call: BegunCall | None = None
    """What the model goes on with, where that is a call."""


@dataclass(slots=True)
class _Speech:
    """Whether the prompt makes the model speak, known while it is built."""

    spoken: bool = False
    silence: str = ""


class PromptBuilder:
    """Builds the prompts of one model.

    template: the model's, or several by name; `tool_use` is for requests with tools.
    encoder: the model's tokenizer, any that `encoders.encoder` takes. Without it prompts have no ids, and in a text
        nobody can tell a control token from its spelling.
    format: the format that the model writes, for calls that the template cannot show.
    part_hook: writes parts of a content that are no text, such as audio.
    longest: how many characters a prompt may have. Longer ones are refused before they are tokenized.
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
        self.templates = templates
        self.controls = NO_CONTROL_TOKENS if self.encoder is None else self.encoder.controls
        if format is not None and self.encoder is not None:
            format = format.for_version(self.encoder.vocabulary.version)
        first = templates.get("default") or next(iter(templates.values()))
        self._plain = self._with_tools = PreparedTemplate(first, self.controls)
        if "tool_use" in templates:
            self._with_tools = PreparedTemplate(templates["tool_use"], self.controls)
        self._reader = MessageReader(self.controls, part_hook)
        self._polyfill = ToolPolyfill(format, self.controls)
        self._longest = longest
        self._tools: LruCache[str, list[dict[str, Any]] | None] = LruCache(MOST_TOOLS)
        self._recipes: LruCache[tuple[str, ...], Recipes] = LruCache(MOST_TOOLS)
        """For conversations of roles and texts that the template is given as they are."""
        self._logged: set[str] = set()

    def __getstate__(self) -> dict[str, Any]:
        """Recipes stay in their process."""
        return {**vars(self), "_recipes": LruCache(MOST_TOOLS)}

    def prepare(self) -> None:
        """Do now what the first request would wait for: compile and probe the templates, warm up the tokenizer. Raises
        `TemplateError` if a template cannot be compiled."""
        for prepared in (self._plain, self._with_tools):
            _ = prepared.capabilities
        if self.encoder is not None:
            for text in list(self.controls.ids)[:1]:
                self.encoder.encode(text)

    def capabilities(self, tools: bool = False) -> TemplateCapabilities:
        """What the template supports; with `tools`, the template for requests with tools."""
        return (self._with_tools if tools else self._plain).capabilities

    def forbidden(self, tools: bool = False) -> str:
        """What the sandbox forbids the template to do when it shows calls; else empty. If it forbids something, calls
        are written into the content."""
        return (self._with_tools if tools else self._plain).forbidden

    def build(
        self,
        messages: Messages,
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        documents: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
        tts_output: bool = False,
        allow_silence: bool = False,
        template_kwargs: Mapping[str, Any] | None = None,
        check_tools: bool = True,
        tools_key: str = "",
    ) -> Prompt:
        """The prompt for messages of the chat API.

        continue_final_message: the model continues the last message, which must be the assistant's. `"eot": false` in
            that message means the same.
        tts_output: the model is to speak. Raises if it cannot.
        allow_silence: a model that cannot speak answers without; `Prompt.silence` says why.
        template_kwargs: further variables of the template. They cannot override those that are set here.
        check_tools: False if the tools have been checked (`Tools`): to check them again would repeat the warnings.
        tools_key: the JSON of the tools, if there is one already.
        """
        texts, kind = None, None
        if not (continue_final_message or tts_output or documents or (tools and check_tools)):
            texts = self._plain_texts(messages)
        if texts is not None:
            key = tools_key if tools and tools_key else self._definitions(tools)[1]
            kind = _kind(messages, key, template_kwargs, add_generation_prompt)
        recipes = None if kind is None else self._recipes.get(kind)
        if recipes is not None and texts is not None and (text := recipes.text(texts)) is not None:
            return Prompt(unmark(text), self._encoded(text.replace(BREAK, "")))
        variables = {**(template_kwargs or {}), "documents": documents, "add_generation_prompt": add_generation_prompt}
        speech = _Speech()
        ready = self._prepared(
            messages,
            tools,
            variables,
            continue_final_message,
            speech,
            allow_silence=allow_silence,
            check_tools=check_tools,
        )
        if ready.continued:
            before = ready.prepared.render(ready.messages, ready.variables, True)
        else:
            before = ready.prepared.write(ready.messages, ready.variables, ready.tools_key)
            if kind is not None and recipes is None and ready.says(texts):
                recipes = ready.prepared.recipes(ready.messages, ready.variables, ready.tools_key)
                if recipes is not None:
                    self._recipes[kind] = recipes
        text = before + ready.begun
        appends = tts_output and not speech.spoken and ready.cut_call is None
        if appends:
            text += self._speech_start(speech, allow_silence)
        ids = self._encoded(text)
        begun: BegunCall | None = None
        if ready.cut_call is not None and ready.begun:
            own = () if self.encoder is None else encode_inside(self.encoder, ready.begun)
            begun = replace(ready.cut_call, text=unmark(ready.begun), ids=own)
            ids = None if self.encoder is None else (*self.encoder.encode(before), *own)
        marker = self._speech_open if appends and speech.spoken else ""
        return Prompt(unmark(text), ids, tuple(ready.notes), speech.spoken, marker, speech.silence, begun)

    def _encoded(self, text: str) -> tuple[int, ...] | None:
        """The ids of a prompt, where there is a tokenizer. Raises `PromptTooLarge`."""
        if self._longest is not None and len(text) > self._longest:
            raise PromptTooLarge(f"messages: a prompt of {len(text)} characters cannot fit the model's context")
        return None if self.encoder is None else tuple(self.encoder.encode(text))

    def _plain_texts(self, messages: Messages) -> list[str] | None:
        """The texts of a conversation of roles and texts, of which nothing is read otherwise than it stands there; None
        for any other."""
        texts = []
        for message in messages if type(messages) is list else ():
            role, text = (message.get("role"), message.get("content")) if type(message) is dict else ("", None)
            if type(text) is not str or len(message) != 2 or role not in _SPEAKERS or not text or text.isspace():
                return None
            if role == "assistant" and any(marker in text for marker in self._thought_markers):
                return None
            texts.append(sanitize_text(text))
        return texts or None

    def trace(
        self,
        messages: Messages,
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        documents: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
        template_kwargs: Mapping[str, Any] | None = None,
        record: Record | None = None,
        turn: int = 0,
    ) -> TracedPrompt:
        """The text that `build` makes of the same arguments, and where each part of it comes from.

        record: notes what the template does with the texts of the messages after `turn`, and with the call ids of
            `turn`.
        """
        variables = {**(template_kwargs or {}), "documents": documents, "add_generation_prompt": add_generation_prompt}
        ready = self._prepared(messages, tools, variables, continue_final_message, _Speech(), numbered=True)
        if record is not None:
            self._follow(messages, ready, record, turn)
        text, trace = ready.prepared.trace(ready.messages, ready.variables, ready.continued)
        if ready.begun:
            text, trace = text + ready.begun, self._with_begun(trace, unmark(ready.begun), len(messages) - 1)
        return TracedPrompt(text, trace, tuple(ready.notes))

    def read(self, messages: Messages) -> list[dict[str, Any]]:
        """The messages, checked and in one form. Raises `InvalidMessages`."""
        return self._reader.read(messages)

    def adapted(self, messages: Sequence[dict[str, Any]], *, tools: bool) -> list[dict[str, Any]]:
        """Messages of `read` in the form that the template takes. Polyfills are not applied."""
        capabilities = self.capabilities(tools)
        return [capabilities.adapt(message) for message in messages]

    def _follow(self, messages: Messages, ready: _Ready, record: Record, turn: int) -> None:
        """Replace texts by symbols. Not possible where a polyfill replaced messages, or the template builds tokens."""
        followed = ready.messages[turn - len(messages) :]
        texts = [{key: value for key, value in each.items() if key != AT} for each in followed]
        adapted = self.adapted(self.read(messages)[turn:], tools=ready.tools)
        if texts != adapted or ready.prepared.builds_tokens or ready.begun:
            record.look("the builder")
            return
        for number, (message, field, holder, key) in enumerate(list(places(followed))):
            holder[key] = record.symbol(holder[key], Origin(message[AT], field, -1 - number))

    def _prepared(
        self,
        messages: Messages,
        tools: Sequence[Mapping[str, Any]] | None,
        variables: Mapping[str, Any],
        continued: bool,
        speech: _Speech,
        *,
        allow_silence: bool = False,
        check_tools: bool = False,
        numbered: bool = False,
    ) -> _Ready:
        """The request in the form that the template takes. `numbered`: each message carries its number."""
        if tools and check_tools:  # as they were sent: errors name places of the request
            Tools([sanitize(dict(tool)) if isinstance(tool, Mapping) else tool for tool in tools])
        definitions, tools_key = self._definitions(tools)
        read = self._reader.read(messages)
        for_tools = bool(tools) or any(message.get("tool_calls") for message in read)
        prepared = self._with_tools if for_tools else self._plain
        begun: dict[str, Any] | None = None
        cut_call: BegunCall | None = None
        if continued or _asks_to_continue(messages):
            continued = True
            check_continued(read)
            if (cut := self._cut_call(messages, read, bool(tools))) is not None:
                read, begun, cut_call = cut
                continued = False
            else:
                read[-1]["content"] = self._as_prefill(read[-1]["content"], speech, allow_silence)
        if numbered:
            read = [{**message, AT: number} for number, message in enumerate(read)]
        variables = sanitize(dict(variables))
        capabilities = prepared.capabilities
        if continued and self._is_astray(prepared, read, variables):
            begun, continued = read.pop(), False
        prompted = (bool(variables["add_generation_prompt"]) or begun is not None) and not continued
        notes = []
        if definitions and not prepared.tells(definitions, tools_key):
            read, definitions = self._polyfill.with_tools(read, definitions), None
            notes.append("the template has no place for tools: they are described in the system message")
        tool_variables = capabilities.shown_tools(definitions)
        variables = {
            **tool_variables,
            **variables,
            "tools": tool_variables["tools"],
            "documents": variables["documents"] or None,
            "add_generation_prompt": prompted,
        }
        read, changes = prepared.bridge(self._polyfill).cross(read, variables, continued)
        notes += changes
        for note in notes:
            if note not in self._logged:
                self._logged.add(note)
                _log.warning("%s: %s", self._plain.name, note)
        if not numbered:
            count = len(read) - continued
            read = [self._with_quotes_kept(prepared, each) if at < count else each for at, each in enumerate(read)]
        ready = _Ready(prepared, [capabilities.adapt(each) for each in read], variables, continued, notes, for_tools)
        ready.tools_key = tools_key
        if begun is not None:
            ready.begun = self._begun(prepared.render(ready.messages, variables, False), begun)
            ready.cut_call = cut_call
        return ready

    def _definitions(self, tools: Sequence[Mapping[str, Any]] | None) -> tuple[list[dict[str, Any]] | None, str]:
        """Tools as templates expect them, and what tells them from others. Conversations have the same ones in each
        request, so they are kept."""
        if not tools:
            return None, ""
        try:
            key = json.dumps(tools)
        except (TypeError, ValueError, RecursionError):  # no JSON, and made JSON
            definitions = tool_definitions(tools)
            return definitions, json.dumps(definitions)
        definitions = self._tools.get(key)
        if definitions is None:
            definitions = tool_definitions(tools)
            if len(key) <= LONGEST_KEY:
                self._tools[key] = definitions
        return definitions, key

    def _with_quotes_kept(self, prepared: PreparedTemplate, message: dict[str, Any]) -> dict[str, Any]:
        """A message whose answer may name what opens and closes reasoning. Templates take that for reasoning of an
        earlier turn, and drop what stands before it. An answer that begins with it does have its reasoning in it."""
        content = message["content"]
        if message["role"] != "assistant" or not any(marker in content for marker in self._thought_markers):
            return message
        if content.lstrip().startswith(self._thought_markers[0::2]):
            return message
        for marker in self._thought_markers:
            if marker in content and prepared.cuts_at(marker):
                content = content.replace(marker, marker[0] + BREAK + marker[1:])
        return {**message, "content": content}

    @cached_property
    def _thought_markers(self) -> tuple[str, ...]:
        """What may open reasoning, and close it, in turn."""
        reasoning = None if self.format is None else self.format.reasoning
        own = ("", "") if reasoning is None else (reasoning.open.strip(), reasoning.close.strip())
        return ("<think>", "</think>", *(own if all(own) else ()))

    # Turns that go on

    def _is_astray(self, prepared: PreparedTemplate, read: list[dict[str, Any]], variables: Mapping[str, Any]) -> bool:
        """Whether the template leaves a message open in another strand than it broke off in: templates close reasoning,
        and some open it before an answer."""
        last, reasoning = read[-1], None if self.format is None else self.format.reasoning
        if reasoning is None or last.get("tool_calls") or len(read) == 1:
            return False
        if not last["content"]:
            return bool(reasoning_of(last))
        if reasoning.open.strip() in unmark(last["content"]):  # the client has written it
            return False
        shown = [prepared.capabilities.adapt(each) for each in ({"role": "user", "content": "Hello."}, last)]
        variables = {**variables, **prepared.capabilities.shown_tools(None), "add_generation_prompt": False}
        try:
            return self._opens_reasoning(prepared.render(shown, variables, True))
        except TemplateError:
            return True

    def _cut_call(
        self, messages: Messages, read: list[dict[str, Any]], tools: bool
    ) -> tuple[list[dict[str, Any]], dict[str, Any], BegunCall] | None:
        """Where the last message broke off inside a call: the others; that one, with what there is of the call; and
        what the client has of it. A client that got a whole reply has the call as text, as the model wrote it."""
        before, last, format, where = read[:-1], read[-1], self.format, Place("messages", len(read) - 1)
        # Anthropic's clients have what comes after a call in a message of its own.
        same_turn = bool(before) and not last.get("tool_calls") and bool(before[-1].get("tool_calls"))
        calls = (before[-1] if same_turn else last).get("tool_calls", [])
        spelled = self._spelled_call(last["content"], calls) if tools else None
        unnamed = self._unnamed_call(last["content"]) if tools and spelled is None else None
        count = 0
        if spelled is not None:
            text, more = spelled
            if same_turn and not text:
                last = before.pop()
                text = last["content"]
            count = len(last.get("tool_calls", ()))
            last = {**last, "content": text, "tool_calls": [*last.get("tool_calls", ()), *more]}
        elif unnamed is not None:
            if calls:
                raise InvalidMessages(where, _UNNAMED)
            last = {**last, "content": unnamed[0], _TAIL: unnamed[1]}
        elif last.get("tool_calls"):
            *others, call = last["tool_calls"]
            count = len(others)
            arguments = begun_arguments(messages[-1]["tool_calls"][-1])
            last = {**last, "tool_calls": [*others, {**call, "function": {**call["function"], "arguments": arguments}}]}
        else:
            return None
        if format is None or format.tools is None:
            raise InvalidMessages(where, " ends with a call, and the model's format has none: it cannot be continued")
        if not before:
            raise InvalidMessages(where, " ends with a call, and nothing comes before it: it cannot be continued")
        id = "" if unnamed is not None else last["tool_calls"][-1]["id"]
        return before, last, BegunCall("", (), id, count, named=unnamed is None)

    def _spelled_call(
        self, content: str, calls: Sequence[Mapping[str, Any]]
    ) -> tuple[str, list[dict[str, Any]]] | None:
        """The text and the calls of a content that breaks off inside a call, perhaps one of a list that has others."""
        if self.format is None or self.format.tools is None or not content:
            return None
        before, between = list_so_far(self.format, [_tool_call(call) for call in calls]) if calls else ("", "")
        at = content.rfind(between) if between else -1
        for text, raw in [("", content)] + ([(content[:at].rstrip("\n"), before + content[at:])] if at >= 0 else []):
            parts = parse(self.format, raw, prompt="").parts
            if parts and isinstance(parts[-1], ToolCall) and not parts[-1].complete:
                texts = [part.text for part in parts if isinstance(part, Text) and part.strand == "content"]
                own = [part.to_openai() for part in parts if isinstance(part, ToolCall)]
                return together(text, *texts), own[len(calls) if raw is not content else 0 :]
        return None

    def _unnamed_call(self, content: str) -> tuple[str, str] | None:
        """The text of a content that breaks off where the name of a call comes, and what it has of that call."""
        if self.format is None or self.format.tools is None or not content:
            return None
        parser = Parser(self.format, prompt="")
        events = parser.feed(content)
        begin = parser.machine.begin_of_unnamed_call
        if begin is None:
            return None
        if any(isinstance(event, ToolCallStart) for event in events):  # a list, of which others are whole
            return "", content
        return "".join(event.text for event in events if isinstance(event, Content)), content[begin:]

    def _opens_reasoning(self, prompt: str) -> bool:
        assert self.format is not None
        vocabulary = None if self.encoder is None else self.encoder.vocabulary
        return read_end(compile_format(self.format, vocabulary), unmark(prompt)).strands[-1:] == ["reasoning"]

    def _begun(self, prompt: str, message: dict[str, Any]) -> str:
        """What the model has written of a message that it goes on with, after the prompt that asked for it."""
        assert self.format is not None
        format, thought = mark_grammar(self.format, self.controls), reasoning_of(message)
        is_open = self._opens_reasoning(prompt)
        if _TAIL in message:
            message = {**message, _TAIL: self._markers.mark(message[_TAIL])}
        whole = _written(format, message if format.reasoning is not None else {**message, "reasoning_content": ""})
        if not is_open:
            return whole[shared(prompt, whole) :] if format.headers is not None else whole
        assert format.reasoning is not None
        return whole[whole.index(thought) :] if thought else format.reasoning.close + whole

    def _with_begun(self, trace: Trace, begun: str, message: int) -> Trace:
        """A trace, with what the model has written of a message that it goes on with."""
        assert self.format is not None
        size = len(trace.text)
        parser = Parser(self.format, prompt=trace.text)
        events = [*parser.feed(begun), *parser.finish()]
        spans = [
            (size + event.start, size + event.end, Origin(message, _FIELDS[type(event)]))
            for event in events
            if type(event) in _FIELDS and event.end > event.start
        ]
        points = (*trace.points, (size, TracePoint("message", message)))
        return replace(trace, text=trace.text + begun, spans=(*trace.spans, *spans), points=points)

    # Speech

    @property
    def _speech_open(self) -> str:
        speech = self.format.speech if self.format is not None else None
        return speech.open if speech is not None else "<tts_start>"

    def _speech_start(self, speech: _Speech, allow_silence: bool) -> str:
        """The marker that makes the model speak, as a token; empty if the template or the system message does it. A
        model that cannot speak raises, or gets no marker if `allow_silence`. `speech` notes the outcome."""
        try:
            start = self._speech_token()
        except (PromptError, MissingTokens) as error:
            if not allow_silence:
                raise
            speech.silence = str(error)
            return ""
        speech.spoken = True
        return start

    def _speech_token(self) -> str:
        open = self._speech_open
        if not open:
            return ""
        if self.encoder is None:
            if self.format is not None and self.format.speech is None:
                raise PromptError(Place("tts_output"), f": the format {self.format.name!r} has no speech")
            return open
        if open not in self.controls.ids:
            raise MissingTokens(Place("tts_output"), f": the model's vocabulary has no token {open!r}")
        return MARK + open

    def _as_prefill(self, content: str, speech: _Speech, allow_silence: bool) -> str:
        """The content of a message that the model continues. The format's markers in it are tokens, as if the model had
        written them. `<tts_start>` at its beginning is the older way to ask for speech."""
        open = self._speech_open
        if not open or not content.startswith(open):
            return self._markers.mark(content)
        return self._speech_start(speech, allow_silence) + self._markers.mark(content.removeprefix(open))

    @cached_property
    def _markers(self) -> ControlTokens:
        """The control tokens among the format's markers."""
        strands = () if self.format is None else (self.format.reasoning, self.format.tools, self.format.speech)
        texts = [text for strand in strands if strand is not None for text in (strand.open, strand.close)]
        ids = self.controls.ids
        return ControlTokens({token: id for token, id in ids.items() if any(token in text for text in texts)})


def _written(format: Format, message: Mapping[str, Any]) -> str:
    """A message that broke off, as the model wrote it, up to there."""
    thought, answer, calls = reasoning_of(message), message["content"], message.get("tool_calls", ())
    parts = [Text("reasoning", thought)] if thought else []
    parts += [Text("content", answer)] if answer else []
    if calls:
        return render_begun(format, parts, [_tool_call(call) for call in calls])
    if _TAIL in message:
        return render_before_call(format, parts, message[_TAIL])
    whole = render(format, WrittenMessage(tuple(parts)))
    last = answer or thought
    return whole[: whole.rindex(last) + len(last)]


def _tool_call(call: Mapping[str, Any]) -> ToolCall:
    return ToolCall(call["function"]["name"], call["function"]["arguments"], call["id"])


def _kind(
    messages: Messages, tools_key: str, template_kwargs: Mapping[str, Any] | None, prompted: bool
) -> tuple[str, ...] | None:
    """All that the prompt of a conversation of roles and texts depends on but its texts; None where that is not JSON,
    or too long."""
    try:
        others = json.dumps(template_kwargs) if template_kwargs else ""
    except (TypeError, ValueError, RecursionError):
        return None
    if len(tools_key) + len(others) > LONGEST_KEY:
        return None
    return (tools_key, others, "prompted" if prompted else "", *[each["role"] for each in messages])


def _asks_to_continue(messages: Messages) -> bool:
    last = messages[-1]
    if last.get("eot", True) is not False:
        return False
    if last.get("role") != "assistant":
        where = Place("messages", len(messages) - 1)
        raise InvalidMessages(where, ': only a message of the assistant can have "eot": false', field=where / "eot")
    return True


@dataclass(slots=True)
class _Ready:
    """A request as the template takes it."""

    prepared: PreparedTemplate
    messages: list[dict[str, Any]]
    variables: dict[str, Any]
    continued: bool
    notes: list[str]
    tools: bool
    """Whether the request has tools, or calls."""
    begun: str = ""
    """What comes after the template's text: the beginning of the model's turn."""
    cut_call: BegunCall | None = None
    """The call that this breaks off in, without its text."""
    tools_key: str = ""
    """What tells the tools from others."""

    def says(self, texts: Sequence[str] | None) -> bool:
        """Whether the template is given these texts, and nothing was changed for it."""
        return not self.notes and not self.begun and [each["content"] for each in self.messages] == texts


_TAIL = "unbraid begun"
"""The key under which a message has the beginning of a call that has no name yet."""
_UNNAMED = " breaks off before the name of a call that follows others: leave the beginning of that call out"
_FIELDS: Mapping[type, str] = {
    Content: "content",
    Reasoning: "reasoning",
    ToolCallStart: "tool_calls",
    ToolCallArguments: "tool_calls",
}
"""The fields of a message that events are of."""


_AT_THE_START = ("system", "developer")


def fitting(
    build: Callable[[Sequence[Mapping[str, Any]]], Prompt], messages: Sequence[Mapping[str, Any]], most: int
) -> Prompt:
    """The prompt of as many of the latest turns as fit in `most` tokens. If even the last turn does not fit, its
    prompt: the engine says that it is too long.

    A turn is a message of the user with all that follows it, so a call never loses its result. System messages at the
    beginning stay, and so does the last turn.
    """
    begin = next((at for at, message in enumerate(messages) if message.get("role") not in _AT_THE_START), len(messages))
    starts = [at for at in range(begin, len(messages)) if at == begin or messages[at].get("role") == "user"]
    dropped, least, last = 0, 1, len(starts) - 1
    best: Prompt | None = None
    while dropped <= last:  # all of it first, then by halves
        prompt = _tried(build, [*messages[:begin], *messages[starts[dropped] :]], most)
        if prompt is None:
            least = dropped + 1
        else:
            best, last = prompt, dropped - 1
        if least > last:
            break
        dropped = (least + last) // 2
    return best or build([*messages[:begin], *messages[starts[-1] :]] if starts else messages)


def _tried(
    build: Callable[[Sequence[Mapping[str, Any]]], Prompt], messages: Sequence[Mapping[str, Any]], most: int
) -> Prompt | None:
    """The prompt, if it fits."""
    try:
        prompt = build(messages)
    except PromptTooLarge:
        return None
    return prompt if prompt.ids is None or len(prompt.ids) <= most else None
