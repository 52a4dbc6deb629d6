"""A Keras layer from raw strings to the encoder's inputs, tokenizer inside.

  texts [B] (and second texts [B])
    -> tokenizer: token ids, ragged [B, (tokens)]
    -> cut, the longer text first: [CLS] a [SEP] or [CLS] a [SEP] b [SEP]
    -> padded: input_word_ids, input_mask, input_type_ids, int32 [B, T]

The rows are those of `bert_tf.text.packing`. A model from `from_pretrained` already has one and
takes raw texts itself. There are three ways to use it by hand, all with the same result:

    preprocessor = BertPreprocessor.from_pretrained(
        "hf://google-bert/bert-base-uncased", max_seq_length=128
    )
    preprocessor(["A text.", "Another one."])
    texts_and_labels.batch(32).map(lambda text, label: (preprocessor(text), label))
    texts = keras.Input((), dtype="string")
    model = keras.Model(texts, classifier(preprocessor(texts)))

In a dataset the work is done on the CPU in parallel with the training step, so prefer that for
training. XLA does not support strings, so Keras compiles a model with this layer without it. `fit`
and `predict` of such a model need strings as tensors, `tf.constant(["A text."])`, not as lists or
NumPy's `str_`. `model.export` makes a SavedModel that serves raw strings. To load a saved model,
`import bert_tf` first.
"""

import os
import pathlib
from typing import Any, Self, Unpack

import keras
import tensorflow as tf

from bert_tf.system.number_arguments import check_numbers
from bert_tf.system.type_names import Fields, ModelOptions, Tensor, TextColumn
from bert_tf.text.graph_tokenization import make_graph_tokenizer
from bert_tf.text.kinds import vocab_from_config
from bert_tf.text.packing import num_special_tokens
from bert_tf.text.tensor_packing import cut, longest_first_lengths, pack_rows
from bert_tf.text.tokenization import AnyVocab, read_vocab


@keras.saving.register_keras_serializable(package="bert_tf")
class BertPreprocessor(keras.layers.Layer):
    """Tokenizes and packs texts, or pairs of texts, in the graph; it has no weights.

    A model saved with it contains the vocabulary, so no other file is needed to load it.

    Args:
      vocab: the vocabulary, or the path of a vocab.txt or tokenizer.json.
      do_lower_case: lower-case the text and strip accents (uncased models of WordPiece).
      max_seq_length: maximum length of a row, including special tokens. A single text is cut at its
        end; of a pair, the longer text is, as in google-research/bert's `_truncate_seq_pair`.
      pad_to_max_length: whether T is always `max_seq_length`; else the longest row of the batch.

    Call arguments:
      texts: strings [B], UTF-8, as a tensor, an array or a list.
      second_texts: the second texts of pairs, strings [B]; "" for an example of a single text.

    Returns:
      dict of int32 [B, T]: `input_word_ids`, `input_mask` (1 at tokens) and `input_type_ids` (the
      vocabulary's second_type at the second text and its [SEP]).

    Raises:
      ValueError: if it is called with other inputs, or no token of a text fits in a row.
    """

    def __init__(
        self,
        vocab: AnyVocab | str | os.PathLike,
        do_lower_case: bool,
        max_seq_length: int = 128,
        pad_to_max_length: bool = False,
        name: str = "bert_preprocessor",
        **kwargs: Unpack[ModelOptions],
    ) -> None:
        super().__init__(name=name, **kwargs)
        check_numbers(0, or_none=True, max_seq_length=max_seq_length)
        self.vocab = read_vocab(vocab) if isinstance(vocab, str | os.PathLike) else vocab
        self.do_lower_case = do_lower_case
        self.max_seq_length = max_seq_length
        self.pad_to_max_length = pad_to_max_length
        self._check_room(num_special_tokens(False))
        self._tokenizer = make_graph_tokenizer(self.vocab, do_lower_case)
        self.supports_jit = False  # XLA has no strings.
        self.built = True

    @classmethod
    def from_pretrained(
        cls, path: str | pathlib.Path, max_seq_length: int = 128, **arguments: Any
    ) -> Self:
        """Makes the layer with the vocabulary and casing of a checkpoint in any format.

        Args:
          path: see `bert_tf.checkpoints.formats`.
          max_seq_length: maximum length of a row.
          arguments: arguments of the constructor.

        Raises:
          ValueError: if the checkpoint cannot be read, has no vocabulary or fewer positions.
        """
        from bert_tf.checkpoints.formats import read_checkpoint

        checkpoint = read_checkpoint(path)
        if checkpoint.vocab is None:
            raise ValueError(
                f"{path} has no vocabulary: make BertPreprocessor(vocab, do_lower_case) with its "
                "vocab.txt."
            )
        positions = checkpoint.config.longest_row
        if max_seq_length > positions:
            raise ValueError(
                f"max_seq_length is {max_seq_length}, but the model in {path} has {positions} "
                f"positions; expected at most {positions}."
            )
        casing = {"do_lower_case": checkpoint.config.do_lower_case}
        # An argument replaces the casing of the checkpoint.
        return cls(checkpoint.vocab, max_seq_length=max_seq_length, **{**casing, **arguments})

    def __call__(
        self, texts: TextColumn, second_texts: TextColumn | None = None, **kwargs: Any
    ) -> dict[str, Tensor]:
        # Keras' `__call__` does not convert lists of strings.
        first = _as_strings(texts, "texts")
        if second_texts is None:
            return super().__call__(first, **kwargs)
        # A pair has more special tokens than the constructor has checked.
        self._check_room(num_special_tokens(True, self.vocab.num_separators))
        second = _as_strings(second_texts, "second_texts")
        if not tf.TensorShape(first.shape).is_compatible_with(second.shape):
            raise ValueError(
                f"{first.shape[0]} texts and {second.shape[0]} second texts; expected equal "
                f"numbers."
            )
        return super().__call__(first, second, **kwargs)

    def call(self, texts: Tensor, second_texts: Tensor | None = None) -> dict[str, Tensor]:
        # The tokenizer returns [B, (words), (tokens)].
        first = self._tokenizer.tokenize(texts).merge_dims(1, 2)  # [B, (tokens)]
        length = self.max_seq_length if self.pad_to_max_length else None
        if second_texts is None:
            kept = tf.minimum(first.row_lengths(), self.max_seq_length - 2)  # [CLS] and [SEP]
            return pack_rows(self.vocab, cut(first, kept), length=length)
        second = self._tokenizer.tokenize(second_texts).merge_dims(1, 2)  # [B, (tokens)]
        kept, second_kept = longest_first_lengths(
            self.vocab, first.row_lengths(), second.row_lengths(), self.max_seq_length
        )
        return pack_rows(self.vocab, cut(first, kept), cut(second, second_kept), length)

    def _check_room(self, num_special: int) -> None:
        if self.max_seq_length <= num_special:
            raise ValueError(
                f"max_seq_length is {self.max_seq_length}; {num_special} tokens are special, "
                f"so expected at least {num_special + 1}."
            )

    def get_config(self) -> Fields:
        return {
            **super().get_config(),
            "vocab": self.vocab.to_config(),
            "do_lower_case": self.do_lower_case,
            "max_seq_length": self.max_seq_length,
            "pad_to_max_length": self.pad_to_max_length,
        }

    @classmethod
    def from_config(cls, config: Fields) -> Self:
        return cls(**{**config, "vocab": vocab_from_config(config["vocab"])})


def _as_strings(texts: TextColumn, name: str) -> Tensor:
    """Returns the texts as a tensor of strings [B]; a `KerasTensor` is returned as it is."""
    strings: Tensor = texts
    if not isinstance(texts, keras.KerasTensor):
        try:
            strings = tf.convert_to_tensor(texts)
        except (ValueError, TypeError) as error:
            raise ValueError(
                f"{name}: received {texts!r:.100}, expected strings [B] ({error})."
            ) from None
    shape = tf.TensorShape(strings.shape)
    dtype = tf.as_dtype(strings.dtype)
    # The rank of a symbolic tensor may be unknown.
    if dtype != tf.string or shape.rank not in (1, None):
        raise ValueError(
            f"{name}: received {dtype.name} of shape {shape}, "
            "expected strings of shape [B]: a batch of texts, not a single one; for pairs, pass "
            "the second texts as second_texts."
        )
    return strings
