"""OpenAI's realtime dialect, over a WebSocket: live transcription, and conversations by voice; and vLLM's beside it.

`routes` accepts a connection and chooses the session. `session` reads the client's events; `options` is what
`session.update` sets. `input_audio` makes utterances and their words of the sound that comes, `conversation` keeps the
items, `reply` writes one response, and `vllm` is vLLM's dialect of live transcription. `event_writer` writes all
events.
"""
