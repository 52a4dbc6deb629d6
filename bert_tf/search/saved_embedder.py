"""A SavedModel that makes vectors of texts, as a function of Python."""

from collections.abc import Sequence

import numpy as np


class SavedEmbedder:
    """Embeds texts by what `python -m export.saved_model --kind=embeddings` wrote.

    Args:
      path: the folder of a version, local or anything that TensorFlow reads.

    Raises:
      ValueError: if it is a model of another kind.
      OSError: if it is no SavedModel.
    """

    def __init__(self, path: str) -> None:
        import tensorflow as tf
        import tensorflow_text  # noqa: F401  The tokenizer's operation.

        self._model = tf.saved_model.load(path)  # The variables live as long as it does.
        self._serve = self._model.signatures.get("serving_default")
        takes = list(self._serve.structured_input_signature[1]) if self._serve else []
        gives = list(self._serve.structured_outputs) if self._serve else []
        if (takes, gives) != (["text"], ["embedding"]):
            raise ValueError(
                f"{path} takes {takes} and gives {gives}; expected a model from `text` to "
                "`embedding`: python -m export.saved_model --kind=embeddings."
            )

    def __call__(self, texts: Sequence[str]) -> np.ndarray:
        """Returns float32 [B, D] of B texts, a list or an array of objects."""
        import tensorflow as tf

        return self._serve(text=tf.constant(list(texts), tf.string))["embedding"].numpy()
