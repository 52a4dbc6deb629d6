"""Mixin for models with a preprocessor, which is read and saved together with the weights."""

import pathlib
import typing
from collections.abc import Sequence
from typing import Any, Self

import keras
from absl import logging

from bert_tf.network.pretrained import FromPretrained
from bert_tf.system.type_names import Fields
from bert_tf.tasks.base.models.preprocessor import BertPreprocessor
from bert_tf.text.tokenization import Tokenizer, make_tokenizer

if typing.TYPE_CHECKING:
    from bert_tf.checkpoints.checkpoint import Checkpoint
    from bert_tf.config import ModelConfig

FROM_CHECKPOINT = "from_checkpoint"


class Preprocessing:
    """Holds a model's preprocessor and tokenizer, hidden from Keras, which would track the layer.

    Args:
      preprocessor: None for a model that only takes ids.
    """

    def __init__(self, preprocessor: BertPreprocessor | None) -> None:
        self.preprocessor = preprocessor
        self._tokenizer: Tokenizer | None = None

    @property
    def needed(self) -> BertPreprocessor:
        """The preprocessor.

        Raises:
          ValueError: if there is none.
        """
        if self.preprocessor is None:
            raise ValueError(
                "The model has no preprocessor, so it takes only ids: a dict of input_word_ids, "
                "input_mask and input_type_ids. To give it texts, set model.preprocessor = "
                "bert_tf.BertPreprocessor(...), or read it from a checkpoint with a vocabulary."
            )
        return self.preprocessor

    @property
    def tokenizer(self) -> Tokenizer:
        """The preprocessor's tokenizer in plain Python, which caches words."""
        if self._tokenizer is None:
            self._tokenizer = make_tokenizer(self.needed.vocab, self.needed.do_lower_case)
        return self._tokenizer


class WithPreprocessor(FromPretrained):
    """Mixin that gives a Keras model a `preprocessor`; inherited before `keras.Model`."""

    default_length = 128
    _texts: Preprocessing

    def __setattr__(self, name: str, value: Any) -> None:
        # Keras would track the preprocessor as a layer, and then compile the model without XLA.
        if name == "preprocessor":
            WithPreprocessor.preprocessor.__set__(self, value)  # type: ignore[attr-defined]
        else:
            super().__setattr__(name, value)

    @property
    def preprocessor(self) -> BertPreprocessor | None:
        """Makes the model's inputs from texts; None for a model that only takes ids."""
        return self._texts.preprocessor

    @preprocessor.setter
    def preprocessor(self, preprocessor: BertPreprocessor | None) -> None:
        if preprocessor is not None:
            check_fits(preprocessor, self.config)
        # A new object, because the tokenizer of the old one caches words of another vocabulary.
        self._texts = Preprocessing(preprocessor)

    @property
    def needed_preprocessor(self) -> BertPreprocessor:
        """The preprocessor; raises ValueError without one."""
        return self._texts.needed

    @property
    def tokenizer(self) -> Tokenizer:
        """See `Preprocessing.tokenizer`."""
        return self._texts.tokenizer

    @property
    def max_seq_length(self) -> int:
        """Maximum length of a row made from raw input."""
        return self._texts.preprocessor.max_seq_length if self._texts.preprocessor else 0

    def get_config(self) -> Fields:
        preprocessor = self.preprocessor
        saved = None
        if preprocessor is not None:
            saved = keras.saving.serialize_keras_object(preprocessor)
        return {**super().get_config(), "preprocessor": saved}

    @classmethod
    def from_config(cls, config: Fields) -> Self:
        saved = config.get("preprocessor")
        if isinstance(saved, dict):
            config = {**config, "preprocessor": keras.saving.deserialize_keras_object(saved)}
        return super().from_config(config)

    @classmethod
    def from_pretrained(
        cls,
        path: str | pathlib.Path,
        allow_missing: Sequence[str] = (),
        allow_unexpected: Sequence[str] = (),
        *,
        preprocessor: BertPreprocessor | str | None = FROM_CHECKPOINT,
        max_seq_length: int = 0,
        **arguments: Any,
    ) -> Self:
        """Makes the model, with its preprocessor, from a checkpoint in any format.

        Args:
          path: folder, file or checkpoint prefix; see `bert_tf.checkpoints.formats`.
          allow_missing: prefixes of weight names that the checkpoint may lack, for example `cls/`;
            these weights keep their random initial values.
          allow_unexpected: prefixes of names in the files that may be left out. Heads that this
            class does not have are always left out and logged.
          preprocessor: a `BertPreprocessor`; None for a model that only takes ids. By default one
            is made from the checkpoint's vocabulary, if it has one.
          max_seq_length: maximum length of the new preprocessor's rows; 0: as in the run's
            training, else `default_length` or all positions.
          arguments: arguments of the constructor, except the configuration, which comes with
            the weights.

        Raises:
          ValueError: if the checkpoint cannot be read, or with the names of weights that are
            missing, unknown or of the wrong shape; also if the preprocessor does not fit the model.
        """
        checkpoint = cls.read(path, allow_missing, allow_unexpected)
        if preprocessor == FROM_CHECKPOINT:
            preprocessor = make_preprocessor(checkpoint, max_seq_length, cls.default_length)
        elif max_seq_length:
            raise ValueError(
                f"max_seq_length={max_seq_length} sets the length of a new preprocessor, but you "
                f"passed one; set its length, or leave preprocessor out."
            )
        arguments["preprocessor"] = preprocessor
        return cls.from_checkpoint(checkpoint, allow_missing, **arguments)


def make_preprocessor(
    checkpoint: "Checkpoint", max_seq_length: int = 0, default_length: int = 128
) -> BertPreprocessor | None:
    """Makes the preprocessor of a checkpoint; returns None, and logs it, without a vocabulary.

    Args:
      checkpoint: the checkpoint.
      max_seq_length: see `WithPreprocessor.from_pretrained`.
      default_length: length if neither `max_seq_length` nor a run's record gives one.

    Raises:
      ValueError: if the model has fewer positions.
    """
    if checkpoint.vocab is None:
        logging.warning(
            "%s has no vocabulary: the model only takes ids until it gets a preprocessor.",
            checkpoint.source,
        )
        return None
    positions = checkpoint.config.longest_row
    length = max_seq_length or int(checkpoint.settings.get("max_seq_length", 0))
    made = BertPreprocessor(
        checkpoint.vocab,
        checkpoint.config.do_lower_case,
        max_seq_length=length or min(default_length, positions),
    )
    check_fits(made, checkpoint.config)
    return made


def check_fits(preprocessor: object, config: "ModelConfig") -> None:
    """Raises ValueError unless a preprocessor's rows fit a model of the configuration."""
    if not isinstance(preprocessor, BertPreprocessor):
        raise ValueError(
            f"preprocessor is {preprocessor!r:.80}, expected a BertPreprocessor, or None for a "
            "model that takes ids."
        )
    num_tokens = len(preprocessor.vocab)
    length = preprocessor.max_seq_length
    if num_tokens != config.vocab_size:
        raise ValueError(
            f"The preprocessor's vocabulary has {num_tokens} tokens, but the model's vocab_size is "
            f"{config.vocab_size}; they do not belong together."
        )
    if length > config.longest_row:
        raise ValueError(
            f"max_seq_length is {length}, but the model has {config.longest_row} positions; "
            f"expected at most {config.longest_row}."
        )
