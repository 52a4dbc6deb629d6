"""Registers rerankers as a kind of model that can be loaded and exported.

The readers of checkpoints are imported when they are called: exported models need none.
"""

import pathlib
import typing
from typing import Any

from bert_tf.tasks.base.serving.kind import Kind

if typing.TYPE_CHECKING:
    from bert_tf.checkpoints.checkpoint import Checkpoint


def is_cross_encoder(checkpoint: "Checkpoint", folder: str) -> bool:
    """Returns whether a checkpoint has one label and its folder states an activation."""
    from bert_tf.checkpoints.cross_encoder_settings import stated_activation

    has_one_label = "classifier" in checkpoint.heads and checkpoint.num_labels == 1
    return has_one_label and bool(stated_activation(pathlib.Path(folder)))


def recorded_activation(checkpoint: "Checkpoint", folder: str) -> dict[str, Any]:
    """Returns the function from a logit to a score."""
    from bert_tf.checkpoints.cross_encoder_settings import stated_activation

    return {"activation": stated_activation(pathlib.Path(folder)) or "sigmoid"}


RERANKER = Kind(
    name="reranker",
    request="query, documents",
    head="classifier",
    methods=("rank", "score"),
    model="bert_tf.tasks.reranking.model.BertReranker",
    serving="bert_tf.tasks.reranking.serving.RerankingServing",
    is_default=is_cross_encoder,
    recorded=recorded_activation,
    has_one_label=True,
    inputs=("query", "documents"),
)
