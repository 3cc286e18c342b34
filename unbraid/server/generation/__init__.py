"""A request in no dialect: planned, generated, told as updates.

A dialect makes a `ChatTask`, it becomes a `Plan`, and each choice of the plan runs and gives `Update`s.

    task.py          `ChatTask`: what a client asks of a chat model
    plan.py          `Plan`: the prompt, the sampling, the constraint, the parser
    enforcing.py     what a request asks of the output, and what the engine enforces of it
    begun_calls.py   the parser of a turn that goes on inside a call
    continuation.py  prompts that go on from ids that the client kept
    choice.py        `Choice`: runs the engine and the parser, and gives `Update`s
    thinking.py      no more reasoning than a request allows
    updates.py       `Update` and `Usage`: what every dialect writes its reply from
    blocks.py        updates as the parts of a reply, for dialects whose replies are lists of parts
"""
