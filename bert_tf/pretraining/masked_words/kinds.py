"""The kinds of pre-trained models: masked words, sparse vectors and next sentences."""

import typing
from typing import Any

from bert_tf.tasks.base.serving.kind import PAIR, Kind, has_head

if typing.TYPE_CHECKING:
    from bert_tf.checkpoints.checkpoint import Checkpoint

MODEL = "bert_tf.pretraining.masked_words.model.BertPretrainer"


def pairs(checkpoint: "Checkpoint", folder: str) -> dict[str, Any]:
    """Returns that requests hold two texts."""
    return {"texts": PAIR}


FILL_MASK = Kind(
    name="fill_mask",
    request="text with [MASK]",
    head="masked_lm",
    methods=("fill_mask", "score", "continue_text"),
    model=MODEL,
    serving="bert_tf.pretraining.masked_words.serving.FillMaskServing",
    is_default=has_head("masked_lm"),
    options=("top_k", "rounds"),
    model_options={"use_next_sentence": False, "use_pooler": False},
)
SPLADE = Kind(
    name="splade",
    request="text",
    head="masked_lm",
    methods=(),
    model=MODEL,
    serving="bert_tf.pretraining.masked_words.splade_serving.SpladeServing",
    model_options={"use_next_sentence": False, "use_pooler": False},
)
NEXT_SENTENCE = Kind(
    name="next_sentence",
    request="text, text_b",
    head="next_sentence",
    methods=("score",),
    model=MODEL,
    serving="bert_tf.pretraining.masked_words.serving.NextSentenceServing",
    recorded=pairs,
)
