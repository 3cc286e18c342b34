"""Loading, from settings to a service: `engine` makes the engine, `default_format` finds the format."""
