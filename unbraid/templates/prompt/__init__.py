"""Prompts: the messages of a request to the text and token ids that a model continues.

In the order in which a request passes through them:

    messages.py   messages as clients send them, checked and brought to one form
    bridges.py    conversations rewritten until the template says every word of them
    polyfills.py  what a template does not support, written into messages that it can show
    beginnings.py a turn that broke off inside a call, as the model wrote it
    builder.py    the steps in order, for one model
    prepared.py   a template for one vocabulary, compiled and probed, and what it writes
    encoders.py   marked text to ids
"""
