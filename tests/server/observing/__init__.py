"""Logs, request ids, traces and metrics."""
