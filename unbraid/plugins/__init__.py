"""Drop-ins: unbraid's parsers and constraints inside of other servers."""
