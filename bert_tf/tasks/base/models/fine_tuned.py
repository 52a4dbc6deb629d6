"""The base of fine-tuned models: the encoder with one head, new or from a checkpoint."""

import pathlib
import typing
from collections.abc import Sequence
from numbers import Real
from typing import Any, Self, Unpack

import keras
import numpy as np
from keras import ops

from bert_tf.config import ModelConfig
from bert_tf.config.fine_tuning_defaults import MOST_LENGTH
from bert_tf.config.model import NORMALIZED
from bert_tf.network.dropout import Dropout
from bert_tf.network.encoder import BertEncoder
from bert_tf.network.heads import HeadTransform, label_head
from bert_tf.network.pooled_layers import add_layers, apply_layers
from bert_tf.network.pooling import l2_normalize, pool_tokens, pooling_of
from bert_tf.system.type_names import Batch, Fields, Layer, LayerOptions, Tensor
from bert_tf.tasks.base.examples.labels import check_distinct
from bert_tf.tasks.base.models import preprocessing
from bert_tf.tasks.base.models.label_order import label_order, with_labels
from bert_tf.tasks.base.models.preprocessor import BertPreprocessor
from bert_tf.tasks.base.models.raw_batches import is_symbolic
from bert_tf.tasks.base.models.text_model import TextModel
from bert_tf.text.packing import INPUTS
from bert_tf.text.tokenization import Tokenizer

if typing.TYPE_CHECKING:
    from bert_tf.checkpoints.checkpoint import Checkpoint


def head_dropout(model: "FineTunedModel") -> Dropout:
    """Makes the dropout before a fine-tuned model's head."""
    config = model.config
    salt = 1 + 3 * config.num_hidden_layers  # The encoder's dropouts use the salts below this one.
    return Dropout(config.hidden_dropout_prob, salt, dtype=model.dtype_policy)


class FineTunedModel(TextModel, keras.Model):
    """Base of fine-tuned models: the encoder, dropout and one head.

    Args:
      config: shape of the network.
      num_labels: number of classes C of the head; 0: as many as there are labels.
      head: name of the head's weights in checkpoints, after cls/.
      use_pooler: whether the encoder has a pooler.
      recompute: see `BertEncoder`.
      unpad: see `BertEncoder`; None: true with a preprocessor, unless XLA compiles the model.
      preprocessor: makes the inputs from raw texts; None for a model that only takes ids.
      labels: names of the classes, in the order of the head's rows; None for classes without names.
      kwargs: the other arguments of a Keras model.
    """

    head_name = ""
    # Whether the classes may have names.
    takes_labels = False
    default_length = MOST_LENGTH

    def __init__(
        self,
        config: ModelConfig,
        num_labels: int,
        head: str,
        use_pooler: bool,
        recompute: bool = False,
        unpad: bool | None = None,
        preprocessor: BertPreprocessor | None = None,
        labels: Sequence[Any] | None = None,
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(**kwargs)
        self._names = None if labels is None else check_labels(labels)
        if self._names and num_labels not in (0, len(self._names)):
            raise ValueError(
                f"num_labels is {num_labels}, but there are {len(self._names)} labels: leave it "
                "out."
            )
        num_labels = len(self._names) if self._names else num_labels
        if num_labels < 1:
            raise ValueError(
                f"num_labels is {num_labels}, and there is no {head} head to take it from: give "
                f"labels=[...] for a new head with these names, or num_labels."
            )
        self.config = config
        self.num_labels = num_labels
        self.autocast = False  # Keras would round ids that come as floats.
        self._texts = preprocessing.Preprocessing(preprocessor, config)
        self.bert = BertEncoder(config, recompute, use_pooler, bool(unpad), dtype=self.dtype_policy)
        self.dropout = head_dropout(self)
        # Checkpoints store the weights of heads under cls/.
        with keras.name_scope("cls"):
            if config.head_transform:
                self.transform = HeadTransform(
                    config, config.hidden_size, name="transform", dtype=self.dtype_policy
                )
                self.transform.build()
            # Other heads do not have the layers of a classifier.
            self._steps = config.classifier_steps if head == "classifier" else ()
            with keras.name_scope(head):
                add_layers(self, self._steps, config.initializer_range)
            self.head = self.make_head(num_labels, head)
        self.built = True
        if unpad is None:
            self.bert.leave_out_padding(preprocessor is not None and not self.jit_compile)

    @property
    def preprocessor(self) -> BertPreprocessor | None:
        """Makes the model's inputs from texts; None for a model that only takes ids."""
        return self._texts.preprocessor

    @preprocessor.setter
    def preprocessor(self, preprocessor: BertPreprocessor | None) -> None:
        # A new object, because the tokenizer of the old one caches words of another vocabulary.
        self._texts = preprocessing.Preprocessing(preprocessor, self.config)

    @property
    def tokenizer(self) -> Tokenizer:
        """See `Preprocessing.tokenizer`."""
        return self._texts.tokenizer

    @property
    def max_seq_length(self) -> int:
        """Maximum length of a sequence made from raw input."""
        return self._texts.max_seq_length

    @property
    def needed_preprocessor(self) -> BertPreprocessor:
        """The preprocessor; raises ValueError without one."""
        return self._texts.needed

    @property
    def labels(self) -> tuple[str, ...] | None:
        """Names of the classes, in the order of the scores; None without names."""
        return self._names

    @property
    def known_labels(self) -> tuple[str, ...]:
        """Names of the classes, or their indices as text."""
        return self._names or tuple(map(str, range(self.num_labels)))

    @property
    def labels_to_read(self) -> tuple[str, ...]:
        """Names as `read_label_ids` takes them, with "" for a class without a name."""
        return self._names or ("",) * self.num_labels

    def make_head(self, num_labels: int, head: str) -> Layer:
        """Makes and builds the head, under the name scope of heads."""
        return label_head(self, num_labels, head)

    def inputs_of(self, x: Any) -> dict[str, Tensor]:
        """Returns the encoder's inputs for raw input; each window of a long text is a row."""
        columns = x if isinstance(x, tuple) else (x,)
        # In a graph and in Keras' functional API the texts have no values yet.
        if all(map(is_symbolic, columns)):
            return self.needed_preprocessor(*columns)
        rows = self.read_examples(x).rows
        # All rows in one batch, padded to the longest.
        batch = rows.batch(np.arange(len(rows)), len(rows), int(rows.lengths.max()))
        return {name: batch[name] for name in INPUTS}

    def score_tokens(self, inputs: Batch, training: bool, seed: Tensor | None) -> Tensor:
        """Returns the head's scores of each token, float32 [B, T, C]."""
        seed = self.bert.draw_dropout_seed(training, seed)
        encoded = self.bert(inputs, training=training, dropout_seed=seed)
        return self._score(encoded["sequence_output"], seed)

    def score_texts(self, inputs: Batch, training: bool, seed: Tensor | None) -> Tensor:
        """Returns the head's scores of each text, float32 [B, C]."""
        seed = self.bert.draw_dropout_seed(training, seed)
        return self._score(self.pool_texts(inputs, training, seed), seed)

    def pool_texts(
        self, inputs: Batch, training: bool = False, seed: Tensor | None = None
    ) -> Tensor:
        """Returns one vector for each text by `classifier_pooling`, [B, D].

        Several poolings are concatenated: [B, n * D].
        """
        pooling = self.config.classifier_pooling
        encoded = self.bert(inputs, training=training, dropout_seed=seed)
        if pooling == "pooler":
            return encoded["pooled_output"]
        sequence = encoded["sequence_output"]  # [B, T, D]
        parts = []
        for name in self.config.classifier_poolings:
            kind = pooling_of(name, self.config.pooled_token)
            parts.append(pool_tokens(sequence, inputs["input_mask"], kind))  # [B, D]
        pooled = parts[0] if len(parts) == 1 else ops.concatenate(parts, axis=-1)
        if pooling.startswith(NORMALIZED):
            pooled = l2_normalize(pooled)
        # Pooling computes in float32; the head takes the encoder's dtype, such as bfloat16.
        return ops.cast(pooled, sequence.dtype)

    def score_choices(self, inputs: Batch, training: bool, seed: Tensor | None) -> Tensor:
        """Returns the head's scores of C texts each, float32 [B, C]; inputs are int32 [B, C, T]."""
        _, num_choices, length = ops.shape(inputs["input_word_ids"])
        rows = {name: ops.reshape(inputs[name], (-1, length)) for name in INPUTS}  # [B * C, T]
        if "packed_positions" in inputs:  # The texts are packed already.
            rows["packed_positions"] = inputs["packed_positions"]
            rows["packed_starts"] = ops.reshape(inputs["packed_starts"], (-1,))
        scores = self.score_texts(rows, training, seed)  # [B * C, 1]
        return ops.reshape(scores, (-1, num_choices))

    def _score(self, encoded: Tensor, seed: Tensor | None) -> Tensor:
        """Returns the head's scores, float32 [..., C], of vectors [..., D]."""
        if self.config.head_transform:
            encoded = self.transform(encoded)
        if self._steps:
            encoded = ops.cast(apply_layers(self, self._steps, encoded), encoded.dtype)
        return self.head(self.dropout(encoded, seed))

    def get_config(self) -> dict[str, Any]:
        config = {
            **super().get_config(),
            "preprocessor": self._texts.to_config(),
            "num_labels": self.num_labels,
            "use_pooler": self.bert.use_pooler,
        }
        if self.takes_labels:
            config["labels"] = self._names and list(self._names)
        return config

    @classmethod
    def from_config(cls, config: Fields) -> Self:
        return super().from_config(preprocessing.with_saved_preprocessor(config))

    @classmethod
    def from_pretrained(
        cls,
        path: str | pathlib.Path,
        allow_missing: Sequence[str] = (),
        allow_unexpected: Sequence[str] = (),
        *,
        preprocessor: BertPreprocessor | str | None = preprocessing.FROM_CHECKPOINT,
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
        arguments["preprocessor"] = preprocessing.choose_preprocessor(
            checkpoint, preprocessor, max_seq_length, cls.default_length
        )
        return cls.from_checkpoint(checkpoint, allow_missing, **arguments)

    @classmethod
    def arguments_for(cls, checkpoint: "Checkpoint") -> dict[str, Any]:
        if not cls.takes_labels:
            return {}
        return {"num_labels": checkpoint.num_labels if cls.head_name in checkpoint.heads else 0}

    @classmethod
    def from_checkpoint(
        cls,
        checkpoint: "Checkpoint",
        allow_missing: Sequence[str] = (),
        new_head: bool = False,
        **arguments: Any,
    ) -> Self:
        """Makes the model from a checkpoint that was read.

        With `labels` or `num_labels`, a checkpoint without a head gets a new one, which is logged.
        If the checkpoint has a head, it must have these labels, or the same number without names:
        the head of another task is refused unless `new_head` is true. The rows of a head whose
        labels have another order are reordered, which is logged.

        Args:
          new_head: whether to start with a new head even if the checkpoint has one.
        """
        from bert_tf.checkpoints.checkpoint import HEADS, without_task_heads

        if cls.takes_labels:
            checkpoint, new_head = cls._with_labels(checkpoint, new_head, arguments)
        if new_head:
            checkpoint = without_task_heads(checkpoint)
            # The weights of every head are under cls/.
            allow_missing = (*allow_missing, "cls/")
        try:
            return super().from_checkpoint(checkpoint, allow_missing, **arguments)
        except ValueError as error:
            # Name the argument of this class that accepts the missing weights.
            remedies = []
            if not new_head and cls.head_name not in checkpoint.heads:
                remedies.append("new_head=True to start with a new head")
            if "pooler" not in checkpoint.heads and HEADS["pooler"] in str(error):
                remedies.append(f'allow_missing=["{HEADS["pooler"]}"] to start with a new pooler')
            if not remedies or "missing" not in str(error):
                raise
            raise ValueError(f"{error} Give {', and '.join(remedies)}.") from None

    @classmethod
    def _with_labels(
        cls, checkpoint: "Checkpoint", new_head: bool, arguments: dict[str, Any]
    ) -> tuple["Checkpoint", bool]:
        """Sets the labels among the arguments; returns checkpoint and whether the head is new."""
        labels = arguments.get("labels")
        has_head = cls.head_name in checkpoint.heads
        if labels is not None:
            arguments["labels"] = names = check_labels(labels)
            if has_head and not new_head:
                checkpoint = in_order_of(checkpoint, names)
            new_head = new_head or not has_head
            if new_head:
                check_distinct(names)
        elif has_head and not new_head and checkpoint.labels:
            # Keep the names of the checkpoint unless another number of labels is requested.
            if arguments.get("num_labels", 0) in (0, len(checkpoint.labels)):
                arguments["labels"] = checkpoint.labels
        # Without a head, a number of labels is a request for a new one.
        elif not has_head and arguments.get("num_labels"):
            new_head = True
        return checkpoint, new_head


def check_labels(labels: Sequence[Any]) -> tuple[str, ...]:
    """Returns names of classes as strings."""
    if isinstance(labels, str) or not isinstance(labels, Sequence):
        raise ValueError(f"labels is {labels!r:.80}, expected a list of names: ['bad', 'good'].")
    names = tuple(map(str, labels))
    # A missing value would become a class named "nan" or "None".
    are_names = all(isinstance(label, str | Real) and label == label for label in labels)
    if not names or "" in names or not are_names:
        raise ValueError(f"labels is {list(labels)!r:.80}, expected a name for each class.")
    if twice := [name for name in names if names.count(name) > 1]:
        raise ValueError(f"labels has {twice[0]!r} {names.count(twice[0])} times, expected once.")
    return names


def in_order_of(checkpoint: "Checkpoint", labels: tuple[str, ...]) -> "Checkpoint":
    """Returns the checkpoint with the rows of its head in the order of the labels."""
    if not checkpoint.labels and checkpoint.num_labels == len(labels):
        return checkpoint
    order = label_order(checkpoint.labels, labels)
    if order is not None:
        return with_labels(checkpoint, labels, order)
    known = f" {list(checkpoint.labels)[:10]}" if checkpoint.labels else ""
    raise ValueError(
        f"{checkpoint.source} has a head of {checkpoint.num_labels} labels{known}, but labels is "
        f"{list(labels)[:10]}. Leave labels out to keep that head, or give new_head=True to start "
        "with a new one."
    )
