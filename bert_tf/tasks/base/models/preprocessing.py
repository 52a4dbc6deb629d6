"""The preprocessor that a model has, and that is read and saved together with the weights."""

import typing

import keras
from absl import logging

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

    Raises:
      ValueError: if the preprocessor's sequences do not fit the network.
    """

    def __init__(self, preprocessor: BertPreprocessor | None, config: "ModelConfig") -> None:
        if preprocessor is not None:
            check_fits(preprocessor, config)
        self.preprocessor = preprocessor
        self._tokenizer: Tokenizer | None = None

    @property
    def needed(self) -> BertPreprocessor:
        """The preprocessor; ValueError without one."""
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

    @property
    def max_seq_length(self) -> int:
        """Maximum length of a sequence made from raw input."""
        if self.preprocessor:
            return self.preprocessor.max_seq_length
        return 0

    def to_config(self) -> Fields | None:
        """Returns the preprocessor as saved models have it; None without one."""
        if self.preprocessor is None:
            return None
        return keras.saving.serialize_keras_object(self.preprocessor)


def choose_preprocessor(
    checkpoint: "Checkpoint",
    preprocessor: BertPreprocessor | str | None,
    max_seq_length: int,
    default_length: int = 128,
) -> BertPreprocessor | None:
    """Returns the preprocessor of a new model; see `FineTunedModel.from_pretrained`."""
    if preprocessor == FROM_CHECKPOINT:
        return make_preprocessor(checkpoint, max_seq_length, default_length)
    if max_seq_length:
        raise ValueError(
            f"max_seq_length={max_seq_length} sets the length of a new preprocessor, but you "
            f"passed one; set its length, or leave preprocessor out."
        )
    return typing.cast(BertPreprocessor | None, preprocessor)


def with_saved_preprocessor(config: Fields) -> Fields:
    """Returns the configuration of a saved model with its preprocessor as an object."""
    saved = config["preprocessor"]
    if not isinstance(saved, dict):
        return config
    return {**config, "preprocessor": keras.saving.deserialize_keras_object(saved)}


def make_preprocessor(
    checkpoint: "Checkpoint", max_seq_length: int = 0, default_length: int = 128
) -> BertPreprocessor | None:
    """Makes the preprocessor of a checkpoint; returns None, and logs it, without a vocabulary.

    `default_length` is used if neither `max_seq_length` nor a run's record gives one.
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
