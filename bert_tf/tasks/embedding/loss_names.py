"""The losses of embeddings by name, and the examples that each needs. Loads no TensorFlow."""

from collections.abc import Sequence

from bert_tf.metrics.maxsim import MAXSIM
from bert_tf.tasks.embedding.examples import EmbeddingExample

IN_BATCH = ("in_batch", "symmetric")
OF_SCORES = ("cosent", "cosine", "margin_mse", "divergence")
OF_NEGATIVES = ("triplet", "margin_mse", "divergence")
SAME_LABEL = "same_label"
# A batch of these has no text twice: it would be its own negative.
NO_DUPLICATES = (*IN_BATCH, SAME_LABEL)
# Both texts of an example are of the same kind and length, so that one pass embeds them.
JOINT = (SAME_LABEL,)
# The similarity in losses of each --embedding_type; of token vectors it may also be meanmaxsim.
LOSS_SIMILARITIES = {"dense": "cosine", "splade": "dot", "colbert": "maxsim"}
# The factor of each similarity in losses, if none is given. Cosines need one.
SCALES = {"cosine": 20.0, **dict.fromkeys(("dot", *MAXSIM), 1.0)}
# Losses that are for another similarity.
REFUSED = {"dot": ("cosent", "cosine"), **dict.fromkeys(MAXSIM, ("cosent", "cosine", "triplet"))}


def natural_loss(examples: Sequence[EmbeddingExample]) -> str:
    """Returns the default loss for a form of examples."""
    if not examples[0].scores:
        return "in_batch"
    return "margin_mse" if any(example.negatives for example in examples) else "cosent"


def check_similarity(loss: str, similarity: str) -> None:
    """Raises ValueError for a loss that compares texts in another way than the model."""
    if loss in REFUSED.get(similarity, ()):
        raise ValueError(
            f"--retrieval_loss={loss} does not work with {similarity}, which compares the texts of "
            "this model; train on pairs, triplets or a teacher's margins."
        )


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
