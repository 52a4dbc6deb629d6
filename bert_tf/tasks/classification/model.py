"""Classifiers of texts or pairs: a class, several labels or a number (BERT section 4.1)."""

import pathlib
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from absl import logging
from keras import ops

from bert_tf.config import ModelConfig
from bert_tf.config.fine_tuning_config import (
    BALANCED,
    FEW_SHOT_RATE,
    LONG_TEXTS,
    PAIRS_PER_EXAMPLE,
    PROBLEM_TYPES,
    SAME_LABEL_PAIRS,
    LabelLossConfig,
)
from bert_tf.network.losses import LabelLoss, WeightedSum, weigh
from bert_tf.network.soft_losses import SOFT_LOSSES
from bert_tf.system.type_names import Batch, ClassWeight, Column, Labels, Tensor, TextColumn, Texts
from bert_tf.tasks.base.examples.columns import (
    numbers_of,
    read_label_ids,
    read_label_sets,
    read_numbers,
)
from bert_tf.tasks.base.examples.labels import (
    BOOLEANS,
    NUMBERS,
    WHOLE,
    kind_of_spelling,
    spelling_key,
)
from bert_tf.tasks.base.examples.rows import TokenizedDataset
from bert_tf.tasks.base.models.fine_tuned import FineTunedModel
from bert_tf.tasks.base.models.label_checks import checked_ids, one_hot_ids
from bert_tf.tasks.base.models.raw_batches import KerasBatch
from bert_tf.tasks.classification.answers import (
    BATCH_SIZE,
    ClassifierAnswers,
    mean_of_rows,
    text_examples,
)
from bert_tf.tasks.classification.decisions import (
    Decisions,
    arguments_of,
    calibrated,
    with_best_thresholds,
)
from bert_tf.tasks.classification.features import LABEL_NAMES, TextExamples, make_examples
from bert_tf.tasks.classification.glue import reads_pairs
from bert_tf.tasks.classification.task import balanced_pos_weight
from bert_tf.text.packing import INPUTS

if typing.TYPE_CHECKING:
    from bert_tf.checkpoints.checkpoint import Checkpoint
    from bert_tf.tasks.embedding.model import BertEmbedder


@keras.saving.register_keras_serializable(package="bert_tf")
class BertClassifier(ClassifierAnswers, FineTunedModel):
    """The encoder with a classification head on its `classifier_pooling`.

        model = bert_tf.BertClassifier.from_pretrained(
            "hf://google-bert/bert-base-uncased", labels=["bad", "good"]
        )
        model.fit(texts, labels, validation_data=(dev_texts, dev_labels), epochs=3)
        model.classify(["A fine film."])

    With a preprocessor, inputs are raw texts: a list, an array or a column; pairs are a tuple of
    two of these, or a list of pairs; or inputs are a `tf.data` dataset of batches of texts (or
    pairs) and labels. Labels are names or their indices; with `problem_type="multi_label"`, lists
    of these or an array of 0 and 1; with `num_labels=1`, numbers. Dicts of ids are also accepted.

    Works with Keras' training loop: `compile`, `fit`, `evaluate`, `predict`, `save`. `fit` compiles
    a model that has not been compiled; see `compile_for`.

    Args:
      config: shape of the network.
      num_labels: number of classes C; 1 to predict a number. Not needed with labels.
      labels: names of the classes; None if they have no names.
      problem_type: `single_label`, `regression` or `multi_label`; "": regression if num_labels is 1
        and there are no names, otherwise single_label.
      long_texts: the part of a text longer than the preprocessor's length that is kept: `head`,
        `tail`, or all of it in `windows`, whose scores are averaged. `evaluate` and validation data
        average the loss and the `weighted_metrics` of a text's windows instead; other metrics of
        `compile` count every window.
      pair: whether the model reads pairs of texts; `fit` sets it by its training data.
      activation: for a cross-encoder, the function from its logit to its score: `sigmoid` or
        `identity`; "" for other models.
      temperature: divides the scores before they become probabilities; see `calibrate`.
      thresholds: by label, the probabilities above which a text has a label; with two classes, that
        of one class. The default is 0.5. See `choose_thresholds`.
      recompute, unpad: see `BertEncoder`.
      preprocessor: see `FineTunedModel`.

    Call arguments:
      inputs: dict with the encoder's inputs; other keys are ignored.
      training: see `BertEncoder`.
      dropout_seed: see `BertEncoder`.

    Returns:
      float32 [B, C], unnormalised.
    """

    head_name = "classifier"
    takes_labels = True

    def __init__(
        self,
        config: ModelConfig,
        num_labels: int = 0,
        labels: Sequence[Any] | None = None,
        problem_type: str = "",
        long_texts: str = "head",
        pair: bool = False,
        activation: str = "",
        temperature: float = 1.0,
        thresholds: Mapping[str, float] | None = None,
        **kwargs: Any,
    ) -> None:
        kwargs = {"name": "bert_classifier", **kwargs}
        kwargs["use_pooler"] = config.classifier_pooling == "pooler"
        super().__init__(config, num_labels, "classifier", labels=labels, **kwargs)
        # One label without a name is a number; one with a name is a class.
        is_number = self.num_labels == 1 and not self.labels
        self.problem_type = problem_type or ("regression" if is_number else "single_label")
        if self.problem_type == "regression" and self.num_labels != 1:
            raise ValueError(
                f"problem_type='regression' needs num_labels=1, received {self.num_labels}."
            )
        if self.problem_type not in PROBLEM_TYPES:
            raise ValueError(
                f"problem_type is {problem_type!r}, expected one of {', '.join(PROBLEM_TYPES)}."
            )
        if long_texts not in LONG_TEXTS:
            raise ValueError(
                f"long_texts is {long_texts!r}, expected one of {', '.join(LONG_TEXTS)}."
            )
        self.long_texts = long_texts
        self.pair = pair
        self.activation = activation
        self.decisions = Decisions.of(self.problem_type, self.known_labels, temperature, thresholds)
        self._soft_losses: Callable[..., Any] | None = None

    @classmethod
    def from_few_shot(
        cls,
        embedder: "str | pathlib.Path | BertEmbedder",
        texts: Sequence[str],
        labels: Labels,
        *,
        problem_type: str = "single_label",
        names: Sequence[str] | None = None,
        unlabelled_texts: TextColumn | None = None,
        sampling: str = SAME_LABEL_PAIRS,
        pairs_per_example: int = PAIRS_PER_EXAMPLE,
        epochs: int = 1,
        batch_size: int = 16,
        learning_rate: float = FEW_SHOT_RATE,
        seed: int = 0,
        verbose: int | str = "auto",
    ) -> "BertClassifier":
        """Makes a classifier from 8 to 64 examples of each label, as SetFit does.

            model = bert_tf.BertClassifier.from_few_shot("all-MiniLM-L6-v2", texts, labels)
            model.classify(["Where is my card?"])

        The embedder learns which texts have a label in common, with the squared error of the cosine
        of every two texts of a batch. The head is a logistic regression on the texts' vectors. The
        result is a classifier like any other.

        Args:
          embedder: folder or name of an embedding model, or a `BertEmbedder`, which stays as it is;
            its pooling must be mean or cls.
          texts: N texts.
          labels: N labels, names or numbers; with `problem_type="multi_label"`, lists of them.
          problem_type: `single_label` or `multi_label`.
          names: names of the labels in the order of the head; None: those in `labels`, sorted.
          unlabelled_texts: more texts, of which the embedder first learns to reconstruct each from
            the vector of some of its words (TSDAE), with the same epochs, batch size and learning
            rate.
          sampling: `in_batch` fills batches with pairs of a common label, and compares every two
            texts of a batch. The others compare only the two texts of each pair, as SetFit does:
            `oversampling` repeats pairs until as many have a common label as have none; `unique`
            uses each pair once.
          pairs_per_example: limits the pairs to this number for each text, half of them with a
            common label, which are those of `in_batch`; 0: no limit.
          epochs, batch_size, learning_rate, verbose: of the training on pairs. A batch has twice
            as many texts as pairs.
          seed: of the pairs. Dropout and the order of batches follow
            `keras.utils.set_random_seed`.

        Raises:
          ValueError: if there is one label, a label has one example, labels differ only in case,
            or the embedder has another pooling.

        Reference: Tunstall et al. 2022, "Efficient Few-Shot Learning Without Prompts".
        """
        from bert_tf.tasks.classification.few_shot import few_shot_model

        return few_shot_model(
            cls,
            embedder,
            texts,
            labels,
            problem_type=problem_type,
            names=names,
            unlabelled_texts=unlabelled_texts,
            sampling=sampling,
            pairs_per_example=pairs_per_example,
            epochs=epochs,
            batch_size=batch_size,
            learning_rate=learning_rate,
            seed=seed,
            verbose=verbose,
        )

    def call(
        self, inputs: dict[str, Any], training: bool = False, dropout_seed: Tensor | None = None
    ) -> Any:
        return self.score_texts(inputs, training, dropout_seed)

    def compute_rows(self, rows: TokenizedDataset, batch_size: int) -> list[np.ndarray]:
        """Returns the logits of each row, float32 [C]."""
        return self.predict_rows(rows, batch_size)

    # Probabilities and decisions ---------------------------------------------------------------

    def calibrate(self, x: Texts, y: Labels, batch_size: int = BATCH_SIZE) -> float:
        """Selects the temperature with the lowest loss on held-out examples.

            model.fit(texts, labels)
            model.calibrate(dev_texts, dev_labels)

        The temperature becomes part of the model: `classify` and `probabilities` use it, and
        `save`, `save_pretrained` and `export` keep it. `predict` returns the unscaled scores.

        Args:
          x, y: texts and labels, as for `fit`.
          batch_size: texts per batch.

        Returns:
          The temperature.

        Raises:
          ValueError: if there are no examples, or the model predicts a number.
        """
        logits, labels = self._scored(x, y, batch_size)
        self.decisions = calibrated(self.decisions, logits, labels, self.problem_type)
        return self.decisions.temperature

    def choose_thresholds(
        self, x: Texts, y: Labels, batch_size: int = BATCH_SIZE
    ) -> dict[str, float]:
        """Selects the thresholds with the highest F1 on held-out examples.

        Call it after `calibrate`. The thresholds become part of the model, as the temperature does.

        Args:
          x, y: texts and labels, as for `fit`.
          batch_size: texts per batch.

        Returns:
          The thresholds by label. With several labels per text, each maximizes the F1 of its label;
          with two classes, they maximize the F1 of the second class.

        Raises:
          ValueError: if there are no examples, or the model has neither several labels per text nor
            two classes.
        """
        logits, labels = self._scored(x, y, batch_size)
        self.decisions = with_best_thresholds(self.decisions, logits, labels, self.problem_type)
        return self.decisions.by_label(self.known_labels)

    def _scored(self, x: Texts, y: Labels, batch_size: int) -> tuple[np.ndarray, np.ndarray]:
        """Returns the logits of texts, float32 [E, C], and their labels in the loss's format."""
        logits = self.compute_logits(x, batch_size)
        if self.problem_type == "regression" or not len(logits):
            # The functions that are called with the result report the error.
            return logits, np.zeros(len(logits))
        return logits, self._read_labels(y, len(logits))

    # Raw input ---------------------------------------------------------------------------------

    def read_examples(
        self, x: Texts, y: Labels | None = None, weights: Column | None = None
    ) -> TextExamples:
        examples = text_examples(x)
        count = len(examples)
        packed = make_examples(
            examples,
            # Packing needs a label for each text: zeros stand in for unknown ones.
            np.zeros(count) if y is None else self._read_labels(y, count),
            self.problem_type,
            self.tokenizer,
            self.max_seq_length,
            self.long_texts,
        )
        if weights is not None:
            # Each window has the weight of its text.
            text_weights = read_numbers(weights, count, "sample_weight")
            packed.rows.labels["example_weights"] = text_weights[packed.owners]
        return packed

    def _read_labels(self, y: Labels, count: int) -> np.ndarray:
        """Returns labels in the loss's format: int32 [N], float32 [N] or float32 [N, C]."""
        if self.problem_type == "regression":
            return read_numbers(y, count)
        read = read_label_ids if self.problem_type == "single_label" else read_label_sets
        return read(y, self.labels_to_read, count)

    def join_rows(self, examples: TextExamples, outputs: list[Any]) -> list[np.ndarray]:
        """Returns the logits of each text, float32 [C]: the mean over its windows."""
        return list(mean_of_rows(outputs, examples.owners, len(examples.examples)))

    def evaluation_rows(self, examples: TextExamples) -> TokenizedDataset:
        """Returns the rows, with weights that make all texts count equally."""
        rows = examples.rows
        # A text with three windows has three rows, each with a third of its weight.
        num_windows = np.bincount(examples.owners)  # [E]
        shares = 1.0 / num_windows[examples.owners]  # [R]
        weights = rows.labels.get("example_weights", 1.0)
        rows.labels["example_weights"] = (weights * shares).astype(np.float32)
        return rows

    def keras_batch(self, batch: dict[str, Any]) -> KerasBatch:
        return (
            {name: batch[name] for name in INPUTS},
            batch[LABEL_NAMES[self.problem_type]],
            batch["example_weights"],
        )

    def task_loss(
        self,
        x: Batch,
        y: Tensor,
        outputs: Tensor,
        weights: Tensor | None,
        soft_losses: Any = None,
        label_loss: LabelLoss | None = None,
    ) -> WeightedSum:
        if weights is not None:
            weights = ops.reshape(ops.cast(weights, "float32"), (-1,))  # [B]
        if self.problem_type == "regression":
            y = ops.reshape(ops.cast(y, "float32"), (-1,))
        elif self.problem_type == "single_label":
            if self._is_one_hot(y.shape):
                y = one_hot_ids(y)
            elif len(y.shape) > 1 and y.shape[-1] != 1:
                raise ValueError(
                    f"The labels have shape {tuple(y.shape)}, expected [B]: one index per text. "
                    "Several labels per text need problem_type='multi_label'."
                )
            y = checked_ids(ops.reshape(y, (-1,)), weights, self.num_labels)
        losses = (label_loss or LabelLoss()).losses(self.problem_type, outputs, y)  # [B]
        if soft_losses:
            losses = soft_losses(x, outputs, losses)
        return weigh(losses, ops.ones_like(losses) if weights is None else weights)

    def learn_from(
        self,
        teacher: "BertClassifier | None",
        temperature: float = 2.0,
        weight: float = 1.0,
        learn_labels: bool = True,
    ) -> None:
        """Makes `fit` also learn from another classifier's scores of the same texts.

            student.learn_from(teacher)
            student.fit(texts, labels)

        The teacher is neither trained nor saved with the student. Its scores are computed in every
        epoch; `run_classifier --teacher` computes them once.

        Args:
          teacher: a classifier with the same vocabulary and labels; None removes the teacher.
          temperature: divides the scores of both models; no effect on numbers.
          weight: factor of the teacher's loss; that of the labels is 1. See `soft_class_losses`.
          learn_labels: whether the labels are also learned; `fit` needs them in any case.

        Raises:
          ValueError: if vocabulary or labels of the two models differ.
        """
        self._soft_losses = None
        # Keras keeps the traced graph of a step, which contains the previous loss.
        self.train_function = None
        if teacher is None:
            return
        config = self.config
        is_same_vocab = (
            teacher.config.vocab_size == config.vocab_size
            and teacher.config.do_lower_case == config.do_lower_case
        )
        # Models that only take ids have no vocabulary to compare.
        if teacher.preprocessor and self.preprocessor:
            is_same_vocab &= teacher.preprocessor.vocab == self.preprocessor.vocab
        if not is_same_vocab:
            raise ValueError("The teacher has another vocabulary; it would read other texts.")
        is_same = (teacher.problem_type, teacher.labels) == (self.problem_type, self.labels)
        if not is_same or teacher.num_labels != self.num_labels:
            raise ValueError(
                f"The teacher has the labels {list(teacher.known_labels)[:10]} of kind "
                f"{teacher.problem_type}, the student {list(self.known_labels)[:10]} of kind "
                f"{self.problem_type}; they must be the same."
            )
        losses = SOFT_LOSSES[self.problem_type]

        # A closure, because Keras makes a model in an attribute a part of this model.
        def soft_losses(x: Batch, outputs: Tensor, label_losses: Tensor) -> Any:
            if self.jit_compile:
                teacher.bert.leave_out_padding(False)  # XLA needs fixed shapes.
            teacher_logits = ops.stop_gradient(teacher(x))  # [B, C]
            teacher_losses = weight * losses(outputs, teacher_logits, temperature)  # [B]
            return teacher_losses + label_losses if learn_labels else teacher_losses

        self._soft_losses = soft_losses

    def own_loss(
        self, x: Batch, y: Tensor, outputs: Tensor, weights: Tensor | None, training: bool
    ) -> Any:
        """See `TextModel`; `evaluate` reports the plain loss, without teacher."""
        if not training:
            return super().own_loss(x, y, outputs, weights, training)
        if not self.compiler.has_own_loss:
            if self._soft_losses is None:
                return None
            raise ValueError("learn_from needs the model's own loss; give none to compile.")
        loss = self.task_loss(x, y, outputs, weights, self._soft_losses, self.label_loss)
        # Keras collects further losses of the layers, such as regularizers, in `losses`.
        return sum(self.losses, loss.mean())

    def choose_label_loss(
        self, config: LabelLossConfig, y: Any, class_weight: ClassWeight | None
    ) -> ClassWeight | None:
        """See `TextModel`; with several labels per text, class weights become `pos_weight`."""
        config.check_kind(self.problem_type)
        if self.problem_type != "multi_label" or class_weight is None:
            # Weights of single labels become weights of the examples; see `weigh_classes`.
            self.compiler.set_label_loss(config)
            return class_weight
        rows = None if y is None else read_label_sets(y, self.labels_to_read, len(y))
        if isinstance(class_weight, str) and class_weight == BALANCED and rows is not None:
            weights = balanced_pos_weight(rows)
        elif isinstance(class_weight, Mapping):
            weights = self._weights_of_classes(class_weight)
        else:
            raise ValueError(
                f"class_weight is {class_weight!r:.60}; expected a dict of weights by label, or "
                f"{BALANCED!r} with lists of texts and labels."
            )
        self.compiler.set_label_loss(config, weights.tolist())
        return None

    def _weights_of_classes(self, class_weight: Mapping[Any, float]) -> np.ndarray:
        """Returns the weight of each class, float32 [C], from weights by name or index."""
        weights = np.ones(self.num_labels, np.float32)
        names = list(class_weight)
        indices = read_label_ids(names, self.labels_to_read, len(names), "class_weight")
        weights[indices] = list(class_weight.values())
        return weights

    def compute_loss(
        self,
        x: Batch | None = None,
        y: Tensor | None = None,
        y_pred: Tensor | None = None,
        sample_weight: Tensor | None = None,
        training: bool = True,
    ) -> Any:
        """See `Pretrained`; a loss of `compile` that expects one-hot labels gets them."""
        return super().compute_loss(x, self._compiled_labels(y), y_pred, sample_weight, training)

    def compute_metrics(
        self, x: Batch, y: Tensor, y_pred: Tensor, sample_weight: Tensor | None = None
    ) -> Any:
        """Computes Keras' metrics of labels in the format that the loss of `compile` expects."""
        return super().compute_metrics(x, self._compiled_labels(y), y_pred, sample_weight)

    def _compiled_labels(self, y: Tensor | None) -> Tensor | None:
        """Converts class indices, [B] or [B, 1], to one-hot rows if the loss expects them."""
        is_row = y is not None and len(y.shape) == 2 and y.shape[-1] == self.num_labels
        takes_rows = self.compiler.takes_one_hot
        if not takes_rows or self.problem_type != "single_label" or y is None or is_row:
            return y
        return ops.one_hot(ops.reshape(ops.cast(y, "int32"), (-1,)), self.num_labels)

    @property
    def num_text_classes(self) -> int:  # type: ignore[override]
        return self.num_labels

    @property
    def default_metrics(self) -> Any:
        if self.problem_type == "regression":
            return [keras.metrics.MeanAbsoluteError(name="mean_absolute_error")]
        if self.problem_type == "multi_label":
            # A logit above 0 is a probability above one half.
            return [keras.metrics.BinaryAccuracy(threshold=0.0, name="accuracy")]
        return super().default_metrics

    def weigh_classes(
        self, y: Any, class_weight: ClassWeight | None, sample_weight: Column | None
    ) -> Column | None:
        """Returns the weight of each example [N], from class weights by name or index."""
        if class_weight is None:
            return sample_weight
        is_balanced = isinstance(class_weight, str) and class_weight == BALANCED
        is_known = is_balanced or isinstance(class_weight, Mapping)
        if self.problem_type != "single_label" or not is_known:
            raise ValueError(
                f"class_weight is {class_weight!r:.60}; expected {BALANCED!r} or a dict of weights "
                f"by class, for a model that predicts classes; this one has "
                f"problem_type={self.problem_type!r}."
            )
        ids = read_label_ids(y, self.labels_to_read, len(y))
        weights = np.ones(self.num_labels, np.float32)  # [C]
        if isinstance(class_weight, str):
            # As in scikit-learn: all classes that occur have the same sum of weights.
            classes, counts = np.unique(ids, return_counts=True)
            weights[classes] = len(ids) / (len(classes) * counts)
        else:
            weights = self._weights_of_classes(class_weight)
        if sample_weight is None:
            return weights[ids]
        return weights[ids] * read_numbers(sample_weight, len(ids), "sample_weight")

    def label_ids(self, y: Any) -> Any:
        """Returns the indices of one-hot labels [N, C]; other labels are returned unchanged."""
        shape = np.shape(y)
        if self.problem_type != "single_label" or not self._is_one_hot(shape):
            return y
        return read_label_ids(np.asarray(y), ("",) * self.num_labels, shape[0])

    def _is_one_hot(self, shape: Sequence[int]) -> bool:
        """Returns whether labels of a shape are one-hot rows [N, C]."""
        return len(shape) == 2 and shape[-1] == self.num_labels > 1

    def prepare_head(self, examples: TextExamples) -> None:
        """Sets the initial bias of a regression head, and whether the model reads pairs."""
        self.pair = any(example.text_b for example in examples.examples)
        bias = self.head.output_bias
        # The mean of the numbers, which short runs would not reach from 0.
        if self.problem_type == "regression" and not np.any(bias.numpy()):
            bias.assign([float(examples.labels.mean())])
        if self.decisions.temperature != 1.0:
            logging.warning(
                "The temperature %g was chosen for the weights before this training; call "
                "calibrate again.",
                self.decisions.temperature,
            )

    # Datasets of texts -------------------------------------------------------------------------

    def with_inputs(self, data: tf.data.Dataset) -> tf.data.Dataset:
        """Converts a dataset of batches of texts to ids; datasets of ids are returned unchanged.

        Raises:
          ValueError: if the elements are not batches, or the labels do not fit the model.
        """
        spec = data.element_spec
        x_spec, y_spec, _ = keras.utils.unpack_x_y_sample_weight(spec)
        if isinstance(x_spec, Mapping):
            self.raw_input.is_raw(x_spec)  # Raises an error if it lacks ids.
        columns = x_spec if isinstance(x_spec, tuple) else (x_spec,)
        if not all(getattr(column, "dtype", None) == tf.string for column in columns):
            return data
        if len(columns) > 2 or any(column.shape.rank != 1 for column in columns):
            raise ValueError(
                f"Received a dataset with elements {spec}; expected batches: texts and labels of "
                "shape [B], pairs as ((first texts, second texts), labels). data.batch(32) makes "
                "them."
            )
        has_names = getattr(y_spec, "dtype", None) == tf.string
        if has_names and (self.problem_type != "single_label" or not self.labels):
            raise ValueError(
                "The labels of the dataset are names; expected numbers, or a model made with "
                "labels=[...]."
            )
        y_shape = getattr(y_spec, "shape", tf.TensorShape(None))
        is_one_hot = (
            self.problem_type == "single_label"
            and y_shape.rank is not None
            and self._is_one_hot(y_shape)
        )
        # As in lists of labels: if all names are numbers, a number is a name and not an index.
        numbers = numbers_of(self.labels or ("",)) if self.problem_type == "single_label" else None
        preprocessor = self.needed_preprocessor
        self.pair = self.pair or isinstance(x_spec, tuple)
        if self.long_texts != "head":
            raise ValueError(
                f"Received a dataset of texts, but long_texts={self.long_texts}: give lists."
            )

        @tf.autograph.experimental.do_not_convert
        def pack_batch(*element: Any) -> Any:
            # `map` passes a tuple as several arguments, and a single column as one.
            x, y, weights = keras.utils.unpack_x_y_sample_weight(
                element if isinstance(spec, tuple) else element[0]
            )
            inputs = preprocessor(*x) if isinstance(x, tuple) else preprocessor(x)
            if is_one_hot:
                y = one_hot_ids(y)
            elif has_names:
                y = self._indices_of_names(y)
            elif numbers and y is not None:
                y = self._indices_of(tf.cast(y, tf.float64), numbers)
            return keras.utils.pack_x_y_sample_weight(inputs, y, weights)

        return data.map(pack_batch, num_parallel_calls=tf.data.AUTOTUNE).prefetch(2)

    def _indices_of_names(self, values: tf.Tensor) -> tf.Tensor:
        """Returns the indices of label names in the graph, in any of their spellings."""
        names = self.labels or ()
        kind = kind_of_spelling(names)
        key = spelling_key(kind)
        keys = list(map(key, names))
        if len(set(keys)) < len(keys):
            # An older model, which has both True and true: names must match exactly.
            return self._indices_of(values, names)
        values = tf.strings.strip(values)
        if kind == NUMBERS:
            values = tf.strings.regex_replace(values, WHOLE, r"\1")
        elif kind == BOOLEANS:
            values = tf.strings.lower(values)
        return self._indices_of(values, keys)

    def _indices_of(self, values: tf.Tensor, known: Sequence[Any]) -> tf.Tensor:
        """Returns the indices of label names [B] or [B, 1], int32 [B], inside the graph.

        Args:
          values: the names, or their numbers.
          known: all C names, or their numbers.
        """
        is_equal = tf.reshape(values, [-1, 1]) == tf.constant(known, values.dtype)  # [B, C]
        are_known = tf.reduce_all(tf.reduce_any(is_equal, axis=1))
        message = f"A label is not one of {', '.join(self.labels or ())}:"
        with tf.control_dependencies([tf.debugging.Assert(are_known, [message, values])]):
            return tf.argmax(is_equal, axis=1, output_type=tf.int32)

    def get_config(self) -> dict[str, Any]:
        arguments = {
            "problem_type": self.problem_type,
            "long_texts": self.long_texts,
            "pair": self.pair,
            "activation": self.activation,
            "temperature": self.decisions.temperature,
            "thresholds": self.decisions.by_label(self.known_labels) or None,
        }
        return {**super().get_config(), **arguments}

    @classmethod
    def arguments_for(cls, checkpoint: "Checkpoint") -> dict[str, Any]:
        arguments = super().arguments_for(checkpoint)
        if "classifier" in checkpoint.heads:
            arguments["long_texts"] = checkpoint.settings.get("long_texts") or "head"
            arguments["problem_type"] = checkpoint.problem_type
            arguments["pair"] = reads_pairs(checkpoint.settings)
            arguments["activation"] = checkpoint.settings.get("activation", "")
            arguments |= arguments_of(checkpoint.settings)
        return arguments
