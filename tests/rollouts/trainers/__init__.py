"""Trainers with unbraid inside, each in an environment of its own: `make test-trainers`.

__main__.py   makes the environments, runs the others in them, and says what passed
prime.py      `renderers`, verifiers, and so prime-rl
sampling.py   an endpoint that samples, for those that render by themselves
trl_grpo.py   TRL
verl_loop.py  verl
"""
