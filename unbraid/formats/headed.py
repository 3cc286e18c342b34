"""Families whose output is messages with headers, and Kimi K3, whose output is elements."""

from __future__ import annotations

from dataclasses import replace

from ..core.grammar import (
    Between,
    Call,
    CallId,
    CallIds,
    CallList,
    Calls,
    Either,
    Format,
    Headers,
    Maybe,
    Name,
    Ordinal,
)
from ..core.notations import Arguments, JsonCall, TaggedArguments
from ..schema.kinds import STRING
from .shapes import json_list, lone

# The prompt ends with `<|start|>assistant`. The recipient stands before the channel or after it.
HARMONY = Format(
    "harmony",
    reasoning=Between("<|start|>assistant<|channel|>analysis<|message|>", "<|end|>"),
    answer=Between("<|start|>assistant<|channel|>final<|message|>", "<|end|>"),
    tools=Calls(
        "<|start|>assistant<|channel|>commentary to=functions.",
        Call((Name(), " <|constrain|>json", "<|message|>", Arguments())),
        "<|call|>",
    ),
    other_tools=tuple(
        Calls(
            "<|start|>assistant to=functions.",
            Call((Name(), f"<|channel|>commentary {kind}<|message|>", Arguments())),
            "<|call|>",
        )
        for kind in ("json", "<|constrain|>json")
    ),
    headers=Headers(
        opens=("<|start|>", "<|channel|>"),
        closes=("<|message|>",),
        ends=("<|call|>", "<|end|>", "<|return|>"),
        # Without the instructions that the vendor's template gives, some write the recipient as a type.
        calls=r"(?:to=\s*(?:functions\.\s*)?|<\|constrain\|>functions\.)(?P<name>(?!assistant\b|user\b|<)[^\s<]+)",
        reasoning=r"<\|channel\|>\s*analysis",
        content="",
        begins=("to=", "assistant", "<|constrain|>"),
    ),
    ends=("<|return|>", "<|call|>", "<|endoftext|>"),
    prompt="<|start|>assistant",
)

# The same frame, with arguments between tags.
_RFL = TaggedArguments(open='<rfl:parameter name="{key}">\n', close="\n</rfl:parameter>")
BEAM = Format(
    "beam",
    reasoning=HARMONY.reasoning,
    answer=HARMONY.answer,
    tools=Calls(
        "<|start|>assistant to=",
        Call((Name(), "<|channel|>analysis", " <|constrain|>xml", "<|message|>", _RFL)),
        "<|call|>",
    ),
    headers=Headers(
        opens=("<|start|>", "<|channel|>"),
        closes=("<|message|>",),
        ends=("<|call|>", "<|end|>", "<|return|>"),
        calls=r"to=\s*(?P<name>(?!assistant\b|user\b|<)[^\s<]+)",
        reasoning=r"<\|channel\|>\s*analysis",
        content="",
        begins=("to=", "assistant", "<|constrain|>"),
    ),
    ends=("<|return|>", "<|call|>", "<|endoftext|>"),
    prompt="<|start|>assistant",
)

# The prompt shows each tool as a namespace with one function in it: models write `name.name`.
_ATEM_CALL = Call(
    (
        "<atem:invoke",
        ' name="',
        Name(namespaced=True),
        '">\n',
        TaggedArguments(open='<atem:parameter name="{key}">', close="</atem:parameter>\n"),
        "</atem:invoke>",
    )
)
_ATEM_CALLS = CallList(_ATEM_CALL, open="<atem:function_calls>\n", separator="\n", close="\n</atem:function_calls>")
# Where special tokens are skipped, what opens the calls is the end of the header, or all that is left of it.
MUSE = Format(
    "muse",
    reasoning=Between("<|start|>assistant to=self<|message|>", "<|eom|>"),
    answer=Between("<|start|>assistant to=user<|message|>", "<|eom|>"),
    tools=Calls(
        "<|start|>assistant to=tools<|message|>",
        Either("<atem:invoke", replace(_ATEM_CALLS, open=""), _ATEM_CALLS),
        "<|eom|>",
    ),
    headers=Headers(
        opens=("<|start|>",),
        closes=("<|message|>", "<atem:function_calls>"),
        ends=("<|eom|>", "<|eot|>"),
        calls=r"to=(?!self\b|user\b|commentary\b)[^\s<]|(?:assistant|<\|message\|>)\s*<atem:function_calls>$",
        reasoning=r"to=self\b",
        content=r"<\|message\|>$",
        # Whose turn, and to whom. Text may begin with `to=` as well.
        inside=r"\s*\w*\s*(?:t|to|to=[^\s<]*)?\s*",
        begins=("to=", "assistant", "<atem:function_calls>"),
    ),
    ends=("<|eot|>", "<|end_of_text|>"),
    prompt="<|start|>assistant",
)

_INKLING_CALL = Call((JsonCall(arguments=("args", "arguments", "parameters"), by_schema=True),))
INKLING = Format(
    "inkling",
    reasoning=Between("<|message_model|><|content_thinking|>", "<|end_message|>"),
    answer=Between("<|message_model|><|content_text|>", "<|end_message|>"),
    tools=Calls("<|message_model|><|content_invoke_tool_json|>", _INKLING_CALL, "<|end_message|>"),
    headers=Headers(
        opens=("<|message_model|>",),
        closes=(
            "<|content_thinking|>",
            "<|content_text|>",
            "<|content_invoke_tool_json|>",
            "<|content_invoke_tool_text|>",
        ),
        ends=("<|end_message|>", "<|content_model_end_sampling|>"),
        calls=r"<\|content_invoke_tool_json\|>$",
        reasoning=r"<\|content_thinking\|>$",
        content=r"<\|content_text\|>$",
    ),
    ends=("<|content_model_end_sampling|>", "<|endoftext|>"),
)

_SOLAR_CALL = Call(
    (
        "<|tool_call:begin|>",
        CallId(),
        "<|tool_call:name|>",
        Name(),
        "<|tool_call:args|>",
        Arguments(),
        "<|tool_call:end|>",
    )
)
SOLAR_OPEN = Format(
    "solar-open",
    reasoning=Between("<|begin|>assistant<|think|>", "<|end|>"),
    answer=Between("<|begin|>assistant<|content|>", "<|end|>"),
    tools=Calls("<|begin|>assistant<|tool_calls|>", CallList(_SOLAR_CALL), "<|calls|>"),
    headers=Headers(
        opens=("<|begin|>",),
        closes=("<|think|>", "<|content|>", "<|tool_calls|>"),
        ends=("<|calls|>", "<|end|>", "<|flush|>"),
        calls=r"<\|tool_calls\|>$",
        reasoning=r"<\|think\|>$",
        content="",
        begins=("assistant",),
    ),
    ends=("<|calls|>", "<|flush|>", "<|endoftext|>"),
    prompt="<|begin|>assistant",
    call_ids=CallIds(prefix="", length=10),
)

# HyperCLOVA X SEED: what follows the role says what the message is, and the line's end is the header's. The prompt ends
# with the role. Older models write one call, newer ones a list.
_HCX_CALL = JsonCall(arguments=("arguments", "parameters", "input"))
HYPERCLOVA_X = Format(
    "hyperclovax-seed",
    reasoning=Between("<|im_start|>assistant/think\n", "<|im_end|>\n"),
    answer=Between("<|im_start|>assistant\n", "<|im_end|>\n"),
    tools=Calls(
        "<|im_start|>assistant -> tool/function_call\n",
        Either("{", Call((_HCX_CALL,)), json_list(_HCX_CALL)),
        "<|im_end|>\n",
    ),
    headers=Headers(
        opens=("<|im_start|>",),
        closes=("\n",),
        ends=("<|im_end|>\n",),
        calls=r"-> tool/function_call\n$",
        reasoning=r"/think\n$",
        content=r"assistant\n$",
        inside=r"[\w/]*(?: (?:-(?:>(?: [\w/]*)?)?)?)?",
    ),
    ends=("<|endofturn|>", "<|stop|>"),
    prompt="<|im_start|>assistant",
)

# `>>>all` speaks to the user, `>>>name` to a function. The prompt ends with `>>>`.
FUNCTIONARY_32 = Format(
    "functionary-v3.2",
    answer=Between(">>>all\n", ""),
    tools=Calls(">>>", Call((Name(), "\n", Arguments()))),
    headers=Headers(
        opens=(">>>",),
        closes=("\n",),
        ends=("<|eot_id|>",),
        calls=r">>>(?P<name>(?!all\n)[\w.-]+)\n$",
        reasoning=r"(?!)",
        content=r">>>all\n$",
        inside=r"[\w.-]*",
    ),
    ends=("<|eot_id|>", "<|eom_id|>"),
    prompt=">>>",
)

_KINDS = tuple((kind, (kind,)) for kind in (STRING, "number", "boolean", "object", "array", "null"))
_K3_ESCAPES = (("&", "&amp;"), ('"', "&quot;"))
_K3_CALLS = Calls(
    "<|open|>tools<|sep|>",
    CallList(
        Call(
            (
                "<|open|>call tool=",
                '"',
                Name(escapes=_K3_ESCAPES),
                '"',
                Maybe(' index="', (Ordinal(1), '"')),
                "<|sep|>",
                TaggedArguments(
                    open='<|open|>argument key="{key}"{kind}<|sep|>',
                    close="<|close|>argument<|sep|>",
                    kind=' type="{}"',
                    kinds=_KINDS,
                    key_escapes=_K3_ESCAPES,
                ),
                "<|close|>call<|sep|>",
            )
        )
    ),
    "<|close|>tools<|sep|>",
)
KIMI_K3 = Format(
    "kimi-k3",
    reasoning=Between("<|open|>think<|sep|>", "<|close|>think<|sep|>"),
    answer=Between("<|open|>response<|sep|>", "<|close|>response<|sep|>"),
    tools=_K3_CALLS,
    other_tools=(lone(_K3_CALLS),),
    ignored=("<|close|>message<|sep|>", '<|open|>message role="assistant"<|sep|>'),
    ends=("<|end_of_msg|>", "[EOS]", "[EOT]"),
    optional_end="<|sep|>",
)
