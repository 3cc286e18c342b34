"""OpenAI's realtime dialect, over a WebSocket: live transcription, and conversations by voice; and vLLM's beside it.

A connection is one session. What it answers is planned and run as in every dialect (`server.generation`).

    routes.py        accepts a connection, and chooses the session
    session.py       reads the client's events
    options.py       what `session.update` sets
    known.py         names that are not known
    input_audio.py   the sound that comes, as utterances and their words
    conversation.py  the items
    reply.py         one response, told as events
    narrator.py      a text read aloud by the voice that is loaded, while it is written
    event_writer.py  writes all events
    vllm.py          vLLM's dialect of live transcription
"""
