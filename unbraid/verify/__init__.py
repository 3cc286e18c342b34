"""`unbraid verify`: the same questions to any server that is running, and what its replies show.

    exchange.py     what is asked and what came, in no dialect
    dialects.py     both in the words of chat, Responses and Messages
    refusals.py     fields that a server refuses, learned from its errors
    server.py       one server over HTTP: a request out, a reply or a stream in
    checks.py       what must hold for any reply, whoever asked
    probes.py       questions whose right replies are known
    attribution.py  whose fault it is: the model's, the parser's, the template's or the server's
    running.py      the probes against an endpoint, each as often as its answer needs
    report.py       a table, JSON, JUnit and one page of HTML; two reports compared
    recording.py    a proxy that records a server's traffic, and the checks over what it recorded

A probe never asks for certain words. It asks for a call, for a schema, for an end; so it holds at any temperature.
"""
