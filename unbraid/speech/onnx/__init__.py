"""ONNX for speech models: files that are read and rewritten (`graph`), and sessions of ONNX Runtime (`runtime`)."""
