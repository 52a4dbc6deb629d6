"""Parts of `export.onnx`."""
