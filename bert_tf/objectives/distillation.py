"""Distillation: a student learns what a teacher says, beside the labels or in their place.

scores          T^2 KL(softmax(teacher / T) || softmax(student / T))   Hinton et al. 2015
hidden states   1 - cosine of both models' last ones                   DistilBERT
relations       of queries, keys and values of one layer               MiniLMv2
embeddings      squared distance or 1 - cosine                         sentence-transformers
"""

from typing import Any

import tensorflow as tf
from keras import ops

from bert_tf.config import ModelConfig, ObjectiveConfig
from bert_tf.modeling.losses import WeightedSum, weigh
from bert_tf.objectives.attention_relations import attention_vectors, relation_losses
from bert_tf.objectives.masked_lm import MaskedLM
from bert_tf.objectives.objective import Batch, Objective

RELATION_HEAD_SIZE = 16  # Of the paper's 48 heads of BERT-Base.
LEAST_SQUARE = 1e-12


def soft_class_losses(logits: Any, teacher_logits: Any, temperature: float = 1.0) -> Any:
    """Returns T^2 KL(teacher || student) of the softened classes, in nats: float32 [...].

    The square keeps the size of the gradients, whatever the temperature.

    Args:
      logits, teacher_logits: float [..., C], unnormalised.
      temperature: T, what both are divided by.

    Reference: Hinton et al. 2015, "Distilling the Knowledge in a Neural Network", section 2.
    """
    log_student, log_teacher = (
        ops.log_softmax(ops.cast(x, "float32") / temperature) for x in (logits, teacher_logits)
    )
    terms = ops.exp(log_teacher) * (log_teacher - log_student)
    return temperature**2 * ops.sum(terms, axis=-1)


def soft_several_losses(logits: Any, teacher_logits: Any, temperature: float = 1.0) -> Any:
    """As `soft_class_losses`, of C decisions each for itself: the mean over them, float32 [B]."""
    student, teacher = (ops.cast(x, "float32") / temperature for x in (logits, teacher_logits))
    share = ops.sigmoid(teacher)
    terms = share * (teacher - student) + ops.softplus(student) - ops.softplus(teacher)
    return temperature**2 * ops.mean(terms, axis=-1)


def soft_number_losses(logits: Any, teacher_logits: Any, temperature: float = 1.0) -> Any:
    """Returns the squared difference of numbers [B, 1], float32 [B]; a temperature means nothing.

    A number has no distribution to be softened.
    """
    student, teacher = (ops.cast(x, "float32")[:, 0] for x in (logits, teacher_logits))
    return ops.square(student - teacher)


SOFT_LOSSES = {
    "class": soft_class_losses,
    "number": soft_number_losses,
    "several": soft_several_losses,
}


def cosine_distances(vectors: Any, teacher_vectors: Any) -> Any:
    """Returns 1 - cosine, float32 [...], of float [..., D]; 1 for a vector of zeros."""
    student, teacher = (_unit(ops.cast(x, "float32")) for x in (vectors, teacher_vectors))
    return 1.0 - ops.sum(student * teacher, axis=-1)


def _unit(vectors: Any) -> Any:
    # Inside the root: padding may be zeros, where the root itself has no gradient.
    return vectors * ops.rsqrt(ops.sum(ops.square(vectors), axis=-1, keepdims=True) + LEAST_SQUARE)


def squared_distances(vectors: Any, teacher_vectors: Any) -> Any:
    """Returns |student - teacher|^2, float32 [...], of float [..., D].

    It is D times the MSELoss of sentence-transformers, and so of the size of other losses.
    """
    return ops.sum(ops.square(vectors - teacher_vectors), axis=-1)


EMBEDDING_DISTANCES = {"squared": squared_distances, "cosine": cosine_distances}


def count_heads(config: ObjectiveConfig, teacher: ModelConfig) -> int:
    """Returns the number of relation heads."""
    return config.relation_heads or max(1, teacher.hidden_size // RELATION_HEAD_SIZE)


def kept_bytes(
    config: ObjectiveConfig, teacher: ModelConfig, length: int, predictions: int
) -> float:
    """Estimates what an example keeps for the backward pass beside the student's own.

    Of scores [P, V] and of each of three relations [A, T, T] those of both models.
    """
    scores = 2 * predictions * teacher.vocab_size if config.teacher_weight else 0
    relations = 6 * count_heads(config, teacher) * length**2 if config.relation_weight else 0
    return 4.0 * (scores + relations)


def check_shapes(config: ObjectiveConfig, teacher: ModelConfig, student: ModelConfig) -> None:
    """Raises ValueError if the two shapes do not go with what is to be learned."""
    if config.hidden_weight and teacher.hidden_size != student.hidden_size:
        raise ValueError(
            f"--hidden_weight: the teacher is {teacher.hidden_size} wide, the student "
            f"{student.hidden_size}; give --relation_weight, which needs no same width."
        )
    heads = count_heads(config, teacher)
    widths = {"teacher": teacher.hidden_size, "student": student.hidden_size}
    for name, width in widths.items() if config.relation_weight else ():
        if width % heads:
            raise ValueError(
                f"The {name} is {width} wide, no multiple of {heads} relation heads; give "
                f"--relation_heads, a number that divides {widths['teacher']} and "
                f"{widths['student']}."
            )
    if config.teacher_layer > teacher.num_hidden_layers:
        raise ValueError(
            f"--teacher_layer={config.teacher_layer}, but the teacher has "
            f"{teacher.num_hidden_layers} layers."
        )


class Distillation(Objective):
    """What masked language modelling learns from a teacher, which reads the same masked pieces.

    The sums are reported as they enter the loss, with their factors. The teacher is no part of the
    model: neither its optimizer nor its checkpoints know of it.

    Args:
      teacher: `BertPretrainer`, or a `BertEncoder` if its scores are not learned.
      student: shape of the model that learns.
      config: the factors.

    Raises:
      ValueError: if the two shapes do not go together.
    """

    def __init__(self, teacher: Any, student: ModelConfig, config: ObjectiveConfig) -> None:
        self.teacher, self.config = teacher, config
        self.encoder = getattr(teacher, "bert", teacher)
        shape = self.encoder.config
        check_shapes(config, shape, student)
        self.panels = {}
        if config.teacher_weight:
            self.panels["soft_labels_loss"] = "Teacher's pieces: loss, weighted"
        if config.hidden_weight:
            self.panels["hidden_states_loss"] = "Teacher's hidden states: 1 - cosine, weighted"
        if config.relation_weight:
            self.panels["relations_loss"] = "Teacher's attention relations: loss, weighted"
        self.heads = count_heads(config, shape)
        self.layer = (config.teacher_layer or shape.num_hidden_layers) - 1

    def outputs(self, model: Any, encoded: dict[str, Any], inputs: Batch) -> dict[str, Any]:
        taught = self.encoder(inputs, training=False)
        found: dict[str, Any] = {}
        if self.config.teacher_weight:
            scores = MaskedLM().outputs(self.teacher, taught, inputs)["masked_lm_logits"]
            found["teacher_masked_lm_logits"] = ops.stop_gradient(scores)
        if self.config.hidden_weight:
            theirs = ops.stop_gradient(taught["sequence_output"])
            found["hidden_distances"] = cosine_distances(encoded["sequence_output"], theirs)
        if self.config.relation_weight:
            own = attention_vectors(model.bert, encoded, model.config.num_hidden_layers - 1)
            theirs = attention_vectors(self.encoder, taught, self.layer)
            found["relation_losses"] = sum(
                relation_losses(one, ops.stop_gradient(other), inputs["input_mask"], self.heads)
                for one, other in zip(own, theirs, strict=True)
            )
        return found

    def loss_weights(self, batch: Batch) -> dict[str, tf.Tensor]:
        pieces = tf.reduce_sum(tf.cast(batch["input_mask"], tf.float32))
        known = {"soft_labels_loss": tf.reduce_sum(batch["masked_lm_weights"])}
        return {name: known.get(name, pieces) for name in self.panels}

    def sums(self, batch: Batch, outputs: dict[str, Any]) -> dict[str, WeightedSum]:
        config, is_real = self.config, ops.cast(batch["input_mask"], "float32")
        sums = {}
        if config.teacher_weight:
            losses = soft_class_losses(
                outputs["masked_lm_logits"],
                outputs["teacher_masked_lm_logits"],
                config.distillation_temperature,
            )
            weights = ops.cast(batch["masked_lm_weights"], "float32")
            sums["soft_labels_loss"] = weigh(config.teacher_weight * losses, weights)
        if config.hidden_weight:
            distances = config.hidden_weight * outputs["hidden_distances"]
            sums["hidden_states_loss"] = weigh(distances, is_real)
        if config.relation_weight:
            losses = config.relation_weight * outputs["relation_losses"]
            sums["relations_loss"] = weigh(losses, is_real)
        return sums
