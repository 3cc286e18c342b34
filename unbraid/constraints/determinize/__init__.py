"""A language rewritten so that the next character decides between its alternatives, for llama.cpp. Start with `states`.

    states.py  what may come at each point: sets of stacks of items
    items.py   the nodes of a language, numbered

For `"ab" | "ac"`, the states are: `a`, and then `b` or `c`.
"""
