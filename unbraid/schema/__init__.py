"""JSON Schema, read once for the whole library: checks, references, the normal form, and kinds of value."""
