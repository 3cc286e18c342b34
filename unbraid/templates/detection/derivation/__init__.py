"""Derivation: a format for a template that no registered format reads, made from what the template renders."""
