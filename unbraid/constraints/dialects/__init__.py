"""The grammar dialects that engines read. Each module prints the same language in one of them."""
