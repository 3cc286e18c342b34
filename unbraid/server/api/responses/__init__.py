"""OpenAI's Responses dialect (Open Responses, 2026-04-24).

`request` has the fields of a request and what they mean, `items` and `tools` the conversation and the tools in it,
`writer` the reply, whole and streamed, and `routes` the handlers, with the responses that are stored.
"""
