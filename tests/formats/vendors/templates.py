"""The vendors' chat templates in the shared data: the formats that they speak, and what they lose of a turn."""

from __future__ import annotations

import json
from dataclasses import replace

from .rendering import Template
from .turns import PLAIN_TOOLS, TOOLS, Loss

# What templates lose

NO_CONTENT = Loss(
    "The content of a message that has calls is not written.",
    lambda turn: replace(turn, content="") if turn.calls else turn,
)
NO_CALLS_WITH_CONTENT = Loss(
    "The calls of a message that has content are not written.",
    lambda turn: replace(turn, calls=()) if turn.content else turn,
)
ONE_CALL = Loss("Only the first call is written.", lambda turn: replace(turn, calls=turn.calls[:1]))
TWO_CALLS = Loss(
    "The second call ends the turn, and only it does: the calls after it are lost.",
    lambda turn: replace(turn, calls=turn.calls[:2]),
)
STRIPPED = Loss("The content is stripped.", lambda turn: replace(turn, content=turn.content.strip()))
REASONING_STRIPPED = Loss("The reasoning is stripped.", lambda turn: replace(turn, reasoning=turn.reasoning.strip()))
REASONING_ONLY_WITH_CALLS = Loss(
    "The reasoning of a message without calls is not written.",
    lambda turn: turn if turn.calls else replace(turn, reasoning=""),
)
QWEN3_STRIPS = Loss(
    "Line breaks around the reasoning and before the content are stripped.",
    lambda turn: replace(turn, content=turn.content.lstrip("\n"), reasoning=turn.reasoning.strip("\n")),
)
A_LINE_BREAK = Loss(
    "A line break of the template's own follows the content before calls.",
    lambda turn: replace(turn, content=turn.content + "\n") if turn.content and turn.calls else turn,
)
CODER_STRIPS = Loss(
    "The content before calls is stripped, and a line break of its own follows it.",
    lambda turn: replace(turn, content=turn.content.strip() + "\n") if turn.content and turn.calls else turn,
)
NO_REASONING = Loss(
    "All up to </think> is cut off. The line breaks after it stay, and nothing says that they are not content.",
    lambda turn: replace(turn, content="\n\n" + turn.content, reasoning="") if turn.reasoning else turn,
)
CUT_REASONING = Loss("All up to </think> is cut off.", lambda turn: replace(turn, reasoning=""))
CONTENT_IS_REASONING = Loss(
    "The content of a message that has calls is written as reasoning.",
    lambda turn: replace(turn, content="", reasoning=turn.content or turn.reasoning) if turn.calls else turn,
)


def _indented(value: object) -> str:
    """As Jinja's `tojson(indent=4) | indent(8)`."""
    return json.dumps(value, ensure_ascii=False, indent=4).replace("\n", "\n" + 8 * " ")


# The templates

CHAT_ML = (("<|im_start|>assistant\n",), ("<|im_end|>\n",))
LLAMA_HEADER = "<|start_header_id|>assistant<|end_header_id|>\n\n"
COHERE_START = "<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>"
EOS = "<｜end▁of▁sentence｜>"
GLM_TAGS = ("</tool_call>", "</arg_value>")
FUNCTION_TAGS = ("</tool_call>", "</parameter>")

QWEN3 = Template("Qwen-Qwen3-0.6B", ("qwen3",), *CHAT_ML, (QWEN3_STRIPS,), reasoning="field")
HERMES = Template("NousResearch-Hermes-3-Llama-3.1-8B-tool_use", ("hermes",), *CHAT_ML, (NO_CONTENT,))
R1 = Template(
    "llama-cpp-deepseek-r1",
    *(("deepseek-r1",), ("<｜Assistant｜>",), (EOS,), (NO_REASONING, NO_CALLS_WITH_CONTENT)),
    reasoning="content",
    tools=None,
    note="It cannot be told tools: Jinja's `map` gives it what `tojson` does not take.",
)
DEEPSEEK_V32 = Template(
    "deepseek-ai-DeepSeek-V3.2",
    *(("deepseek-v3.2",), ("<｜Assistant｜></think>", "<｜Assistant｜>"), (EOS,)),
    arguments=("object",),
    tags=("</｜DSML｜parameter>",),
    note="Arguments as text would need a filter `from_json`, which Hugging Face does not have.",
)
LLAMA_3 = Template(
    "meta-llama-Llama-3.1-8B-Instruct",
    *(("llama-3",), (LLAMA_HEADER,), ("<|eot_id|>",), (NO_CONTENT, STRIPPED)),
    refuses=lambda turn: len(turn.calls) > 1,
    note="More than one call in a message is an error.",
)
LAGUNA = Template(
    "poolside-Laguna-XS.2",
    *(("poolside-v1",), ("<assistant>\n</think>\n", "<assistant>\n"), ("\n</assistant>\n",)),
    (STRIPPED, REASONING_STRIPPED),
    arguments=("object",),
    reasoning="field",
    tags=GLM_TAGS,
)
GLM_46 = Template(
    "GLM-4.6",
    *(("glm-4.5",), ("<|assistant|>",), ("",), (STRIPPED, REASONING_STRIPPED)),
    arguments=("object",),
    reasoning="field",
    tags=GLM_TAGS,
)
LFM2 = Template(
    "LFM2-8B-A1B", ("lfm2",), *CHAT_ML, arguments=(), note="It writes no calls: the model's own text is to be given."
)
KIMI_K2 = Template("moonshotai-Kimi-K2", ("kimi-k2",), ("<|im_assistant|>assistant<|im_middle|>",), ("<|im_end|>",))

TEMPLATES = {
    "Apertus": Template(
        "Apertus-8B-Instruct",
        *(("apertus",), ("<|assistant_start|>",), ("",)),
        reasoning="blocks",
        opens=lambda turn: bool(turn.reasoning and turn.calls and not turn.content),
        note="Reasoning is a block of the content. It goes on after calls, and is closed only before an answer.",
    ),
    "Apriel 1.5": Template("unsloth-Apriel-1.5", ("apriel",), ("<|assistant|>\n",), ("\n<|end|>\n</s>",)),
    "Command R+": Template(
        "CohereForAI-c4ai-command-r-plus-tool_use",
        *(("command-r",), (COHERE_START,), ("<|END_OF_TURN_TOKEN|>", "\n<|START_OF_TURN_TOKEN|>"), (STRIPPED,)),
        arguments=("object",),
        spelling=_indented,
        tools=PLAIN_TOOLS,
        more=True,
    ),
    "Command R7B": Template(
        "CohereForAI-c4ai-command-r7b-12-2024-tool_use",
        *(("cohere-command-3",), (COHERE_START,), ("<|END_OF_TURN_TOKEN|>",), (NO_CONTENT, REASONING_ONLY_WITH_CALLS)),
        reasoning="field",
        more=True,
    ),
    "Cohere 2 MoE": Template(
        "Cohere2MoE",
        *(("cohere-command-4",), (COHERE_START,), ("<|END_OF_TURN_TOKEN|>",), (NO_CONTENT,)),
        reasoning="field",
    ),
    "DeepSeek R1": R1,
    "DeepSeek R1 Distill Llama": replace(
        R1,
        file="deepseek-ai-DeepSeek-R1-Distill-Llama-8B",
        losses=(NO_REASONING, NO_CALLS_WITH_CONTENT, TWO_CALLS),
        arguments=("text",),
        tools=TOOLS,
        null=True,
        more=True,
        opens=lambda turn: len(turn.calls) == 1,
        note="A single call is not closed, and the turn does not end after it.",
    ),
    "DeepSeek R1 Distill Qwen": replace(
        R1,
        file="deepseek-ai-DeepSeek-R1-Distill-Qwen-32B",
        losses=(NO_REASONING, NO_CONTENT),
        tools=TOOLS,
        more=True,
        note="Content is written after the calls, as a turn of its own.",
    ),
    "DeepSeek V3.1": Template(
        "deepseek-ai-DeepSeek-V3.1", ("deepseek-v3.1",), ("<｜Assistant｜><think></think>",), (EOS,)
    ),
    "DeepSeek V3.2": DEEPSEEK_V32,
    "DeepSeek V3.2, thinking": replace(DEEPSEEK_V32, options={"thinking": True}, reasoning="field"),
    "DeepSeek V4": replace(DEEPSEEK_V32, file="deepseek-ai-DeepSeek-V4", formats=("deepseek-v4",)),
    "DeepSeek V4, thinking": replace(
        DEEPSEEK_V32,
        file="deepseek-ai-DeepSeek-V4",
        formats=("deepseek-v4",),
        options={"thinking": True},
        reasoning="field",
    ),
    "Devstral": Template("unsloth-mistral-Devstral-Small-2507", ("mistral", "mistral-v13"), ("",), ("</s>",)),
    "Firefunction 2": Template(
        "fireworks-ai-llama-3-firefunction-v2",
        *(("firefunction-v2",), (LLAMA_HEADER,), ("<|eot_id|>",), (STRIPPED,)),
        options={"functions": "[]", "datetime": "2025-01-01"},
        more=True,
        note="It is told tools as a text of its own, `functions`.",
    ),
    "Functionary 3.1": Template(
        "meetkai-functionary-medium-v3.1", ("functionary-v3.1",), (LLAMA_HEADER,), ("<|eot_id|>", "<|eom_id|>")
    ),
    "Functionary 3.2": Template(
        "meetkai-functionary-medium-v3.2",
        *(("functionary-v3.2",), (f"{LLAMA_HEADER}>>>",), ("<|eot_id|>",)),
        arguments=("text",),
    ),
    "GigaChat 3": Template(
        "GigaChat3-10B-A1.8B",
        *(("gigachat-3",), ("assistant<|role_sep|>\n",), ("<|message_sep|>\n\n",), (ONE_CALL,)),
    ),
    "GLM 4.6": GLM_46,
    "GLM 4.7": replace(
        GLM_46, file="GLM-4.7-Flash", formats=("glm-4.7",), starts=("<|assistant|></think>", "<|assistant|>")
    ),
    "gpt-oss": Template(
        "openai-gpt-oss-120b",
        *(("harmony",), ("<|start|>assistant",), ("<|return|>", "<|call|>"), (CONTENT_IS_REASONING, ONE_CALL)),
        reasoning="field",
        refuses=lambda turn: bool(turn.content and turn.reasoning and turn.calls),
        note="Content and reasoning in a message with calls are an error.",
    ),
    "Granite 3.3": Template(
        "ibm-granite-granite-3.3-2B-Instruct",
        *(("granite-3",), ("<|start_of_role|>assistant<|end_of_role|>",), ("<|end_of_text|>\n",)),
        arguments=(),
        note="It writes no calls: the model's own text is to be given.",
    ),
    "Granite 4.0": Template(
        "ibm-granite-granite-4.0",
        *(("granite-4",), ("<|start_of_role|>assistant<|end_of_role|>",), ("<|end_of_text|>\n",)),
    ),
    "Hermes 2 Pro": replace(HERMES, file="NousResearch-Hermes-2-Pro-Llama-3-8B-tool_use"),
    "Hermes 3": HERMES,
    "Kimi K2": KIMI_K2,
    "Kimi K2 Instruct": replace(
        KIMI_K2,
        file="Kimi-K2-Instruct",
        unsafe=True,
        note="Calls need `list.append`, which Hugging Face's sandbox refuses.",
    ),
    "Kimi K3": Template(
        "Kimi-K3",
        *(("kimi-k3",), ('<|open|>message role="assistant"<|sep|>',), ("<|close|>message<|sep|><|end_of_msg|>",)),
        arguments=("object",),
        reasoning="field",
        tags=("<|close|>argument<|sep|>",),
        note="Arguments as text it writes as one element, `json`, which the format does not know.",
    ),
    "Laguna XS.2": LAGUNA,
    "Laguna XS 2.1": replace(LAGUNA, file="poolside-Laguna-XS-2.1"),
    "LFM2": LFM2,
    "LFM2.5": replace(LFM2, file="LFM2.5-Instruct"),
    "Llama 3.1": LLAMA_3,
    "Llama 3.2": replace(LLAMA_3, file="meta-llama-Llama-3.2-3B-Instruct"),
    "Llama 3.3": replace(LLAMA_3, file="meta-llama-Llama-3.3-70B-Instruct"),
    "MiniMax M1": Template(
        "MiniMax-M1",
        *(("minimax-m1",), ("<beginning_of_sentence>ai name=assistant\n",), ("<end_of_sentence>\n",)),
        (NO_CONTENT, STRIPPED),
    ),
    "MiniMax M2": Template(
        "MiniMax-M2",
        *(("minimax-m2",), ("]~b]ai\n",), ("[e~[\n",)),
        arguments=("object",),
        reasoning="field",
        tags=("</parameter>",),
    ),
    "Mistral Nemo": Template(
        "mistralai-Mistral-Nemo-Instruct-2407", ("mistral", "mistral-v3"), ("",), ("</s>",), (NO_CONTENT,)
    ),
    # It would write arguments that are given as text as a JSON string, which is no grammar of Mistral's.
    "Mistral Small 3.2": Template(
        "Mistral-Small-3.2-24B-Instruct-2506",
        *(("mistral", "mistral-v11"), ("",), ("</s>",), (NO_CONTENT,)),
        arguments=("object",),
        ids=True,
    ),
    "Nemotron Nano 2": Template(
        "NVIDIA-Nemotron-Nano-v2",
        *(("nemotron-nano-v2",), ("<SPECIAL_11>Assistant\n",), ("\n<SPECIAL_12>\n",), (CUT_REASONING, STRIPPED)),
        reasoning="content",
        followed=True,
        more=True,
        note="The last message it writes in another way: as two turns, content in the first, reasoning never closed.",
    ),
    "Qwen 2.5": Template("Qwen-Qwen2.5-7B-Instruct", ("qwen2.5",), *CHAT_ML),
    "Qwen 3": QWEN3,
    "Qwen 3, not thinking": replace(QWEN3, options={"enable_thinking": False}),
    "Qwen 3 Coder": Template(
        "Qwen3-Coder", ("qwen3-coder",), *CHAT_ML, (CODER_STRIPS,), arguments=("object",), tags=FUNCTION_TAGS
    ),
    "QwQ": Template(
        "Qwen-QwQ-32B",
        *(("qwen3-thinking",), *CHAT_ML),
        options={"enable_thinking": True},
        reasoning="content",
    ),
    "Seed-OSS": Template(
        "ByteDance-Seed-OSS",
        *(("seed-oss",), ("<seed:bos>assistant\n", "<seed:bos>assistant"), ("<seed:eos>", "")),
        (STRIPPED, A_LINE_BREAK, REASONING_STRIPPED),
        arguments=("object",),
        reasoning="field",
        tags=("</parameter>", "</seed:tool_call>"),
        unusual=frozenset({"nested arguments"}),
        note="The template writes arrays and objects as Python does (`{'a': None}`). They are read back where the "
        "tool's schema allows only an array or only an object.",
    ),
}

_NOTHING = "writes no calls and no reasoning: there is nothing to take apart"
WITHOUT_FORMAT = {
    "google-gemma-2-2b-it": _NOTHING,
    "google-gemma-4-31B-it": "sorts arguments, and writes the content after calls: `test_bare_arguments.py` has it",
    "microsoft-Phi-3.5-mini-instruct": _NOTHING,
    "MiniMax-M3": "leaves out what is null: `test_element_arguments.py` has it",
}
"""Templates that no format of ours reads, and why."""
