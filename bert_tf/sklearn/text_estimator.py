"""The base of the estimators: their tags, their seeds, and how they are pickled."""

import contextlib
import pathlib
import random
import tempfile
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from bert_tf.sklearn.input import TextsOrPairs, read_texts_or_pairs
from bert_tf.system.type_names import Labels, Model, Texts

if TYPE_CHECKING:
    from bert_tf.tasks.classification.model import BertClassifier

# A seed, a generator, or None for an unpredictable seed, as in scikit-learn.
RandomState = int | np.random.RandomState | None

BATCH_SIZE = 32
MODEL = "model_"


class TextEstimator(BaseEstimator):
    """An estimator of texts with a Keras model.

    A pickle holds the model as the bytes of its .keras file, so copies, joblib's files and other
    processes get the weights. As for each pickle, open only files that you trust.

    Attributes:
      model_: the Keras model, after `fit`.
    """

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        # Tells the checks of scikit-learn that X is a column of strings.
        tags.input_tags.string = True
        tags.input_tags.two_d_array = False
        return tags

    def __getstate__(self) -> dict[str, Any]:
        state = dict(super().__getstate__())
        if MODEL in state:
            state[MODEL] = _to_bytes(state[MODEL])
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        if MODEL in state:
            state = {**state, MODEL: _from_bytes(state[MODEL])}
        super().__setstate__(state)

    def _check_checkpoint(self) -> None:
        """Raises ValueError if there is no checkpoint to start from."""
        path = self.init_checkpoint
        if not isinstance(path, str | pathlib.Path) or not str(path):
            raise ValueError(
                f"init_checkpoint is {path!r:.60}; expected a folder, a file, or a name such as "
                '"hf://google-bert/bert-base-uncased".'
            )


class TextPredictor(TextEstimator):
    """Base of the estimators that are trained on texts with labels or numbers."""

    def _trained(
        self,
        texts: TextsOrPairs,
        y: Labels,
        weights: np.ndarray,
        head: dict[str, Any],
        **options: Any,
    ) -> "BertClassifier":
        """Returns a trained model with the head of these arguments of `from_pretrained`."""
        from bert_tf.tasks.classification.model import BertClassifier

        with seeded(self.random_state):
            model = BertClassifier.from_pretrained(
                self.init_checkpoint,
                allow_missing=self.allow_missing,
                max_seq_length=self.max_seq_length or 0,
                long_texts=self.long_texts,
                new_head=True,
                **head,
            )
            model.fit(
                texts,
                y,
                sample_weight=weights,
                epochs=self.epochs,
                batch_size=self.batch_size,
                learning_rate=self.learning_rate,
                verbose=self.verbose,
                **options,
            )
        return model

    def _compute_logits(self, X: Texts) -> np.ndarray:
        """Returns the scores of the head, float32 [N, C]."""
        check_is_fitted(self)
        return self.model_.compute_logits(read_texts_or_pairs(X), self.batch_size or BATCH_SIZE)


@contextlib.contextmanager
def seeded(random_state: RandomState) -> Iterator[None]:
    """Seeds the head, the dropout and the order of the examples.

    The states of Python's and NumPy's generators are restored afterwards.
    """
    import keras  # Imported here, because it loads TensorFlow.

    # Drawn, so that a generator gives another seed to each `fit`.
    seed = int(check_random_state(random_state).randint(2**31 - 1))
    # Keras also seeds the generators of Python and NumPy, which the caller may use.
    python_state = random.getstate()
    numpy_state = np.random.get_state()
    keras.utils.set_random_seed(seed)
    try:
        yield
    finally:
        random.setstate(python_state)
        np.random.set_state(numpy_state)


def _to_bytes(model: Model) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "model.keras")
        model.save(path)
        return path.read_bytes()


def _from_bytes(content: bytes) -> Model:
    import keras

    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "model.keras")
        path.write_bytes(content)
        # In safe mode Keras rejects a file that contains Python code.
        return keras.models.load_model(path, compile=False, safe_mode=True)
