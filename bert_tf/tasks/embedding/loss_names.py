"""The losses of embeddings by name, and the examples that each needs. Loads no TensorFlow."""

from collections.abc import Sequence

from bert_tf.tasks.embedding.examples import EmbeddingExample

IN_BATCH = ("in_batch", "symmetric")
OF_SCORES = ("cosent", "cosine", "margin_mse", "divergence")
OF_NEGATIVES = ("triplet", "margin_mse", "divergence")
SAME_LABEL = "same_label"
# A batch of these has no text twice: it would be its own negative.
NO_DUPLICATES = (*IN_BATCH, SAME_LABEL)
# Both texts of an example are of the same kind and length, so that one pass embeds them.
JOINT = (SAME_LABEL,)


def natural_loss(examples: Sequence[EmbeddingExample]) -> str:
    """Returns the default loss for a form of examples."""
    if not examples[0].scores:
        return "in_batch"
    return "margin_mse" if any(example.negatives for example in examples) else "cosent"


def check_examples(examples: Sequence[EmbeddingExample], loss: str) -> None:
    """Raises ValueError naming an example that lacks a part that a loss needs."""
    for example in examples:
        if loss == SAME_LABEL and (not example.scores or len(example.scores) % 2):
            raise ValueError(
                f"{example.source} has no labels, which the loss {loss} needs; it is for "
                "run_classifier --few_shot."
            )
        if loss in OF_NEGATIVES and not example.negatives:
            raise ValueError(f"{example.source} has no negative, which the loss {loss} needs.")
        if loss in OF_SCORES and not example.scores:
            raise ValueError(f"{example.source} has no score, which the loss {loss} needs.")
        if loss in ("cosent", "cosine") and example.negatives:
            raise ValueError(
                f"{example.source} has negatives, but the loss {loss} is for pairs; leave them out."
            )
        if loss == "cosine" and not -1.0 <= example.scores[0] <= 1.0:
            raise ValueError(
                f"{example.source}: the score is {example.scores[0]}, expected a cosine, -1 to 1; "
                "divide by the highest score, or give --retrieval_loss=cosent, which accepts any "
                "score."
            )
