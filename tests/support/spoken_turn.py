"""A turn of Step-Audio 2 as its tokenizer writes it: speech, text and audio codes braided, and then a tool call."""

from __future__ import annotations

import json
from dataclasses import dataclass
from random import Random

from .real_tokenizers import encode, encode_plain, step_audio_2, step_audio_2_tokens

AUDIO_PER_TEXT = 4


@dataclass(frozen=True)
class SpokenTurn:
    """The tokens of a turn, and what is in them."""

    prompt: tuple[int, ...]
    output: tuple[int, ...]
    said: str
    codes: list[int]
    tool: str
    arguments: str


def spoken_turn(
    said: str = "好的，我来帮您查一下明天上海的天气。",
    query: str = "上海 明天 天气预报",
    codes: int = 81,
    seed: int = 0,
) -> SpokenTurn:
    """One text token to four audio tokens, padding where the text is over before the audio; the prompt has opened the
    speech. Then a call of `search`."""
    tokenizer, tokens = step_audio_2(), step_audio_2_tokens()
    chance = Random(seed)
    audio = [chance.randrange(6561) for _ in range(codes)]
    words = encode_plain(tokenizer, said)
    braided: list[int] = []
    for at in range(max(len(words), -(-codes // AUDIO_PER_TEXT))):
        braided.append(words[at] if at < len(words) else tokens["<tts_pad>"])
        braided += [tokens[f"<audio_{code}>"] for code in audio[at * AUDIO_PER_TEXT : (at + 1) * AUDIO_PER_TEXT]]
    arguments = json.dumps({"query": query}, ensure_ascii=False)
    call = f"<tts_end><tool_call>function\nsearch\n{arguments}</tool_call><|EOT|>"
    prompt = encode(tokenizer, "<|BOT|>human\n明天上海天气怎么样？<|EOT|><|BOT|>assistant\n<tts_start>")
    return SpokenTurn(tuple(prompt), (*braided, *encode(tokenizer, call)), said, audio, "search", arguments)
