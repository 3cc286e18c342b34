"""The token contract: render and derender."""
