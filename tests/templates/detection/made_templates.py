"""Random chat templates, from a few choices: what stands around a turn, the reasoning, the answer and the calls; where
the template looks for reasoning; how it writes arguments; and what it leaves out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from hypothesis import strategies as st

from unbraid.templates import ChatTemplate

from .templates import JSON, NAMED, PYTHON, TYPED

Pair = tuple[str, str]
USER = {"role": "user", "content": "What now?"}

NOTATIONS = {
    "JSON": JSON,
    "other keys": '{"tool": "{{ f.name }}", "input": {{ f.arguments | tojson }}}',
    "the name last": '{"arguments": {{ f.arguments | tojson }}, "name": "{{ f.name }}"}',
    "name and JSON": NAMED,
    "name and JSON on lines": "{{ f.name }}\n{{ f.arguments | tojson }}",
    "id, name and JSON": "{{ c.id }}|{{ f.name }}|{{ f.arguments | tojson }}",
    "Python": PYTHON,
    "tags": (
        "{{ f.name }}\n{% for k, v in f.arguments.items() %}<k>{{ k }}</k>\n<v>"
        "{{ v if v is string else v | tojson }}</v>\n{% endfor %}"
    ),
    "tags with entities": (
        "{{ f.name }}\n{% for k, v in f.arguments.items() %}<k>{{ k }}</k>\n<v>"
        "{{ v | e if v is string else v | tojson }}</v>\n{% endfor %}"
    ),
    "kinds of values": TYPED,
}
"""How a call is written."""


@dataclass(frozen=True)
class MadeTemplate:
    """The choices."""

    turn: Pair
    """What stands before a turn, with `ROLE` for whose it is, and what ends it."""
    reasoning: Pair | None
    field: str
    """Where the reasoning is looked for; `parts` for parts of the content."""
    without_reasoning: Literal["nothing", "both", "close"]
    """Which markers of reasoning stand in a turn that has none."""
    prompt_opens: bool
    """Whether the prompt opens the reasoning."""
    answer: Pair | None
    messages: bool
    """Whether each strand is a message, with a header and an end."""
    notation: str
    call: Pair
    """What stands around each call,"""
    calls: Pair
    """and around all of them."""
    separator: str
    content_before_calls: bool
    """Whether content is written in a turn that has calls."""

    def source(self) -> str:
        """The template."""
        begin, end = self.turn
        begin = begin.replace("ROLE", "{{ m.role }}")
        prompt = self.prompt()
        between = end + begin if self.messages else ""
        return (
            "{%- if tools -%}" + _print("Tools: ") + "{{ tools | tojson }}{%- endif -%}"
            "{%- for m in messages -%}"
            + self._written(begin)
            + "{%- if m.role != 'assistant' -%}{{ m.content }}{%- else -%}"
            + self._reasoning(between)
            + self._content(between)
            + self._calls()
            + "{%- endif -%}"
            + self._written(end)
            + "{%- endfor -%}{%- if add_generation_prompt -%}"
            + _print(prompt)
            + "{%- endif -%}"
        )

    def prompt(self) -> str:
        """What the model is given to continue."""
        opened = self.reasoning[0] if self.prompt_opens and self.reasoning is not None else ""
        return self.header() + opened

    def header(self) -> str:
        """What stands before a turn of the assistant's."""
        return self.turn[0].replace("ROLE", "assistant")

    @staticmethod
    def _written(text: str) -> str:
        """Text of the template; an expression in it stays one."""
        pieces = text.split("{{ m.role }}")
        return "{{ m.role }}".join(_print(piece) if piece else "" for piece in pieces)

    def _reasoning(self, between: str) -> str:
        if self.reasoning is None:
            return ""
        open, close = self.reasoning
        if self.field == "parts":
            return (
                "{%- if m.content is not string and m.content -%}{%- for part in m.content -%}"
                "{%- if part.type == 'thinking' -%}"
                + _print(open)
                + "{{ part.thinking }}"
                + _print(close)
                + self._written(between)
                + "{%- endif -%}{%- endfor -%}{%- endif -%}"
            )
        instead = {"nothing": "", "both": open + close, "close": close}[self.without_reasoning]
        return (
            f"{{%- if m.{self.field} -%}}"
            + _print(open)
            + f"{{{{ m.{self.field} }}}}"
            + _print(close)
            + self._written(between)
            + "{%- else -%}"
            + (_print(instead) if instead else "")
            + "{%- endif -%}"
        )

    def _content(self, between: str) -> str:
        open, close = self.answer or ("", "")
        shown = "c0.text" if self.field == "parts" else "c0"
        found = (
            "{%- if m.content is string -%}{%- set c0 = {'text': m.content} -%}{%- elif m.content -%}"
            "{%- set c0 = m.content | selectattr('type', 'equalto', 'text') | first | default({'text': ''}) -%}"
            "{%- else -%}{%- set c0 = {'text': ''} -%}{%- endif -%}"
            if self.field == "parts"
            else "{%- set c0 = m.content or '' -%}"
        )
        when = "" if self.content_before_calls else " and not m.tool_calls"
        ended = "{%- if m.tool_calls -%}" + self._written(between) + "{%- endif -%}" if between else ""
        return (
            found
            + f"{{%- if {shown}{when} -%}}"
            + (_print(open) if open else "")
            + f"{{{{ {shown} }}}}"
            + (_print(close) if close else "")
            + ended
            + "{%- endif -%}"
        )

    def _calls(self) -> str:
        separator = "{%- if not loop.last -%}" + _print(self.separator) + "{%- endif -%}" if self.separator else ""
        before, after = (_print(text) if text else "" for text in self.calls)
        open, close = (_print(text) if text else "" for text in self.call)
        return (
            "{%- if m.tool_calls -%}"
            + before
            + "{%- for c in m.tool_calls -%}{%- set f = c.function -%}"
            + open
            + _quoted_lines(NOTATIONS[self.notation])
            + close
            + separator
            + "{%- endfor -%}"
            + after
            + "{%- endif -%}"
        )

    def template(self) -> ChatTemplate:
        return ChatTemplate(self.source())

    def message(self, reasoning: str, content: str, calls: list[dict[str, Any]]) -> dict[str, Any]:
        """A turn, with its reasoning where the template looks for it."""
        message: dict[str, Any] = {"role": "assistant", "content": content}
        if calls:
            message["tool_calls"] = calls
        if reasoning and self.field == "parts":
            parts = [{"type": "text", "text": content}] if content else []
            message["content"] = [{"type": "thinking", "thinking": reasoning}, *parts]
        elif reasoning:
            message[self.field] = reasoning
        return message


def _print(text: str) -> str:
    """An expression that writes the text: Jinja strips whitespace around its tags."""
    spelled = text.replace("\\", "\\\\").replace("'", "\\'").replace("\n", "\\n")
    return "{{ '" + spelled + "' }}"


def _quoted_lines(source: str) -> str:
    """A piece of a template whose line breaks stay, whatever comes before and after it."""
    return source.replace("\n", "{{ '\\n' }}")


_spaces = st.sampled_from(["", "", "\n", " ", "\n\n"])
_TAGS = ["<muse>/</muse>", "[MUSE]/[/MUSE]", "<|muse|>/<|/muse|>", "<think>/</think>", "<|a|>/<|b|>", "◁muse▷/◁/muse▷"]


@st.composite
def _pairs(draw: st.DrawFn, tags: list[str]) -> Pair:
    open, _, close = draw(st.sampled_from(tags)).replace("</", "<\0").replace("[/", "[\0").partition("/")
    open, close = (text.replace("\0", "/") for text in (open, close))
    return draw(_spaces) + open + draw(_spaces), draw(_spaces) + close + draw(_spaces)


@st.composite
def made_templates(draw: st.DrawFn) -> MadeTemplate:
    turn = draw(
        st.sampled_from(
            [
                ("<|ROLE|>", "<|end|>"),
                ("<|im_start|>ROLE\n", "<|im_end|>\n"),
                ("[ROLE]", "</s>"),
                ("ROLE: ", "<|eot|>\n\n"),
                ("<turn>ROLE\n", "</turn>"),
            ]
        )
    )
    reasoning = draw(st.none() | _pairs(_TAGS))
    call = draw(_pairs(["<act>/</act>", "[ACT]/[/ACT]", "<|act|>/<|done|>", "<tool_call>/</tool_call>"]))
    calls = draw(st.just(("", "")) | _pairs(["<acts>/</acts>", "<|acts|>/<|acts_end|>"]))
    return MadeTemplate(
        turn=turn,
        reasoning=reasoning,
        field=draw(st.sampled_from(["reasoning_content", "reasoning", "thinking", "thought", "parts"])),
        without_reasoning=draw(st.sampled_from(["nothing", "nothing", "both", "close"])),
        prompt_opens=draw(st.booleans()),
        answer=draw(st.none() | st.none() | _pairs(["<say>/</say>", "<|say|>/<|said|>"])),
        messages=draw(st.booleans()),
        notation=draw(st.sampled_from(list(NOTATIONS))),
        call=call,
        calls=calls,
        separator=draw(st.sampled_from(["", "\n", " "])),
        content_before_calls=draw(st.booleans()),
    )
