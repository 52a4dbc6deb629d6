"""Classifiers of texts or pairs: a class, several labels or a number (BERT section 4.1)."""

import pathlib
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import keras
import numpy as np
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
from bert_tf.tasks.base.models.fine_tuned import FineTunedModel
from bert_tf.tasks.base.models.raw_batches import KerasBatch
from bert_tf.tasks.classification import answers
from bert_tf.tasks.classification.classes import ClassLabels
from bert_tf.tasks.classification.classifier_input import ClassifierInput
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
class BertClassifier(answers.ClassifierAnswers, FineTunedModel):
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
      training, dropout_seed: see `BertEncoder`.

    Returns:
      float32 [B, C], unnormalised.
    """

    head_name = "classifier"
    takes_labels = True
    raw_input_class = ClassifierInput

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
        self.classes = ClassLabels(self.labels, self.num_labels, self.problem_type)
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

    # Probabilities and decisions ---------------------------------------------------------------

    def calibrate(self, x: Texts, y: Labels, batch_size: int = answers.BATCH_SIZE) -> float:
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
        self, x: Texts, y: Labels, batch_size: int = answers.BATCH_SIZE
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
        return logits, self.classes.read(y, len(logits))

    # Raw input ---------------------------------------------------------------------------------

    def read_examples(
        self, x: Texts, y: Labels | None = None, weights: Column | None = None
    ) -> TextExamples:
        examples = answers.text_examples(x)
        count = len(examples)
        packed = make_examples(
            examples,
            # Packing needs a label for each text: zeros stand in for unknown ones.
            np.zeros(count) if y is None else self.classes.read(y, count),
            self.problem_type,
            self.tokenizer,
            self.max_seq_length,
            self.long_texts,
        )
        # Each window has the weight of its text.
        self.set_weights_of_rows(packed, weights, count, packed.owners)
        return packed

    def join_rows(self, examples: TextExamples, outputs: list[Any]) -> list[np.ndarray]:
        """Returns the logits of each text, float32 [C]: the mean over its windows."""
        return list(answers.mean_of_rows(outputs, examples.owners, len(examples.examples)))

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
        y = self.classes.of_batch(y, weights)
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
            if learn_labels:
                return teacher_losses + label_losses
            return teacher_losses

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
        rows = None if y is None else self.classes.read(y, len(y))
        if isinstance(class_weight, str) and class_weight == BALANCED and rows is not None:
            weights = balanced_pos_weight(rows)
        elif isinstance(class_weight, Mapping):
            weights = self.classes.weights_of(class_weight)
        else:
            raise ValueError(
                f"class_weight is {class_weight!r:.60}; expected a dict of weights by label, or "
                f"{BALANCED!r} with lists of texts and labels."
            )
        self.compiler.set_label_loss(config, weights.tolist())
        return None

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
        if self.compiler.takes_one_hot:
            return self.classes.as_one_hot(y)
        return y

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
