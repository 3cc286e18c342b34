"""Who is let in, and for how long: connections, hosts and origins, TLS, and rates.

A request passes five places, from the socket inwards. Each refuses with a sentence, in the error object of the client's
dialect as soon as a request is known.

    door.py         a connection is accepted: counted, given TLS
    protocol.py     HTTP is read: late or large headers, clients that do not read, are cut off
    gate.py         a request has come: `Host` and `Origin` are looked at
    keys.py         it shows a key, or is refused
    rates.py        its client is known: requests and tokens a minute, counted for several processes together

    websocket.py    a connection after a request for a WebSocket
    connections.py  how many connections there are, in all and for each client
    addresses.py    which client an address stands for, and what a proxy says about it
    timing.py       how long the server waits for a client, and how fast it reads large bodies

Bodies are timed where they are read, and their types are looked at there (`server.http`).
"""
