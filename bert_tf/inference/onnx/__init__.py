"""ONNX: a model's graph as a file that other runtimes compute."""
