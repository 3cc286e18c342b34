"""The heart of unbraid: grammars, parser, renderer. No I/O, nothing but the standard library."""
