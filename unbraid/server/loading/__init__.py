"""From settings to a running service."""
