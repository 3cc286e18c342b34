"""From chat messages to the token ids of a prompt: a model's own template, rendered safely, and its own tokens, which
no message can forge.

    builder = PromptBuilder(load_templates("path/to/model"), tokenizer, unbraid.find("qwen3"))
    prompt = builder.build(messages, tools=tools)
    prompt.text, prompt.ids

Templates are rendered with jinja2 (`unbraid[server]`), which is imported when the first one is compiled.
"""

from __future__ import annotations

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
from .prompt.builder import Prompt, PromptBuilder, supports_tools
from .prompt.encoders import Encoder, TextEncoder, encoder
from .prompt.messages import PartHook
from .sandbox.budget import TemplateLimits
from .capabilities import Shape
from .sources import built_in, from_config, from_source, load_config, load_templates
from .template import ChatTemplate

__all__ = [
    "ChatTemplate",
    "Encoder",
    "InvalidMessages",
    "PartHook",
    "Prompt",
    "PromptBuilder",
    "PromptError",
    "PromptTooLarge",
    "Shape",
    "TemplateBroken",
    "TemplateError",
    "TemplateLimits",
    "TemplateNotFound",
    "TemplateRefused",
    "TemplateTooMuch",
    "TextEncoder",
    "built_in",
    "encoder",
    "from_config",
    "from_source",
    "load_config",
    "load_templates",
    "supports_tools",
]
