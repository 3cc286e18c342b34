"""The API: one module for each dialect or route, with the request that it reads and the reply that it writes.

Dialects: `chat`, `completions`, `transcriptions`. Further routes: `parse`, `tokenize`, `models`, `health`, `openapi`.
What they share: `bodies` reads requests, `fields` has the types of fields, `replies` what replies have in common, and
`sse` writes streams.
"""
