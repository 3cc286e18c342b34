"""The dialects that clients speak: one module for each route, with what it reads and writes."""
