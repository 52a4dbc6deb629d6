"""Token pooling: similar token vectors of a document become one, their mean.

Reference: Clavié et al. 2024, "Reducing the Footprint of Multi-Vector Retrieval with Minimal
Performance Impact via Token Pooling"; HierarchicalTokenPooling of sentence-transformers 6.2.0.
"""

import numpy as np

from bert_tf.checkpoints.token_vectors import check_pooling
from bert_tf.metrics.vectors import unit


def pool_tokens_of_document(
    vectors: np.ndarray, pool_factor: float, protected_tokens: int = 1, normalizes: bool = True
) -> np.ndarray:
    """Pools the token vectors [t, D] of a document by Ward's clusters of 1 - cosine.

    Args:
      pool_factor: F, tokens per cluster; 1 changes nothing.
      protected_tokens: P, number of first tokens that are kept as they are.
      normalizes: whether all vectors of the result are scaled to length 1.

    Returns:
      float32 [P + n, D]: the protected vectors, then the means of n = max(1, floor((t - P) / F))
      clusters, fewer where distances are equal; [t, D] if there is nothing to pool.
    """
    check_pooling(pool_factor, protected_tokens)
    if pool_factor == 1:
        return vectors
    rest = vectors[protected_tokens:]
    # Not `//`, which gives 9 for 11 and 1.1: sentence-transformers divides first.
    num_clusters = max(1, int(len(rest) / pool_factor))
    if num_clusters < len(rest):
        labels = _ward_clusters(rest, num_clusters)  # [t - P]
        _, clusters, counts = np.unique(labels, return_inverse=True, return_counts=True)
        sums = np.zeros([len(counts), vectors.shape[1]], np.float32)
        np.add.at(sums, clusters, rest)
        means = sums / counts[:, None].astype(np.float32)
        vectors = np.concatenate([vectors[:protected_tokens], means])
    return unit(vectors) if normalizes else vectors


def _ward_clusters(vectors: np.ndarray, num_clusters: int) -> np.ndarray:
    """Returns the number of each vector's cluster, int [t]."""
    try:
        from scipy.cluster import hierarchy
        from scipy.spatial.distance import squareform
    except ImportError:
        raise ValueError("Token pooling needs scipy: pip install scipy.") from None
    distances = np.clip(1.0 - vectors @ vectors.T, 0.0, 2.0)  # [t, t]
    # The condensed form: the distances above the diagonal.
    tree = hierarchy.linkage(squareform(distances, checks=False), method="ward")
    return hierarchy.fcluster(tree, t=num_clusters, criterion="maxclust")
