"""What is kept between requests.

    store.py   by the server, in a database: responses
    seal.py    by clients, under seal: reasoning, and the state of a parser in a stream

What is kept for one client is of no use to another.
"""
