"""A sandbox for chat templates: Jinja's own against reaching out, and a budget against doing too much.

Jinja's `ImmutableSandboxedEnvironment` keeps a template away from Python's internals. It does not keep it from
`{{ 'a' * 10**10 }}` or from a loop without end, and no timer can stop Python in the middle of a long string operation.
So everything that a template does is paid for from a `Budget`, before it is done:

    syntax_tree.py  rewrites the parsed template: blocks, literals, `~`, `in` and `==` call our hooks, loops are traced
    environment.py  the hooks, the functions that templates may call, and Jinja as Hugging Face sets it up
    cost_checks.py  what an operator, a call or a filter would make, computed before it is made
    budget.py       the limits, and what is left of them; the clock

The budget counts steps and characters, so its verdict does not depend on how fast or how busy the machine is; CPU time
is only the last resort. A worker process with resource limits would make the cost checks unnecessary, but not
the hooks for marks. It would add a pool, a protocol and limits that only Linux enforces, so it was not taken; the
measurements are in docs/design.md.
"""
