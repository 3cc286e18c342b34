"""A format derived from what a template writes, where no registered one reads it."""
