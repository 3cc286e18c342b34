"""The OpenAI-compatible server.

    from unbraid.server.app import create_app
    from unbraid.server.model import Model, Served
    from unbraid.server.service import Service

    model = Model(format=find("qwen3"), builder=builder, encoder=builder.encoder)
    app = create_app(Service(models=(Served(model=model, engine=engine),)))

`unbraid serve` makes the service out of its settings, and runs the application. A request goes in one direction:

    a dialect    the body of a request, in the words of a client, to a `ChatTask`
    generation   to a `Plan`: the prompt, the sampling, the constraint, the parser
    generation   to `Update`s: what the engine writes, taken apart, for each choice
    a dialect    to a reply; `api.sse` writes those that are streamed

The dialects:

    api/                 OpenAI's chat and completions, small routes, and what all dialects share
    responses/           OpenAI's Responses
    messages/            Anthropic's Messages
    realtime/            conversations over a WebSocket
    audio/               transcriptions and speech
    tokens/              vLLM's contract for gateways

What is behind them:

    app.py               routes and keys
    http.py              requests' bodies, replies and their headers
    errors.py            every error as an HTTP status and an error object
    limits.py            how many messages and tools a request may have
    generation/          a request in no dialect: planned, run, told as updates
    service.py           the service: the models, and what goes with all of them
    model.py             each model of the service, and its engine
    settings.py          every setting: flag, variable, key, help, check
    settings_sources.py  where settings come from: flags, environment, file
    loading/             from settings to a service
    access/              who is let in, and how much of it
    planning/            where requests are worked out
    storage/             what is kept between requests
    observing/           logs, request ids, traces, metrics
    running/             the port, worker processes, an orderly end
    playground/          the page at `/`
    audio_input.py       recordings in messages
    vocoder.py           audio codes to sound: plug-ins, and Step-Audio 2's own vocoder
"""
