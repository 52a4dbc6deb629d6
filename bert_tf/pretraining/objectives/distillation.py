"""Distillation: a student learns from the outputs of a teacher, with the labels or without them.

scores          as in `bert_tf.network.soft_losses`                    Hinton et al. 2015
hidden states   1 - cosine of the last hidden states                   DistilBERT
relations       KL among queries, keys and values of one layer         MiniLMv2

Relations are similarities among the queries, keys and values of a text's tokens:

  queries [B, T, D] -> A relation heads [B, A, T, D / A] -> softmax(q q' / sqrt(D / A)) [B, A, T, T]

and the same for keys and for values. Width and number of heads of the two models may differ: both
are split into the same number of relation heads.

Reference: Wang et al. 2021, "MiniLMv2: Multi-Head Self-Attention Relation Distillation".
"""

import tensorflow as tf
from keras import ops

from bert_tf.config import ModelConfig, ObjectiveConfig
from bert_tf.network.layout import attention_bias
from bert_tf.network.losses import WeightedSum, weigh
from bert_tf.network.soft_losses import cosine_distances, soft_class_losses
from bert_tf.pretraining.objectives.masked_lm import MaskedLM
from bert_tf.pretraining.objectives.objective import Objective
from bert_tf.system.type_names import Batch, Model, Outputs, Tensor

RELATION_HEAD_SIZE = 16  # The paper splits the 768 dimensions of BERT-Base into 48 heads.


def count_heads(config: ObjectiveConfig, teacher: ModelConfig) -> int:
    """Returns the number of relation heads."""
    return config.relation_heads or max(1, teacher.hidden_size // RELATION_HEAD_SIZE)


def kept_bytes(
    config: ObjectiveConfig, teacher: ModelConfig, length: int, predictions: int
) -> float:
    """Estimates the bytes that distillation adds to an example's activations.

    They are the logits [P, V] and three relations [A, T, T] of both models.
    """
    scores = 2 * predictions * teacher.vocab_size if config.teacher_weight else 0
    relations = 6 * count_heads(config, teacher) * length**2 if config.relation_weight else 0
    return 4.0 * (scores + relations)


def check_shapes(config: ObjectiveConfig, teacher: ModelConfig, student: ModelConfig) -> None:
    """Raises ValueError if the chosen losses cannot compare models of these shapes."""
    if config.hidden_weight and teacher.hidden_size != student.hidden_size:
        raise ValueError(
            f"hidden_weight: the teacher is {teacher.hidden_size} wide, the student "
            f"{student.hidden_size}; give relation_weight, which does not need equal widths."
        )
    heads = count_heads(config, teacher)
    widths = {"teacher": teacher.hidden_size, "student": student.hidden_size}
    for name, width in widths.items() if config.relation_weight else ():
        if width % heads:
            raise ValueError(
                f"The {name} is {width} wide, which {heads} relation heads do not divide; give "
                f"relation_heads, a number that divides {widths['teacher']} and "
                f"{widths['student']}."
            )
    if config.teacher_layer > teacher.num_hidden_layers:
        raise ValueError(
            f"teacher_layer={config.teacher_layer}, but the teacher has "
            f"{teacher.num_hidden_layers} layers."
        )


class Distillation(Objective):
    """Losses of a masked language model against a teacher that reads the same masked tokens.

    The sums are reported with their weights, as they enter the loss. The teacher is not part of the
    model: optimizer and checkpoints do not contain it.

    Args:
      teacher: `BertPretrainer`, or a `BertEncoder` if `teacher_weight` is 0.
      student: configuration of the model that is trained.
      config: weights of the losses.

    Raises:
      ValueError: see `check_shapes`.
    """

    def __init__(self, teacher: Model, student: ModelConfig, config: ObjectiveConfig) -> None:
        self.teacher = teacher
        self.config = config
        self.encoder = getattr(teacher, "bert", teacher)
        shape = self.encoder.config
        check_shapes(config, shape, student)
        self.plot_titles = {}
        if config.teacher_weight:
            self.plot_titles["soft_labels_loss"] = "Teacher's tokens: loss, weighted"
        if config.hidden_weight:
            self.plot_titles["hidden_states_loss"] = "Teacher's hidden states: 1 - cosine, weighted"
        if config.relation_weight:
            self.plot_titles["relations_loss"] = "Teacher's attention relations: loss, weighted"
        self.heads = count_heads(config, shape)
        self.layer = (config.teacher_layer or shape.num_hidden_layers) - 1

    def outputs(self, model: Model, encoded: Outputs, inputs: Batch) -> Outputs:
        # Without dropout: the targets of a step do not vary from run to run.
        teacher_encoded = self.encoder(inputs, training=False)
        outputs: Outputs = {}
        if self.config.teacher_weight:
            logits = MaskedLM().outputs(self.teacher, teacher_encoded, inputs)["masked_lm_logits"]
            outputs["teacher_masked_lm_logits"] = ops.stop_gradient(logits)
        if self.config.hidden_weight:
            states = ops.stop_gradient(teacher_encoded["sequence_output"])
            outputs["hidden_distances"] = cosine_distances(encoded["sequence_output"], states)
        if self.config.relation_weight:
            # The student's last layer, whatever the teacher's: MiniLMv2 takes an upper middle one
            # of large teachers.
            last_layer = model.config.num_hidden_layers - 1
            student_vectors = attention_vectors(model.bert, encoded, last_layer)
            teacher_vectors = attention_vectors(self.encoder, teacher_encoded, self.layer)
            losses = 0.0
            for student, teacher in zip(student_vectors, teacher_vectors, strict=True):
                losses += relation_losses(
                    student, ops.stop_gradient(teacher), inputs["input_mask"], self.heads
                )
            outputs["relation_losses"] = losses
        return outputs

    def loss_weights(self, batch: Batch) -> dict[str, tf.Tensor]:
        num_tokens = tf.reduce_sum(tf.cast(batch["input_mask"], tf.float32))
        weights = dict.fromkeys(self.plot_titles, num_tokens)
        if "soft_labels_loss" in weights:
            # The teacher scores the vocabulary at masked positions only.
            weights["soft_labels_loss"] = tf.reduce_sum(batch["masked_lm_weights"])
        return weights

    def loss_and_metric_sums(self, batch: Batch, outputs: Outputs) -> dict[str, WeightedSum]:
        config = self.config
        is_real = ops.cast(batch["input_mask"], "float32")
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


def attention_vectors(encoder: Model, encoded: Outputs, layer: int) -> tuple[Tensor, ...]:
    """Returns queries, keys and values of a layer, float32 [B, T, D], before any rotation.

    They are computed a second time from the inputs of the layer, so that the encoder does not have
    to return them: three matrix products of one layer, and no cost in steps that do not need them.
    """
    block = encoder.encoder_layers[layer]
    inputs = encoded["encoder_outputs"][layer]
    # The inputs of the projections: in the pre-norm form, after the block's LayerNorm.
    if encoder.config.block_type == "pre_norm" and block.attention_norm:
        inputs = block.attention_norm(inputs)
    attention = block.self_attention
    projections = attention.query, attention.key, attention.value
    return tuple(ops.cast(project(inputs), "float32") for project in projections)


def relation_losses(student: Tensor, teacher: Tensor, input_mask: Tensor, heads: int) -> Tensor:
    """Returns KL(teacher's relations || student's relations) of each token, averaged over heads.

    Args:
      student, teacher: queries, keys or values, float32 [B, T, D] and [B, T, E].
      input_mask: int32 [B, T], 1 for tokens and 0 for padding, which no relation includes.
      heads: A, the number of relation heads; divides D and E.

    Returns:
      float32 [B, T]; values at padding are meaningless.
    """
    bias = attention_bias(input_mask)  # [B, 1, 1, T]
    log_student, log_teacher = (_log_relations(x, bias, heads) for x in (student, teacher))
    # KL is the sum over the keys of p (log p - log q), where p is the teacher's.
    terms = ops.exp(log_teacher) * (log_teacher - log_student)  # [B, A, T, T]
    return ops.mean(ops.sum(terms, axis=-1), axis=1)  # [B, T]


def _log_relations(vectors: Tensor, bias: Tensor, heads: int) -> Tensor:
    """Returns log probabilities of the relations, float32 [B, A, T, T]."""
    size = vectors.shape[-1] // heads
    split = ops.reshape(vectors, (-1, ops.shape(vectors)[1], heads, size))  # [B, T, A, H]
    scores = ops.einsum("BTAH,BSAH->BATS", split * size**-0.5, split)
    # Keys at padding get a probability of 0.
    return ops.log_softmax(scores + bias)
