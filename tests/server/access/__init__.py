"""Who is let in, and for how long."""
