"""The base of fine-tuned models: the encoder with one head, new or from a checkpoint."""

import typing
from collections.abc import Sequence
from typing import Any, Self, Unpack

import keras
from keras import ops

from bert_tf.config import ModelConfig
from bert_tf.config.fine_tuning_defaults import MOST_LENGTH
from bert_tf.config.model import NORMALIZED
from bert_tf.network.dropout import Dropout
from bert_tf.network.encoder import BertEncoder
from bert_tf.network.heads import HeadTransform, label_head
from bert_tf.network.pooled_layers import add_layers, apply_layers
from bert_tf.network.pooling import l2_normalize, pool_tokens, pooling_of
from bert_tf.system.type_names import Batch, Layer, LayerOptions, Tensor
from bert_tf.tasks.base.examples.labels import check_distinct
from bert_tf.tasks.base.models.label_order import label_order, with_labels
from bert_tf.tasks.base.models.preprocessor import BertPreprocessor
from bert_tf.tasks.base.models.text_fit import TextFitMixin
from bert_tf.tasks.base.models.with_preprocessor import Preprocessing, WithPreprocessor
from bert_tf.text.packing import INPUTS

if typing.TYPE_CHECKING:
    from bert_tf.checkpoints.checkpoint import Checkpoint


class FineTunedOptions(LayerOptions, total=False):
    """Arguments of `FineTunedModel` that its subclasses pass on."""

    recompute: bool
    unpad: bool | None
    preprocessor: BertPreprocessor | None


def head_dropout(model: "FineTunedModel") -> Dropout:
    """Makes the dropout before a fine-tuned model's head."""
    config = model.config
    salt = 1 + 3 * config.num_hidden_layers  # The encoder's dropouts use the salts below this one.
    return Dropout(config.hidden_dropout_prob, salt, dtype=model.dtype_policy)


class FineTunedModel(TextFitMixin, WithPreprocessor, keras.Model):
    """Base of fine-tuned models: the encoder, dropout and one head.

    Args:
      config: shape of the network.
      num_labels: number of classes of the head.
      head: name of the head's weights in checkpoints, after cls/.
      use_pooler: whether the encoder has a pooler.
      recompute: see `BertEncoder`.
      unpad: see `BertEncoder`; None: true with a preprocessor, unless XLA compiles the model.
      preprocessor: makes the inputs from raw texts; None for a model that only takes ids.
      kwargs: the other arguments of a Keras model.
    """

    head_name = ""
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
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(**kwargs)
        if num_labels < 1:
            raise ValueError(
                f"num_labels is {num_labels}, and there is no {head} head to take it from: give "
                f"labels=[...] for a new head with these names, or num_labels."
            )
        self.config = config
        self.num_labels = num_labels
        self.autocast = False  # Keras would round ids that come as floats.
        self._texts = Preprocessing(None)
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
        self.preprocessor = preprocessor
        if unpad is None:
            self.bert.leave_out_padding(preprocessor is not None and not self.jit_compile)

    def make_head(self, num_labels: int, head: str) -> Layer:
        """Makes and builds the head, under the name scope of heads."""
        return label_head(self, num_labels, head)

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
        """Returns the head's score of each of C texts per example, float32 [B, C].

        Args:
          inputs: the encoder's inputs, int32 [B, C, T].
          training, seed: see `BertEncoder`.
        """
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
        return {
            **super().get_config(),
            "num_labels": self.num_labels,
            "use_pooler": self.bert.use_pooler,
        }

    @classmethod
    def from_checkpoint(
        cls,
        checkpoint: "Checkpoint",
        allow_missing: Sequence[str] = (),
        new_head: bool = False,
        **arguments: Any,
    ) -> Self:
        """Makes the model from a checkpoint that was read.

        Args:
          checkpoint: as read, and adapted.
          allow_missing: see `from_pretrained`.
          new_head: whether to start with a new head even if the checkpoint has one.
          arguments: arguments of the constructor.

        Raises:
          ValueError: see `from_pretrained`.
        """
        from bert_tf.checkpoints.checkpoint import HEADS, without_task_heads

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


class LabelledModel(FineTunedModel):
    """A fine-tuned model with class names.

    Args:
      config: shape of the network.
      num_labels: C; 0: as many as there are names.
      labels: the names, in the order of the head's rows; None for classes without names.
      head, use_pooler: see `FineTunedModel`.
      options: the other arguments of `FineTunedModel`.
    """

    def __init__(
        self,
        config: ModelConfig,
        num_labels: int,
        labels: Sequence[Any] | None,
        head: str,
        use_pooler: bool,
        **options: Unpack[FineTunedOptions],
    ) -> None:
        names = None if labels is None else check_labels(labels)
        if names and num_labels not in (0, len(names)):
            raise ValueError(
                f"num_labels is {num_labels}, but there are {len(names)} labels: leave it out."
            )
        super().__init__(config, len(names) if names else num_labels, head, use_pooler, **options)
        self._names = names

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

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "labels": self._names and list(self._names)}

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
        """
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
        return super().from_checkpoint(checkpoint, allow_missing, new_head, **arguments)

    @classmethod
    def arguments_for(cls, checkpoint: "Checkpoint") -> dict[str, Any]:
        has_head = cls.head_name in checkpoint.heads
        return {"num_labels": checkpoint.num_labels if has_head else 0}


def check_labels(labels: Sequence[Any]) -> tuple[str, ...]:
    """Returns names of classes as strings.

    Raises:
      ValueError: if they are not a list, or one is empty or occurs twice.
    """
    if isinstance(labels, str) or not isinstance(labels, Sequence):
        raise ValueError(f"labels is {labels!r:.80}, expected a list of names: ['bad', 'good'].")
    names = tuple(map(str, labels))
    if not names or "" in names:
        raise ValueError(f"labels is {list(labels)!r:.80}, expected a name for each class.")
    if twice := [name for name in names if names.count(name) > 1]:
        raise ValueError(f"labels has {twice[0]!r} {names.count(twice[0])} times, expected once.")
    return names


def in_order_of(checkpoint: "Checkpoint", labels: tuple[str, ...]) -> "Checkpoint":
    """Returns the checkpoint with the rows of its head in the order of the labels.

    Raises:
      ValueError: if the head has other labels.
    """
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
