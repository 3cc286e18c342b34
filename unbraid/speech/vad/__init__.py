"""Voice activity: where in a recording somebody speaks, by Silero's model on ONNX Runtime."""
