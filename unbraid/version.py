"""The version of unbraid."""

__version__ = "0.1.0"
