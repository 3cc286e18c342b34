"""Drop-ins for engines that have parsers of their own: theirs to call, ours to parse."""
