"""The machine behind the parser."""
