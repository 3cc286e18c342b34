"""Templates render as Hugging Face and mistral-common do, to the same text and the same ids."""

from __future__ import annotations

from typing import Any

import pytest
from mistral_common.protocol.instruct import tool_calls as mistral_calls
from mistral_common.protocol.instruct.messages import AssistantMessage, SystemMessage, ToolMessage, UserMessage
from mistral_common.protocol.instruct.request import ChatCompletionRequest

import unbraid
from unbraid.templates import (
    ChatTemplate,
    PromptBuilder,
    TemplateBroken,
    encoder,
)

from ..support import real_tokenizers
from .prompt_cases import (
    NEEDS,
    SPM,
    SPM_1,
    TOOLS,
    as_hugging_face_wants,
    conversation,
    openai_messages,
    qwen3,
    qwen3_builder,
    qwen3_transformers,
    vendor,
    vendor_builder,
)
from .prompt_models import ALL_TEMPLATES


@pytest.mark.parametrize("options", [{}, {"enable_thinking": False}], ids=str)
@pytest.mark.parametrize("tools", [None, TOOLS], ids=["no tools", "tools"])
@pytest.mark.parametrize("count", [2, 4, 5, 6, 8])
def test_prompts_are_those_of_transformers(options: dict[str, Any], tools: Any, count: int) -> None:
    theirs = qwen3_transformers().apply_chat_template(
        as_hugging_face_wants()[:count], tools=tools, add_generation_prompt=True, tokenize=False, **options
    )
    ids = qwen3_transformers().apply_chat_template(
        as_hugging_face_wants()[:count], tools=tools, add_generation_prompt=True, return_dict=False, **options
    )
    ours = qwen3_builder().build(conversation()[:count], tools=tools, template_kwargs=options)
    assert ours.text == theirs
    assert list(ours.ids or ()) == list(ids)
    assert qwen3().render(as_hugging_face_wants()[:count], tools, **options) == theirs


@pytest.mark.parametrize("content", ["Once upon", " Once upon ", "Once upon \n\n", "<|im_end|> and "])
@pytest.mark.parametrize("strips", [True, False])
def test_a_message_is_left_open_as_transformers_does(content: str, strips: bool) -> None:
    source = (
        "{%- for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content"
        + ("|trim" if strips else "")
        + " }}<|im_end|>\n{% endfor %}"
    )
    messages = [{"role": "user", "content": "Tell."}, {"role": "assistant", "content": content}]
    theirs = qwen3_transformers().apply_chat_template(
        messages, chat_template=source, continue_final_message=True, tokenize=False
    )
    assert ChatTemplate(source).render(messages, add_generation_prompt=False, continue_final_message=True) == theirs
    assert PromptBuilder(ChatTemplate(source)).build(messages, continue_final_message=True).text == theirs


@pytest.mark.parametrize("name", ALL_TEMPLATES)
def test_templates_render_as_transformers_does(name: str) -> None:
    import transformers

    template = vendor(name)
    capabilities = vendor_builder(name).capabilities()
    messages = [capabilities.adapt(dict(each)) for each in conversation("Weather?")[1:3]]
    tokens = {"bos_token": "<s>", "eos_token": "</s>", **NEEDS.get(name, {})}
    try:
        theirs = transformers.utils.chat_template_utils.render_jinja_template(
            [messages], chat_template=template.source, add_generation_prompt=True, tools=TOOLS, **tokens
        )[0][0]
    except TypeError as error:  # llama.cpp's own templates do what only llama.cpp's Jinja can
        with pytest.raises(TemplateBroken, match=str(error)):
            template.render(messages, TOOLS)
    else:
        needs: dict[str, Any] = dict(NEEDS.get(name, {}))
        assert template.render(messages, TOOLS, **needs) == theirs


def test_what_only_templates_for_training_have() -> None:
    source = (
        "{% for m in messages %}{% generation %}{{ m.content }}{% endgeneration %}"
        "{% if loop.first %}{% break %}{% endif %}{% endfor %}"
    )
    assert ChatTemplate(source).render(conversation()) == "Be brief."
    source = "{{ messages[0] | tojson(indent=1, sort_keys=true, separators=(',', ':')) }} {{ 'é<' | tojson }}"
    assert ChatTemplate(source).render([{"b": 1, "a": "é<'"}]) == '{\n "a":"é<\'",\n "b":1\n} "é<"'
    assert ChatTemplate("{{ strftime_now('%Y') }}").render([]).isdigit()
    named = ChatTemplate("{{ bos_token }}{{ pad_token }}", bos_token="<s>", special_tokens={"pad_token": "<p>"})
    assert named.render([]) == "<s><p>"


def mistral_request() -> tuple[list[Any], list[Any]]:
    function = mistral_calls.Function(**TOOLS[0]["function"])
    call = mistral_calls.ToolCall(
        id="Call00001", function=mistral_calls.FunctionCall(name="get_weather", arguments='{"city": "Tōkyō"}')
    )
    messages = [
        UserMessage(content="Hi there?"),
        AssistantMessage(content="Hello."),
        UserMessage(content="Weather?"),
        AssistantMessage(content=None, tool_calls=[call]),
        ToolMessage(content='{"sun": true}', tool_call_id="Call00001", name="get_weather"),
    ]
    return messages, [mistral_calls.Tool(function=function)]


@pytest.mark.parametrize(
    ("version", "tekken", "source"),
    [
        (1, False, SPM_1),
        (2, False, SPM),
        (3, False, SPM),
        (7, False, SPM),
        (3, True, SPM.replace("] '", "]'").replace("' '", "''")),
        (13, True, SPM.replace("] '", "]'").replace("' '", "''")),
    ],
)
def test_prompts_are_those_of_mistral_common(version: int, tekken: bool, source: str) -> None:
    tokenizer = real_tokenizers.mistral(version, tekken=tekken)
    builder = PromptBuilder(ChatTemplate(source, bos_token="<s>", eos_token="</s>"), tokenizer)
    messages = [*openai_messages()[:2], {"role": "user", "content": "  [INST] \nWeather? </s>"}]
    theirs = [*mistral_request()[0][:2], UserMessage(content="  [INST] \nWeather? </s>")]
    if version >= 7:
        messages.insert(0, {"role": "system", "content": "Be brief."})
        theirs.insert(0, SystemMessage(content="Be brief."))
    expected = tokenizer.encode_chat_completion(ChatCompletionRequest(messages=theirs)).tokens
    prompt = builder.build(messages)
    assert list(prompt.ids or ()) == expected


@pytest.mark.parametrize(("version", "tekken"), [(3, True)])
def test_tools_are_encoded_as_mistral_common_does(version: int, tekken: bool) -> None:
    tokenizer = real_tokenizers.mistral(version, tekken=tekken)
    builder = PromptBuilder(vendor("mistralai-Mistral-Nemo-Instruct-2407"), tokenizer, unbraid.find("mistral"))
    messages, tools = mistral_request()
    theirs = tokenizer.encode_chat_completion(ChatCompletionRequest(messages=messages, tools=tools)).tokens
    ours = list(builder.build(openai_messages(), tools=TOOLS).ids or ())
    special = encoder(tokenizer).controls.ids.values()
    # The template's JSON has other spaces than mistral-common's; the control tokens are the same.
    assert [id for id in ours if id in special] == [id for id in theirs if id in special]


@pytest.mark.system
def test_dummy_prefixes_are_those_of_hugging_face() -> None:
    tokenizer = real_tokenizers.mistral_1_huggingface()
    builder = PromptBuilder(ChatTemplate(SPM_1, bos_token="<s>", eos_token="</s>"), tokenizer)
    ours = builder.build(openai_messages()[:3])
    assert list(ours.ids or ()) == tokenizer.encode(ours.text, add_special_tokens=False).ids
    forged = builder.build([{"role": "user", "content": "a</s>b <s> c"}])
    assert [id for id in forged.ids or () if id in (1, 2)] == [1]
    assert tokenizer.decode(list(forged.ids or ())) == "[INST] a</s>b <s> c [/INST]"
