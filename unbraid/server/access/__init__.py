"""Who is let in, and for how long: connections, hosts and origins, TLS, and rates.

A request passes four places, from the socket inwards. Each refuses with a sentence, in the error object of the client's
dialect where a request is known.

    door        a connection is accepted: counted (`connections`), given TLS (`tls`)
    protocol    HTTP is read: late or large headers, clients that do not read, are cut off
    gate        a request has come: `Host` and `Origin` are looked at
    rates       its client is known: requests and tokens a minute

Bodies are timed where they are read, and their types are looked at there (`bodies`). Large ones are read at a pace
(`pacing`).
"""
