"""From messages to a prompt: messages are checked, adapted to the template, rendered and encoded."""
