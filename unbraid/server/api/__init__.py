"""OpenAI's chat and completions, the small routes, and what all dialects share.

Every route is a handler that reads a request and writes a reply; `server.app` lists them. The larger dialects are
packages beside this one: `messages`, `responses`, `realtime`, `audio`, `tokens`.

    chat.py         `POST /v1/chat/completions`: the fields, and what they mean
    chat_reply.py   its replies, whole and in chunks
    completions.py  `POST /v1/completions`
    models.py       `GET /v1/models`
    parse.py        `POST /v1/parse`
    tokenize.py     `POST /v1/tokenize`
    health.py       `/health`, `/ready`, `/version`, `/metrics`
    openapi.py      `GET /openapi.json`, from the types of bodies and replies
    bodies.py       bodies of requests, read and checked
    fields.py       types of fields, and the fields that dialects share
    replies.py      what replies have in common
    sse.py          streams of events
"""
