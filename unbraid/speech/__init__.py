"""Speech to text: recordings decoded, cut into pieces that a model can take, and made into what it reads."""
