"""OpenAI's Responses dialect (Open Responses, 2026-04-24).

A request is read into a `ChatTask` of `server.generation`, and the reply is written from its updates.

    routes.py        the handlers, and the responses that are stored
    request.py       the fields of a request, and what they mean
    items.py         the items of a conversation, as messages
    tools.py         the tools: which the model is shown, and by which names
    writer.py        the reply, whole and streamed
    output_items.py  the items of a reply while they grow
"""
