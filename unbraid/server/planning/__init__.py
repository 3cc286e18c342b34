"""Where requests are worked out before an engine is asked: plans, prompts, parsing.

    planner.py     decides where: at once, in a thread, or in a worker process
    pool.py        the worker processes of a server: started, given jobs, killed and replaced
    worker.py      what runs in a worker process
    pickling.py    jobs and results as bytes

A client decides how much work its request is. So light work runs in threads, with an allowance of CPU time
(`unbraid.metering`). Requests that are large or exceed the allowance run in processes of their own, which have limits,
give way to everything else, and are killed when nobody waits for them.
"""
