"""Where requests are worked out before an engine is asked: plans, prompts, parsing.

What a client sends decides how much work that is. So light work runs in threads, with an allowance of CPU time
(`unbraid.metering`), and what is large or goes over the allowance runs in processes of its own (`workers`), which have
limits, give way to everything else, and are killed when nobody waits for them. `Planner` decides which (`planner`). No
client can take all the processes while others wait (`fair_queue`).
"""
