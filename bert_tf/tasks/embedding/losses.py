"""Losses for embeddings, in the forms of sentence-transformers.

Each takes the embeddings of a whole batch, because the texts of other examples may be negatives,
and returns a `WeightedSum`, whose quotient is the loss. B counts the rows of all devices.
"""

import functools
from collections.abc import Callable, Sequence
from typing import NamedTuple

import tensorflow as tf

from bert_tf.config.ranking_config import RetrieverConfig, comma_numbers
from bert_tf.metrics.maxsim import MAXSIM
from bert_tf.network.losses import WeightedSum
from bert_tf.network.pooling import l2_normalize
from bert_tf.tasks.embedding.loss_names import SAME_LABEL

LOWEST = -1e9  # the score of filling documents, and of tokens that do not score
EPSILON = 1e-6  # torch's pairwise_distance adds it to each difference.
SCALE = 20.0


class Vectors(NamedTuple):
    """The embeddings of a batch."""

    queries: tf.Tensor  # float32 [B, D]
    documents: tf.Tensor  # float32 [B, M, D], the positive first, then the example's own negatives
    # float32 [B, M], 0 for a document that only fills; a filling example has all 0.
    weights: tf.Tensor
    scores: tf.Tensor = None  # float32 [B, S]; None for losses that do not learn them


Loss = Callable[[Vectors], WeightedSum]


def cosines(queries: tf.Tensor, documents: tf.Tensor) -> tf.Tensor:
    """Returns the cosine of each query with its own documents, float32 [B, M]."""
    return dot_products(l2_normalize(queries), l2_normalize(documents))


def dot_products(queries: tf.Tensor, documents: tf.Tensor) -> tf.Tensor:
    """Returns the dot product of each query with its own documents, float32 [B, M]."""
    return tf.reduce_sum(queries[:, None] * documents, axis=-1)


def token_scores(queries: tf.Tensor, documents: tf.Tensor, similarity: str) -> tf.Tensor:
    """Returns the MaxSim of each query with each document, float32 [B, N].

    Args:
      queries: float32 [B, Tq, D]; vectors of zeros are tokens that do not score.
      documents: float32 [N, Td, D], the same.
      similarity: maxsim, or meanmaxsim: divided by the number of a query's tokens.
    """

    # The products of all tokens [B * Tq, N, Td] would not fit in memory: those of one document are
    # computed after those of another, and once more for the gradient.
    @tf.recompute_grad
    def best_products(tokens: tf.Tensor, document: tf.Tensor) -> tf.Tensor:
        products = tf.matmul(tokens, document, transpose_b=True)  # [B * Tq, Td]
        is_token = tf.reduce_any(document != 0.0, axis=-1)  # [Td]
        return tf.reduce_max(tf.where(is_token, products, LOWEST), axis=-1)

    tokens = tf.reshape(queries, [-1, queries.shape[-1]])  # [B * Tq, D]
    best = tf.map_fn(lambda document: best_products(tokens, document), documents)  # [N, B * Tq]
    scored = tf.cast(tf.reduce_any(queries != 0.0, axis=-1), tf.float32)  # [B, Tq]
    best = tf.reshape(best, tf.concat([[-1], tf.shape(scored)], axis=0))  # [N, B, Tq]
    scores = tf.transpose(tf.reduce_sum(best * scored, axis=-1))  # [B, N]
    if similarity == "meanmaxsim":
        scores /= tf.maximum(tf.reduce_sum(scored, axis=-1, keepdims=True), 1.0)
    return scores


def own_scores(queries: tf.Tensor, documents: tf.Tensor, similarity: str) -> tf.Tensor:
    """Returns the similarity of each query with its own documents, float32 [B, M].

    Args:
      similarity: cosine or dot; or maxsim or meanmaxsim, of token vectors, which have an axis more.
    """
    if similarity not in MAXSIM:
        return (cosines if similarity == "cosine" else dot_products)(queries, documents)

    def score(example: tuple[tf.Tensor, tf.Tensor]) -> tf.Tensor:
        query, own = example  # [Tq, D], [M, Td, D]
        return token_scores(query[None], own, similarity)[0]

    return tf.map_fn(score, (queries, documents), fn_output_signature=tf.float32)


def candidate_scores(batch: Vectors, scale: float, similarity: str = "cosine") -> tf.Tensor:
    """Returns scaled similarities of each query with the batch's documents, float32 [B, M * B].

    All positives come first, in the order of the queries, then all first negatives, and so on.
    """
    queries, documents, weights, _ = batch
    if similarity == "cosine":
        queries, documents = l2_normalize(queries), l2_normalize(documents)
    # [B, M, D] -> [M * B, D]: column i is the positive of query i.
    order = [1, 0, *range(2, len(documents.shape))]
    shape = tf.concat([[-1], tf.shape(documents)[2:]], axis=0)
    candidates = tf.reshape(tf.transpose(documents, order), shape)
    if similarity in MAXSIM:
        scores = scale * token_scores(queries, candidates, similarity)
    else:
        scores = scale * tf.matmul(queries, candidates, transpose_b=True)
    counts = tf.reshape(tf.transpose(weights), [-1]) > 0
    # A filling document would otherwise be a negative, and an easy one.
    return tf.where(counts, scores, LOWEST)


def in_batch_negatives(
    batch: Vectors, *, scale: float = SCALE, symmetric: bool = False, similarity: str = "cosine"
) -> WeightedSum:
    """The cross-entropy of finding one's positive among all documents of the batch.

    Args:
      scale: of the similarities, 1 / temperature.
      symmetric: whether half of the loss is that of finding the query of each positive.

    Reference: Henderson et al. 2017, "Efficient Natural Language Response Suggestion", section 4;
    MultipleNegativesRankingLoss.
    """
    found = candidate_scores(batch, scale, similarity)
    losses = _ranking_losses(found)
    weights = batch.weights
    count = tf.shape(weights)[0]
    if symmetric:
        # [B, B], a row for each positive, a column for each query.
        positives = tf.where(weights[:, 0] > 0, tf.transpose(found[:, :count]), LOWEST)
        # In the transposed scores queries are the candidates, without filling ones.
        losses = (losses + _ranking_losses(positives)) / 2.0
    return WeightedSum(tf.reduce_sum(losses * weights[:, 0]), tf.reduce_sum(weights[:, 0]))


def _ranking_losses(scores: tf.Tensor) -> tf.Tensor:
    """Returns the cross-entropy of each row's own column, float32 [B]."""
    # The first B columns are the positives, in the order of the rows.
    return tf.reduce_logsumexp(scores, axis=-1) - tf.linalg.diag_part(scores)


def in_batch_accuracy(batch: Vectors, similarity: str = "cosine") -> WeightedSum:
    """Counts the queries whose positive scores highest of all documents of the batch."""
    found = candidate_scores(batch, 1.0, similarity)
    expected = tf.range(tf.shape(found)[0], dtype=tf.int64)
    right = tf.cast(tf.equal(tf.argmax(found, axis=-1), expected), tf.float32)
    weights = batch.weights[:, 0]
    return WeightedSum(tf.reduce_sum(right * weights), tf.reduce_sum(weights))


def cosent(batch: Vectors, *, scale: float = SCALE) -> WeightedSum:
    """log(1 + sum exp(scale (cos_i - cos_j))) over all i, j of the batch with score_i < score_j.

    The first document is the other text of the pair; scores [B, 1] are on any scale.

    Reference: https://kexue.fm/archives/8847.
    """
    found = scale * cosines(batch.queries, batch.documents[:, :1])[:, 0]
    # scale (cos_i - cos_j) in row i and column j, [B, B].
    differences = found[:, None] - found[None, :]
    given = batch.scores[:, 0]
    counts = batch.weights[:, 0] > 0
    is_wrong_way = (given[:, None] < given[None, :]) & counts[:, None] & counts[None, :]
    terms = tf.where(is_wrong_way, differences, LOWEST)
    # The 0 is the 1 of the formula: log(exp(0) + sum exp(...)).
    total = tf.reduce_logsumexp(tf.concat([[0.0], tf.reshape(terms, [-1])], axis=0))
    # One number for the batch, which is not a mean over its examples.
    return WeightedSum(total, tf.ones([]))


def cosine_similarity(batch: Vectors) -> WeightedSum:
    """The squared difference of each pair's cosine and its score, float32 [B, 1] in [-1, 1]."""
    queries, documents, weights, scores = batch
    errors = tf.square(cosines(queries, documents[:, :1])[:, 0] - scores[:, 0]) * weights[:, 0]
    return WeightedSum(tf.reduce_sum(errors), tf.reduce_sum(weights[:, 0]))


def same_label(batch: Vectors) -> WeightedSum:
    """The squared error of the cosine of every two texts: 1 with a label in common, else 0.

    Pairs with a common label count as much as all others together. A batch without pairs has the
    loss 0. The first document is the other text; scores [B, 2 * C] are the labels of the query,
    then those of the document, as 0 and 1.
    """
    queries, documents, weights, scores = batch
    texts = l2_normalize(tf.concat([queries, documents[:, 0]], axis=0))  # [2 * B, D]
    labels = tf.concat(tf.split(scores, 2, axis=1), axis=0)  # [2 * B, C]
    text_weights = tf.concat([weights[:, 0], weights[:, 0]], axis=0)  # [2 * B]
    has_common_label = tf.matmul(labels, labels, transpose_b=True) > 0  # [2 * B, 2 * B]
    targets = tf.cast(has_common_label, tf.float32)
    errors = tf.square(tf.matmul(texts, texts, transpose_b=True) - targets)
    pair_weights = text_weights[:, None] * text_weights[None, :]
    # The diagonal pairs each text with itself.
    pair_weights = tf.linalg.set_diag(pair_weights, tf.zeros_like(text_weights))
    total = 0.0
    num_kinds = 0.0
    # The mean of each kind, so that the many pairs without a common label do not dominate.
    for kind_weights in (pair_weights * targets, pair_weights * (1.0 - targets)):
        weight = tf.reduce_sum(kind_weights)
        total += tf.math.divide_no_nan(tf.reduce_sum(errors * kind_weights), weight)
        num_kinds += tf.cast(weight > 0, tf.float32)
    return WeightedSum(tf.math.divide_no_nan(total, num_kinds), tf.ones([]))


def triplet(batch: Vectors, *, margin: float = 5.0, distance: str = "euclidean") -> WeightedSum:
    """max(0, distance(query, positive) - distance(query, negative) + margin), over the negatives.

    Args:
      margin: by how much a negative should be further away.
      distance: euclidean, or cosine: 1 - cosine.

    Reference: Schroff et al. 2015, "FaceNet"; TripletLoss.
    """
    queries, documents, weights, _ = batch
    if distance == "cosine":
        distances = 1.0 - cosines(queries, documents)
    else:
        distances = tf.norm(queries[:, None] - documents + EPSILON, axis=-1)  # [B, M]
    # The positive is in column 0. [B, M - 1]
    losses = tf.nn.relu(distances[:, :1] - distances[:, 1:] + margin)
    return WeightedSum(tf.reduce_sum(losses * weights[:, 1:]), tf.reduce_sum(weights[:, 1:]))


def margin_mse(batch: Vectors, *, similarity: str = "dot") -> WeightedSum:
    """The squared difference of the margin and the teacher's.

    Margins are dot(query, positive) - dot(query, negative), or those of another similarity; the
    teacher's are float32 [B, M - 1].

    Reference: Hofstätter et al. 2020, "Improving Efficient Neural Ranking Models with
    Cross-Architecture Knowledge Distillation".
    """
    queries, documents, weights, scores = batch
    # [B, M]; below, one margin for each negative, [B, M - 1].
    found = own_scores(queries, documents, similarity)
    errors = tf.square(found[:, :1] - found[:, 1:] - scores) * weights[:, 1:]
    return WeightedSum(tf.reduce_sum(errors), tf.reduce_sum(weights[:, 1:]))


def divergence(batch: Vectors, *, scale: float = SCALE, similarity: str = "cosine") -> WeightedSum:
    """The Kullback-Leibler divergence of the teacher's distribution over a query's documents.

    The scores [B, M - 1] are the teacher's margins: its score of the positive minus that of each
    negative. A softmax of scores does not change if one number is added to all.

    Reference: Santhanam et al. 2022, "ColBERTv2", section 3.2; MultiVectorDistillKLDivLoss.
    """
    queries, documents, weights, scores = batch
    found = scale * own_scores(queries, documents, similarity)  # [B, M]
    margins = tf.concat([tf.zeros_like(found[:, :1]), -scores], axis=1)
    counts = weights > 0
    student = tf.nn.log_softmax(tf.where(counts, found, LOWEST), axis=-1)
    teacher = tf.nn.log_softmax(tf.where(counts, margins, LOWEST), axis=-1)
    losses = tf.reduce_sum(tf.exp(teacher) * (teacher - student), axis=-1)  # [B]
    return WeightedSum(tf.reduce_sum(losses * weights[:, 0]), tf.reduce_sum(weights[:, 0]))


def matryoshka(loss: Loss, dimensions: Sequence[int], factors: Sequence[float]) -> Loss:
    """Returns the sum of a loss over the first numbers of the embeddings, weighted by factors.

    For each of `dimensions`, so many first numbers are kept and scaled to length 1.

    Reference: Kusupati et al. 2022, "Matryoshka Representation Learning"; MatryoshkaLoss.
    """

    def total(batch: Vectors) -> WeightedSum:
        sums = []
        for size in dimensions:
            queries = l2_normalize(batch.queries[..., :size])
            documents = l2_normalize(batch.documents[..., :size])
            sums.append(loss(batch._replace(queries=queries, documents=documents)))
        # Of one loss: the weights are the same.
        parts = [factor * one.total for factor, one in zip(factors, sums, strict=True)]
        return WeightedSum(tf.add_n(parts), sums[0].weight)

    return total


def sparse(loss: Loss, query_factor: float, document_factor: float) -> Loss:
    """Returns a loss with the FLOPS regularizer, which makes vectors sparse, added.

    It is the sum over tokens of the square of their mean weight in the batch, which is the cost of
    a search by lists, times a factor for each side. Vectors are 0 and above.

    Reference: Paria et al. 2020, "Minimizing FLOPs to Learn Efficient Sparse Representations",
    equation 3; SpladeLoss. There the factors rise at the beginning of the run, here they do not.
    """

    def total(batch: Vectors) -> WeightedSum:
        found = loss(batch)
        queries, documents, weights, _ = batch
        size = tf.shape(documents)[-1]
        flat = tf.reshape(documents, [-1, size]), tf.reshape(weights, [-1])
        more = query_factor * _flops(queries, weights[:, 0]) + document_factor * _flops(*flat)
        # `more` times the weight, so that it is added to the mean, whatever the loss counts.
        return WeightedSum(found.total + found.weight * more, found.weight)

    return total


def _flops(vectors: tf.Tensor, weights: tf.Tensor) -> tf.Tensor:
    """Returns the sum of the squared means of each number, over rows with a weight."""
    counts = tf.cast(weights > 0, tf.float32)
    # [V], means over the texts that do not only fill.
    means = tf.linalg.matvec(vectors, counts, transpose_a=True) / tf.reduce_sum(counts)
    return tf.reduce_sum(tf.square(means))


def loss_of_data_set(losses: Sequence[Loss], data_set: tf.Tensor, batch: Vectors) -> WeightedSum:
    """Returns the loss of a batch of `MixedDataset`.

    Args:
      losses: one for each data set.
      data_set: float32 [B], the batch's data set, or 0 for a filling example.
    """
    branches = [functools.partial(loss, batch) for loss in losses]
    return tf.switch_case(tf.cast(tf.reduce_max(data_set), tf.int32), branches)


def make_loss(name: str, task: RetrieverConfig, dimension: int, similarity: str = "cosine") -> Loss:
    """Returns the loss with a name."""
    loss = make_losses(task, similarity)[name]
    if not task.matryoshka_dims:
        return loss
    if similarity in MAXSIM:
        raise ValueError(
            "--matryoshka_dims is for one vector of a text, not for one of each token."
        )
    sizes = comma_numbers(task.matryoshka_dims, "--matryoshka_dims")
    weights = comma_numbers(task.matryoshka_weights, "--matryoshka_weights")
    factors = weights or [1.0] * len(sizes)
    wrong = [size for size in sizes if size > dimension]
    if wrong:
        raise ValueError(
            f"--matryoshka_dims: {wrong[0]:g} is not a size for embeddings of {dimension} numbers."
        )
    return matryoshka(loss, list(map(int, sizes)), factors)


def make_losses(task: RetrieverConfig, similarity: str = "cosine") -> dict[str, Loss]:
    """Returns all losses by name, with the settings of the flags."""
    in_batch = functools.partial(
        in_batch_negatives, scale=task.loss_scale_factor, similarity=similarity
    )
    return {
        "in_batch": in_batch,
        "symmetric": functools.partial(in_batch, symmetric=True),
        "cosent": functools.partial(cosent, scale=task.loss_scale_factor),
        "cosine": cosine_similarity,
        "triplet": functools.partial(
            triplet, margin=task.triplet_margin, distance=task.triplet_distance
        ),
        "margin_mse": functools.partial(
            margin_mse, similarity="dot" if similarity == "cosine" else similarity
        ),
        "divergence": functools.partial(
            divergence, scale=task.loss_scale_factor, similarity=similarity
        ),
        SAME_LABEL: same_label,
    }
