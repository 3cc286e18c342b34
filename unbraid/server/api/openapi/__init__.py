"""`GET /openapi.json`: the API described, from the same types that requests are checked with.

`description` has the routes, `replies` the shapes of what they answer.
"""
