"""The soak: many streams through the server while its replicas are killed and restarted, every byte checked.

    truth.py    what each conversation is answered, which follows from its number
    replica.py  an engine that writes just that, as a process that can be killed
    server.py   the server in front of the replicas, as a process that tells its sockets, tasks, files and memory
    client.py   a client that checks what it gets, and hostile ones
    run.py      `make soak`: all of them together

`test_soak.py` runs a small slice of it.
"""
