"""Models that speak: text and audio braided in one stream; and Whisper, whose transcripts have times in them.

Among those that speak, three things differ. What opens the speech: a marker that the prompt or the model writes, or
nothing but the system message; then all of the turn is spoken. Where the audio codes are: tokens with a text, tokens
that are known by their ids alone (Covo-Audio), or frames from a head of their own, beside the tokens (`feed_codes`).
And what stands around them. The ratios are those that the vendors trained with.
"""

from __future__ import annotations

from dataclasses import replace

from ..core.grammar import Between, Call, Calls, Format, Name, SpeechMarkup, TranscriptMarkup
from ..core.notations import Arguments
from .shapes import THINK_TAGS
from .tagged_calls import QWEN_3_CODER

_CHATML_ENDS = ("<|im_end|>", "<|endoftext|>")

STEP_AUDIO_2 = Format(
    "step-audio-2",
    reasoning=THINK_TAGS,
    tools=Calls("<tool_call>", Call(("function\n", Name(), "\n", Arguments())), "</tool_call>"),
    speech=SpeechMarkup(
        "<tts_start>",
        "<tts_end>",
        code="<audio_{}>",
        codes=6561,
        padding=("<tts_pad>", "<audio_6561>"),
        ratio=(1, 4),
    ),
    ends=("<|EOT|>",),
)
# The prompt ends with `<|assistant|>streaming_transcription`: the text transcribes what is said.
GLM_4_VOICE = Format(
    "glm-4-voice", speech=SpeechMarkup(code="<|audio_{}|>", codes=16384, ratio=(13, 26)), ends=("<|user|>",)
)
# The ratio is that of VITA-Audio-Boost after its first turn. Some of its codecs have fewer codes.
VITA_AUDIO = Format(
    "vita-audio",
    speech=SpeechMarkup(
        code="<|audio_{}|>", codes=16384, around=("<|begin_of_audio|>", "<|end_of_audio|>"), ratio=(4, 10)
    ),
    ends=_CHATML_ENDS,
)
# Its embedding goes on after the last token that the tokenizer has.
COVO_AUDIO = Format(
    "covo-audio", speech=SpeechMarkup(codes=16384, first_token=151671, ratio=(5, 15)), ends=_CHATML_ENDS
)
BAICHUAN_AUDIO = Format(
    "baichuan-audio",
    speech=SpeechMarkup(codes=8192, codebooks=8, around=("<audiogen_start_baichuan>", "<audiogen_end_baichuan>")),
    ends=("<|endoftext|>",),
)
# A section holds codes alone: what is said stands in the prompt.
AUDEX = Format(
    "audex",
    reasoning=Between("<think>\n", "</think>"),
    tools=QWEN_3_CODER.tools,
    other_tools=QWEN_3_CODER.other_tools,
    speech=SpeechMarkup("<speechgen_start>", "<speechgen_end>", code="<speechcodec_{}>", codes=65536),
    ends=_CHATML_ENDS,
)
# The same models as they make sounds: frames of another codec, whose four codebooks are numbered through.
AUDEX_TTA = replace(
    AUDEX,
    name="audex-tta",
    speech=SpeechMarkup("<audiogen_start>", "<audiogen_end>", code="<audiocodec_{}>", codes=4096, codebooks=4),
)
# Each token has a group of four frames beside it. While these hold audio, the text is `<|empty|>`. `<|eot|>` ends the
# text, not the audio.
MIMO_AUDIO = Format(
    "mimo-audio",
    reasoning=Between("<think>\n", "\n</think>\n"),
    speech=SpeechMarkup(
        "<|sostm|>", "<|eostm|>", codes=1024, codebooks=8, padding=("<|empty|>", "<|eot|>"), ratio=(5, 5)
    ),
    ends=_CHATML_ENDS,
)
# The ratio is in the model's configuration. `<|text_end|>` ends the text, not the audio.
LFM2_AUDIO = Format(
    "lfm2-audio",
    speech=SpeechMarkup(codes=2048, codebooks=8, padding=("<|audio_start|>", "<|text_end|>"), ratio=(6, 12)),
    ends=("<|im_end|>",),
)

# In the order of their tokens. Cantonese came with large-v3.
_LANGUAGES = """
en zh de es ru ko fr ja pt tr pl ca nl ar sv it id hi fi vi he uk el ms cs ro da hu ta no th ur hr bg lt la mi ml cy sk
te fa lv bn sr az sl kn et mk br eu is hy ne mn bs kk sq sw gl mr pa si km sn yo so af oc ka be tg sd gu am yi lo uz fo
ht ps tk nn mt sa lb my bo tl mg as tt haw ln ha ba jw su yue
"""

WHISPER = Format(
    "whisper",
    transcript=TranscriptMarkup(
        tuple(_LANGUAGES.split()),
        times=1501,
        ignored=("startoftranscript", "startoflm", "startofprev", "nospeech", "nocaptions"),
    ),
    ends=("<|endoftext|>",),
)
