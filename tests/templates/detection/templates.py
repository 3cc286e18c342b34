"""Templates of our own for the tests of detection, and a message to render with what was derived."""

from __future__ import annotations

from unbraid import Message, Text, ToolCall
from unbraid.core import grammar, notations
from unbraid.core.grammar import Format

MESSAGE = Message(
    (
        Text("reasoning", "They ask for two places."),
        ToolCall("look", '{"place": "Paris", "days": 3}', "call00001"),
        ToolCall("note", '{"text": "a < b"}', "call00002"),
    )
)
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": name,
            "parameters": {"type": "object", "properties": {key: {"type": kind} for key, kind in keys.items()}},
        },
    }
    for name, keys in {"look": {"place": "string", "days": "integer"}, "note": {"text": "string"}}.items()
]


def made_from(text: str) -> Format:
    """What a definition makes, with the names that `unbraid detect` says to import."""
    made = eval(text, {**vars(grammar), **vars(notations)})
    assert isinstance(made, Format)
    return made


def chat(one: str, before: str = "", between: str = "", after: str = "", reasoning: str = "", **other: str) -> str:
    """A template of our own. `one` is how it writes a call."""
    content = other.get("content", "{{ m.content or '' }}")
    return (
        "{%- if tools -%}<|tools|>{{ tools | tojson }}<|end|>{%- endif -%}"
        "{%- for m in messages -%}<|{{ m.role }}|>"
        + ("{%- if m.reasoning_content -%}" + reasoning.replace("…", "{{ m.reasoning_content }}") + "{%- endif -%}")
        + content
        + ("{%- if m.tool_calls -%}" + before + "{%- for c in m.tool_calls -%}{%- set f = c.function -%}")
        + one
        + ("{%- if not loop.last -%}" + between + "{%- endif -%}" if between else "")
        + ("{%- endfor -%}" + after + "{%- endif -%}<|end|>{%- endfor -%}")
        + "{%- if add_generation_prompt -%}<|assistant|>{%- endif -%}"
    )


JSON = '{"name": "{{ f.name }}", "arguments": {{ f.arguments | tojson }}}'
NAMED = "{{ f.name }} {{ f.arguments | tojson }}"
PYTHON = (
    "{{ f.name }}({% for k, v in f.arguments.items() %}{{ k }}={{ v | tojson }}{{ ', ' if not loop.last }}{% endfor %})"
)
TYPED = (
    "<do {{ f.name }}>{% for k, v in f.arguments.items() %}"
    '<arg k="{{ k }}" is="{{ "text" if v is string else "json" }}">'
    "{{ v if v is string else v | tojson }}</arg>{% endfor %}</do>"
)
SYNTHETIC = {
    "JSON in tags": chat(f"<act>{JSON}</act>", reasoning="<muse>…</muse>"),
    "a list after a marker": chat(JSON, "<|acts|>[", ", ", "]"),
    "a name and its arguments": chat(f"[ACT]{NAMED}[/ACT]", reasoning="[MUSE]…[/MUSE]"),
    "calls in a section": chat(f"<act>{NAMED}</act>", "<acts>", "\n", "</acts>"),
    "calls of Python in a list": chat(PYTHON, "<acts>[", ", ", "]</acts>"),
    "calls of Python, each by itself": chat(f"<act>{PYTHON}</act>"),
    "nothing but words": chat("Tool: {{ f.name }}\nInput: {{ f.arguments | tojson }}\n", "\n"),
    "an object inside of another": chat('<act>{"type": "function", "function": ' + JSON + "}</act>"),
    "the arguments as a string": chat(
        '<act>{"name": "{{ f.name }}", "input": {{ f.arguments | tojson | tojson }}}</act>'
    ),
    "the name last": chat('<act>{"input": {{ f.arguments | tojson }}, "function": "{{ f.name }}"}</act>'),
    "an id": chat('<act id="{{ c.id }}" name="{{ f.name }}">{{ f.arguments | tojson }}</act>'),
    "numbers": chat("<act n={{ loop.index }}>" + NAMED + "</act>"),
    "kinds of values": chat(TYPED, "<acts>", "", "</acts>", reasoning="<muse>…</muse>"),
    "content in tags": chat(
        f"<act>{NAMED}</act>",
        reasoning="<muse>…</muse>",
        content="{% if m.content %}<say>{{ m.content }}</say>{% endif %}",
    ),
    "reasoning that the prompt opens": chat(f"<act>{NAMED}</act>", reasoning="<muse>\n…\n</muse>\n").replace(
        "<|assistant|>{%- endif -%}", "<|assistant|><muse>\n{%- endif -%}"
    ),
}


CHATML = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"


ENDLESS = "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}"
