"""Conversations by voice where the model that speaks runs in SGLang or vLLM, by what these two say over HTTP."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from unbraid.server.audio_input import placeholder_hook
from unbraid.server.service import Service
from unbraid.templates import PromptBuilder, built_in
from unbraid.tokens import vocabulary

from ...engines.http_kinds import KINDS, engine
from ...speech.live.talking import say
from ...support.fake_servers import FakeServer
from ...support.real_tokenizers import encode, step_audio_2
from ...support.running_server import service_of, serving
from .support import CODE_MS, Tones, connected, run
from .test_conversation import TOOL, braided, check_order, respond

SAID = "Sure, let me look that up."
BY_HAND = {"type": "realtime", "audio": {"input": {"turn_detection": None}}}
"""The client says where an utterance ends."""
CALL = '<tool_call>function\nsearch\n{"query": "rain"}</tool_call>'


def speaking(kind: str, fake: FakeServer, tokenizer: Any, **settings: Any) -> Service:
    made = engine(kind, fake, vocabulary=vocabulary(tokenizer), context=100_000)
    template = built_in("step-audio-2")
    return service_of(
        made, "step-audio-2", tokenizer=tokenizer, template=template, vocoder=Tones(), names=("speaker",), **settings
    )


@pytest.mark.parametrize("kind", ["sglang", "vllm"])
def test_speech_and_a_call(kind: str) -> None:
    """The ids that the engine samples become a transcript, its sound and a call, in their order."""
    tokenizer = step_audio_2()
    ids = encode(tokenizer, braided(SAID, 20) + CALL + "<|EOT|>")

    async def tried() -> None:
        async with KINDS[kind][0](ids) as fake:
            with serving(speaking(kind, fake, tokenizer)) as running:
                async with connected(running, "?model=speaker") as client:
                    await client.send("session.update", session={"type": "realtime", "tools": [TOOL]})
                    done = await respond(client)
                    check_order(client)
                    speech, call = done["output"]
                    assert speech["content"][0]["transcript"] == SAID
                    assert client.text("response.output_audio_transcript.delta") == SAID
                    sound = b"".join(base64.b64decode(e["delta"]) for e in client.of("response.output_audio.delta"))
                    assert len(sound) == 20 * CODE_MS * Tones.rate // 1000 * 2
                    assert (call["name"], call["arguments"]) == ("search", '{"query": "rain"}')
                    assert done["status"] == "completed"
                    [asked] = fake.generated
                    prompt = asked["input_ids" if kind == "sglang" else "prompt"]
                    assert prompt[-1:] == encode(tokenizer, "<tts_start>")
                    output = {"type": "function_call_output", "call_id": call["call_id"], "output": "rain"}
                    await client.send("conversation.item.create", item=output)
                    await client.send("response.create")
                    await client.until("response.done")
                    prompt = fake.generated[1]["input_ids" if kind == "sglang" else "prompt"]
                    assert len(prompt) > len(ids)

    run(tried)


def test_what_the_user_says_reaches_sglang_as_sound() -> None:
    tokenizer = step_audio_2()
    ids = encode(tokenizer, braided(SAID, 8) + "<|EOT|>")

    async def tried() -> None:
        async with KINDS["sglang"][0](ids) as fake:
            made = speaking("sglang", fake, tokenizer, hears=True)
            model = made.models[0].model
            model.builder = PromptBuilder(
                built_in("step-audio-2"), model.encoder, model.format, part_hook=placeholder_hook("<audio_patch>")
            )
            with serving(made) as running:
                async with connected(running, "?model=speaker") as client:
                    await client.send("session.update", session=BY_HAND)
                    await client.append(say(["one", "two"]))
                    await client.send("input_audio_buffer.commit")
                    await client.send("response.create")
                    done = (await client.until("response.done"))["response"]
                    assert done["output"][0]["content"][0]["transcript"] == SAID
                    [asked] = fake.generated
                    [sound] = asked["audio_data"]
                    assert sound.startswith("data:audio/wav;base64,")

    run(tried)


def test_vllm_is_not_sent_sound() -> None:
    """It takes ids alone. Sound that nothing has transcribed is refused with a reason, and the session goes on."""
    tokenizer = step_audio_2()
    ids = encode(tokenizer, braided(SAID, 8) + "<|EOT|>")

    async def tried() -> None:
        async with KINDS["vllm"][0](ids) as fake:
            with serving(speaking("vllm", fake, tokenizer)) as running:
                async with connected(running, "?model=speaker") as client:
                    await client.send("session.update", session=BY_HAND)
                    await client.append(say(["one", "two"]))
                    await client.send("input_audio_buffer.commit")
                    item = (await client.until("conversation.item.done"))["item"]["id"]
                    await client.send("response.create")
                    refused = (await client.until("error"))["error"]
                    assert "--transcription-model" in refused["message"]
                    assert not fake.generated
                    await client.send("conversation.item.delete", item_id=item)
                    done = await respond(client)
                    assert done["output"][0]["content"][0]["transcript"] == SAID

    run(tried)
