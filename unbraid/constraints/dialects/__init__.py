"""The grammar dialects that engines read: each module prints a `Language` in one of them, as a `Printed` value."""
