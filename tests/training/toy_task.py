"""A pre-training task on made-up batches: a real model, data from a formula, no files."""

import types
from collections.abc import Mapping

import numpy as np
import tensorflow as tf

from bert_tf.config import DataConfig, MaskingConfig, ModelConfig
from bert_tf.corpus.mapping import map_in_order
from bert_tf.pretraining.masked_words.model import BertPretrainer
from bert_tf.pretraining.task import PretrainingTask
from bert_tf.text.vocab import Vocab

TOY = ModelConfig(
    vocab_size=40,
    hidden_size=16,
    num_hidden_layers=1,
    num_attention_heads=2,
    intermediate_size=32,
    max_position_embeddings=16,
    hidden_dropout_prob=0.0,
    attention_probs_dropout_prob=0.0,
)
T, P = 12, 3


def toy_batch(step: int, batch_size: int) -> dict[str, np.ndarray]:
    """Returns the global batch of a step; the rows have different numbers of predictions."""
    random = np.random.default_rng(step)
    lengths = random.integers(6, T + 1, [batch_size])
    mask = (np.arange(T) < lengths[:, None]).astype(np.int32)
    ids = random.integers(5, TOY.vocab_size, [batch_size, T]).astype(np.int32) * mask
    counts = random.integers(1, P + 1, [batch_size])
    weights = (np.arange(P) < counts[:, None]).astype(np.float32)
    positions = np.tile(np.arange(1, P + 1, dtype=np.int32), [batch_size, 1])
    return {
        "input_word_ids": ids,
        "input_mask": mask,
        "input_type_ids": (np.arange(T) > 5).astype(np.int32) * mask,
        "masked_lm_positions": positions,
        "masked_lm_ids": np.take_along_axis(ids, positions, axis=1),
        "masked_lm_weights": weights,
        "next_sentence_labels": random.integers(0, 2, [batch_size]).astype(np.int32),
        "next_sentence_weights": np.ones([batch_size], np.float32),
    }


class ToyTask(PretrainingTask):
    """`PretrainingTask` whose batches come from `toy_batch`."""

    def __init__(
        self,
        config: ModelConfig = TOY,
        nan_from_step: int | None = None,
        weights_at: Mapping[int, float] = types.MappingProxyType({}),
    ) -> None:
        vocab = Vocab(("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *map(str, range(35))))
        super().__init__(BertPretrainer(config), None, None, vocab, DataConfig(), MaskingConfig())
        self.nan_from_step = nan_from_step
        self.weights_at = weights_at  # Factors of the weights of some steps' predictions.

    def train_dataset(self, batch_size, start_step, shard):
        rows = shard.rows(batch_size)

        def batch(step):
            values = toy_batch(int(step), batch_size)
            if self.nan_from_step is not None and step >= self.nan_from_step:
                values["masked_lm_weights"] = values["masked_lm_weights"] * np.float32("nan")
            values["masked_lm_weights"] *= np.float32(self.weights_at.get(int(step), 1.0))
            return [v[rows] for v in values.values()]

        example = toy_batch(0, len(rows))

        def load(step):
            dtypes = [value.dtype for value in example.values()]
            values = tf.numpy_function(batch, [step], dtypes, stateful=False)
            return {
                name: tf.ensure_shape(value, example[name].shape)
                for name, value in zip(example, values, strict=True)
            }

        return map_in_order(tf.data.Dataset.range(start_step, 10**6), load)

    def eval_dataset(self, batch_size, max_steps, shard):
        data = self.train_dataset(batch_size, 10**5, shard)
        return data.take(max_steps)
