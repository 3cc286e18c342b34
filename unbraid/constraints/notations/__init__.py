"""What a model may write as arguments, one module for each notation. The names are those of `core/notations`."""
