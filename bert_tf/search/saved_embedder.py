"""Calls an exported embedding SavedModel from Python."""

from collections.abc import Sequence

import numpy as np


class SavedEmbedder:
    """Embeds texts with a SavedModel of `python -m export.saved_model --kind=embeddings`.

    Args:
      path: the folder of a version, local or on any file system that TensorFlow reads.

    Raises:
      ValueError: if it is another kind of model.
      OSError: if it is not a SavedModel.
    """

    def __init__(self, path: str) -> None:
        import tensorflow as tf
        import tensorflow_text  # noqa: F401  Registers the tokenizer's operation.

        self._model = tf.saved_model.load(path)  # Keeps the variables alive.
        self._serve = self._model.signatures.get("serving_default")
        inputs: list[str] = []
        outputs: list[str] = []
        if self._serve:
            inputs = list(self._serve.structured_input_signature[1])
            outputs = list(self._serve.structured_outputs)
        if inputs != ["text"] or outputs != ["embedding"]:
            raise ValueError(
                f"{path} has the inputs {inputs} and the outputs {outputs}; expected `text` and "
                "`embedding`: export it with python -m export.saved_model --kind=embeddings."
            )

    def __call__(self, texts: Sequence[str]) -> np.ndarray:
        """Returns float32 [B, D] for B texts, a list or an array of objects."""
        import tensorflow as tf

        return self._serve(text=tf.constant(list(texts), tf.string))["embedding"].numpy()
