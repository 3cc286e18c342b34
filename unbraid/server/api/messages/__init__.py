"""Anthropic's dialect: `POST /v1/messages` and `POST /v1/messages/count_tokens`.

`routes` has the handlers, `request` the fields and what they mean, `history` the conversation as chat messages, `tools`
the tools, `system` the system prompt, `reply` the reply, whole or streamed, and `errors` its errors.
"""
