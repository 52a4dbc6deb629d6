"""Answers of exported models of token ids: LiteRT and ONNX files."""
