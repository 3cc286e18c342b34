"""Recordings to text, and text to speech.

The packages of speech are imported with the first request that a model can take: a server that only chats needs none.

    transcriptions.py         `POST /v1/audio/transcriptions` and `/v1/audio/translations`
    transcription_request.py  the form of such a request, read and checked
    transcription_reply.py    a transcript in its response format, or a stream
    speech.py                 `POST /v1/audio/speech` and `GET /v1/audio/voices`
"""
