"""How arguments are written: one module for each notation."""
