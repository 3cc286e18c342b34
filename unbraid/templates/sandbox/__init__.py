"""Jinja with limits, for templates that come from anywhere."""
