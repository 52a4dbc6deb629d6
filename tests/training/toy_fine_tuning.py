"""Tiny tasks of fine-tuning on made-up rows of mixed length: classes, tags, spans."""

import numpy as np

from bert_tf.config import ModelConfig
from bert_tf.config.fine_tuning_config import SquadConfig
from bert_tf.tasks.base.examples.rows import TokenizedDataset
from bert_tf.tasks.base.programs.rows_task import RowsTask
from bert_tf.tasks.classification.features import TextExamples
from bert_tf.tasks.classification.model import BertClassifier
from bert_tf.tasks.classification.task import ClassificationTask
from bert_tf.tasks.question_answering.model import BertSpanLabeler
from bert_tf.tasks.question_answering.task import SquadTask
from bert_tf.tasks.tagging.model import BertTokenClassifier
from bert_tf.tasks.tagging.task import TaggingTask
from bert_tf.text.packing import PackedText

LONGEST = 40
TINY = ModelConfig(
    vocab_size=40,
    hidden_size=16,
    num_hidden_layers=2,
    num_attention_heads=2,
    intermediate_size=32,
    max_position_embeddings=LONGEST,
    hidden_dropout_prob=0.0,
    attention_probs_dropout_prob=0.0,
    initializer_range=0.2,
)
NUM_ROWS = 21
LABELS = ("a", "b", "c")
# Some words have no tag.
TAGS = (-1, 0, 1, 2)


def toy_texts(count: int = NUM_ROWS, seed: int = 0) -> list[PackedText]:
    """Draws texts of 4 to 40 pieces, in two segments."""
    draw = np.random.default_rng(seed)
    lengths = draw.integers(4, LONGEST + 1, count)
    return [
        PackedText(draw.integers(5, 40, n).tolist(), np.sort(draw.integers(0, 2, n)).tolist())
        for n in lengths
    ]


def toy_rows(kind: str, count: int = NUM_ROWS, seed: int = 0) -> TokenizedDataset:
    """Returns rows with labels; those of classes have weights, not all the same."""
    texts, draw = toy_texts(count, seed), np.random.default_rng(seed + 1)
    if kind == "tags":
        return TokenizedDataset(
            texts, {}, {"tag_ids": [draw.choice(TAGS, len(text.ids)) for text in texts]}
        )
    if kind == "spans":
        starts = np.array([draw.integers(0, len(text.ids)) for text in texts], np.int32)
        ends = np.array([len(text.ids) - 1 for text in texts], np.int32)
        return TokenizedDataset(texts, {"start_positions": starts, "end_positions": ends})
    labels = draw.integers(0, len(LABELS), count).astype(np.int32)
    weights = np.array([0.5, 1.0, 2.0], np.float32)[labels]
    return TokenizedDataset(texts, {"label_ids": labels, "example_weights": weights})


def toy_task(
    kind: str,
    buckets: list[int],
    rows: TokenizedDataset | None = None,
    config: ModelConfig = TINY,
    **options,
) -> RowsTask:
    """Returns a task that trains on the rows and evaluates them; `options` are the model's."""
    rows = rows or toy_rows(kind)
    if kind == "tags":
        model = BertTokenClassifier(config, len(LABELS), **options)
        return TaggingTask(model, rows, None, buckets, 3, labels=LABELS)
    if kind == "spans":
        model = BertSpanLabeler(config, **options)
        return SquadTask(model, rows, None, buckets, 3, config=SquadConfig())
    examples = TextExamples(
        [None] * len(rows), rows, np.arange(len(rows)), rows.labels["label_ids"], 0
    )
    return ClassificationTask(
        BertClassifier(config, len(LABELS), **options),
        rows,
        examples,
        buckets,
        3,
        kind="single_label",
        labels=LABELS,
        metric_names=("accuracy", "macro_f1"),
    )
