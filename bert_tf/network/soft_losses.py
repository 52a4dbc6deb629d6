"""Losses against the outputs of a teacher, which are soft labels.

scores          T^2 KL(softmax(teacher / T) || softmax(student / T))   Hinton et al. 2015
embeddings      squared distance or 1 - cosine                         sentence-transformers
"""

from keras import ops

from bert_tf.system.type_names import Tensor

LEAST_SQUARE = 1e-12


def soft_class_losses(logits: Tensor, teacher_logits: Tensor, temperature: float = 1.0) -> Tensor:
    """Returns T^2 KL(teacher || student) over classes softened by a temperature T, float32 [...].

    Logits are float [..., C]. The factor T^2 keeps the size of the gradients the same for all T.

    Reference: Hinton et al. 2015, "Distilling the Knowledge in a Neural Network", section 2.
    """
    log_student, log_teacher = (
        ops.log_softmax(ops.cast(x, "float32") / temperature) for x in (logits, teacher_logits)
    )
    # KL is the sum over the classes of p (log p - log q), where p is the teacher's.
    terms = ops.exp(log_teacher) * (log_teacher - log_student)
    return temperature**2 * ops.sum(terms, axis=-1)


def soft_several_losses(logits: Tensor, teacher_logits: Tensor, temperature: float = 1.0) -> Tensor:
    """Returns T^2 KL(teacher || student) of C independent decisions, their mean, float32 [B]."""
    student, teacher = (ops.cast(x, "float32") / temperature for x in (logits, teacher_logits))
    probability = ops.sigmoid(teacher)
    # KL of two Bernoulli distributions by their logits, without log(0): p (t - s) + log((1 + e^s) /
    # (1 + e^t)).
    terms = probability * (teacher - student) + ops.softplus(student) - ops.softplus(teacher)
    return temperature**2 * ops.mean(terms, axis=-1)


def soft_number_losses(logits: Tensor, teacher_logits: Tensor, temperature: float = 1.0) -> Tensor:
    """Returns the squared difference of regression outputs [B, 1], float32 [B].

    `temperature` has no effect, because a number has no distribution to soften.
    """
    student, teacher = (ops.cast(x, "float32")[:, 0] for x in (logits, teacher_logits))
    return ops.square(student - teacher)


SOFT_LOSSES = {
    "single_label": soft_class_losses,
    "regression": soft_number_losses,
    "multi_label": soft_several_losses,
}


def cosine_distances(vectors: Tensor, teacher_vectors: Tensor) -> Tensor:
    """Returns 1 - cosine, float32 [...], for vectors float [..., D]; 1 for a vector of zeros."""
    student, teacher = (_unit(ops.cast(x, "float32")) for x in (vectors, teacher_vectors))
    return 1.0 - ops.sum(student * teacher, axis=-1)


def _unit(vectors: Tensor) -> Tensor:
    # Added inside the root: at the zeros of padding the root itself has no gradient.
    return vectors * ops.rsqrt(ops.sum(ops.square(vectors), axis=-1, keepdims=True) + LEAST_SQUARE)


def squared_distances(vectors: Tensor, teacher_vectors: Tensor) -> Tensor:
    """Returns |student - teacher|^2, float32 [...], for vectors float [..., D].

    This is D times the MSELoss of sentence-transformers, which makes it as large as other losses.
    """
    return ops.sum(ops.square(vectors - teacher_vectors), axis=-1)


EMBEDDING_DISTANCES = {"squared": squared_distances, "cosine": cosine_distances}
