"""Chat templates: messages to the token ids of a prompt, and the format that a model's template implies.

    builder = PromptBuilder(load_templates("path/to/model"), tokenizer, unbraid.find("qwen3"))
    prompt = builder.build(messages, tools=tools)
    prompt.text, prompt.ids

Jinja (`unbraid[templates]`) is imported when the first template is compiled.

    sources.py         a model's templates and tokenizer, out of folders, files, configurations and the hub
    template.py        a template, compiled and rendered
    capabilities.py    which roles and fields a template reads, found by rendering
    control_tokens.py  no message can forge a control token: genuine ones are marked
    traced_text.py     text that knows which message it comes from
    symbolic_text.py   text that stands for any text, to render once for all messages of a kind
    recipes.py         what a template writes, without a rendering, for messages of a kind that it rendered before
    switches.py        the words that a template looks for in messages
    errors.py          what clients and those who choose templates can get wrong
    prompt/            messages to the text and ids of a prompt
    sandbox/           rendering with limits
    detection/         which format a template writes
"""

from __future__ import annotations

from .capabilities import TemplateCapabilities, supports_tools
from .control_tokens import sanitize_text
from .errors import (
    InvalidMessages,
    PromptError,
    PromptTooLarge,
    TemplateBroken,
    TemplateError,
    TemplateNotFound,
    TemplateRefused,
    TemplateTooMuch,
)
from .prompt.builder import BegunCall, Prompt, PromptBuilder, fitting
from .prompt.encoders import Encoder, TextEncoder, encode_inside, encoder
from .prompt.messages import PartHook
from .sandbox.budget import TemplateLimits
from .sources import (
    BUILT_IN,
    TokenizerFiles,
    built_in,
    from_config,
    from_source,
    load_config,
    load_templates,
    load_tokenizer,
)
from .template import ChatTemplate

__all__ = [
    "BUILT_IN",
    "BegunCall",
    "ChatTemplate",
    "Encoder",
    "InvalidMessages",
    "PartHook",
    "Prompt",
    "PromptBuilder",
    "PromptError",
    "PromptTooLarge",
    "TemplateBroken",
    "TemplateCapabilities",
    "TemplateError",
    "TemplateLimits",
    "TemplateNotFound",
    "TemplateRefused",
    "TemplateTooMuch",
    "TextEncoder",
    "TokenizerFiles",
    "built_in",
    "encode_inside",
    "encoder",
    "fitting",
    "from_config",
    "from_source",
    "load_config",
    "load_templates",
    "load_tokenizer",
    "sanitize_text",
    "supports_tools",
]
