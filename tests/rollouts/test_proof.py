"""What is proven of a template does not depend on who asked first, nor on the day."""

from __future__ import annotations

import pytest

import unbraid
from unbraid.templates.control_tokens import mark_grammar

from .cases import TEMPLATES, TOOLS, encoding_of, renderer, tokenizer

CHATML = """{{ strftime_now('%f') }}{% for m in messages %}<|im_start|>{{ m.role }}
{{ m.content }}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""


@pytest.mark.parametrize("name", TEMPLATES)
def test_a_proof_does_not_depend_on_who_asked_first(name: str) -> None:
    asked, other = renderer.__wrapped__(name, "bytes"), renderer(name, "bytes")
    encoding = encoding_of(name, "bytes")
    call = unbraid.ToolCall("get_weather", '{"city": "Oslo"}', "call00001")
    said: unbraid.Part = call if asked.format.tools is not None else unbraid.Text("content", "It is 7 degrees.")
    written = encoding.encode(unbraid.render(mark_grammar(asked.format, encoding.controls), unbraid.Message((said,))))
    question = [{"role": "user", "content": "And?"}]
    prompt = asked.render(question, TOOLS)
    for following in ([{"role": "tool", "tool_call_id": "none", "content": "7"}], question):
        asked.obstacle(prompt, [*written, asked.stop_ids[0]], following)
    assert asked.proof == other.proof
    assert asked.reasons == other.reasons


def test_a_template_that_writes_the_time() -> None:
    """It goes on: the prompt of a moment ago is not its own doing."""
    made = unbraid.renderer(CHATML, tokenizer("Qwen-Qwen3-0.6B", "bytes"))
    assert made.proof
    assert made.is_prefix_stable, made.reasons
