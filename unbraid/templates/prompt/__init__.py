"""From a request to the ids of its prompt."""
