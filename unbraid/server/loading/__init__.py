"""From settings to a service that can answer.

    service.py   the service: models with their formats and prompts, transcriber, speaker, store
    engine.py    the engine of one model, and its tokenizer
    reload.py    settings that are read again while the server runs

Ray makes engines elsewhere: it overrides `service.Loader`.
"""
