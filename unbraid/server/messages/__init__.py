"""Anthropic's Messages dialect.

A request is read into a `ChatTask` of `server.generation`, and the reply is written from its updates.

    routes.py   the handlers
    request.py  the fields of a request, and what they mean
    history.py  the conversation and its tools
    reply.py    the reply, whole and streamed
    errors.py   errors in Anthropic's shape
"""
