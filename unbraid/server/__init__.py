"""The OpenAI-compatible server.

    from unbraid.server.app import create_app
    from unbraid.server.model import Model, Served
    from unbraid.server.service import Service

    model = Model(format=find("qwen3"), builder=builder, encoder=builder.encoder)
    app = create_app(Service(models=(Served(model=model, engine=engine),)))

`unbraid serve` makes the service out of its settings, and runs the application. A request goes in one direction:

    api/<dialect>.py    the body of a request, in the words of a client, to a `ChatTask`
    plan.py             to a `Plan`: the prompt, the sampling, the constraint, the parser
    turn.py             to `Update`s: what the engine writes, taken apart, for each choice
    api/<dialect>.py    to a reply; `api/sse.py` writes those that are streamed

    app.py  errors.py  http.py                          routes and keys, errors, connections
    observing/                                          logs, request ids, traces, metrics
    settings.py  loading/  running.py                   settings, what they make, and running it
    service.py  model.py                                what they make: the service, and each of its models
    audio_input.py  vocoder.py                          recordings in messages, speech in replies
"""
