"""Live speech: sound that is still being spoken, to words that stay as they are.

    utterances.py     where somebody begins and ends to speak
    transcription.py  the words of one utterance while it is spoken
    agreement.py      which of them are certain
    lines.py          a stream of sound to lines of text, an utterance each

`unbraid.server.realtime` feeds the sound that clients send to the first two.
"""
