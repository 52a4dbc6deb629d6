"""The pre-trained model, which fills in masked words and scores next sentences and next tokens."""

from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from bert_tf.pretraining.masked_words.left_to_right import PretrainerAnswers
from bert_tf.pretraining.objectives.pretrainer import PretrainingModel
from bert_tf.text.packing import INPUTS, PackedText, by_length, pad_batch, single_type_ids


@keras.saving.register_keras_serializable(package="bert_tf")
class BertPretrainer(PretrainerAnswers, PretrainingModel):
    __doc__ = PretrainingModel.__doc__

    _compute_outputs: Any = None
    _compute_next: Any = None

    def compute_next_logits(
        self, rows: Sequence[Sequence[int]], positions: np.ndarray
    ) -> np.ndarray:
        packed = [PackedText(list(row), [0] * len(row)) for row in rows]
        batch = pad_batch(packed, self.config.pad_token_id)
        if self._compute_next is None:
            self._compute_next = self._compile_call(("key_ranks", "query_ranks"))
        shape = batch["input_mask"].shape
        order = np.broadcast_to(np.arange(shape[1], dtype=np.int32), shape)  # [B, T]
        inputs = {name: batch[name] for name in INPUTS}
        inputs["masked_lm_positions"] = np.asarray(positions, np.int32)
        # A position attends to keys of a lower rank: with these, to itself and those before it.
        inputs["key_ranks"] = order
        inputs["query_ranks"] = order + 1
        return self._compute_next(inputs)["masked_lm_logits"].numpy().astype(np.float32)

    def _compile_call(self, names: tuple[str, ...] = ()) -> Any:
        """Returns a graph for batches of any shape; `names` are further inputs of int32 [B, T]."""
        specs = {}
        for name in (*INPUTS, "masked_lm_positions", *names):
            specs[name] = tf.TensorSpec([None, None], tf.int32)
        call = tf.autograph.experimental.do_not_convert(lambda batch: self(batch, training=False))
        return tf.function(call, input_signature=[specs])

    def compute_mask_logits(
        self, rows: Sequence[Sequence[int]], positions: Sequence[Sequence[int]], batch_size: int
    ) -> list[np.ndarray]:
        def compute(chosen: list[int]) -> list[np.ndarray]:
            packed = []
            for row in chosen:
                type_ids = [0] * len(rows[row])
                if self.preprocessor is not None:
                    type_ids = single_type_ids(self.preprocessor.vocab, len(rows[row]))
                packed.append(PackedText(list(rows[row]), type_ids))
            # Rows with fewer masks repeat position 0, and these logits are dropped below.
            longest = max(len(positions[row]) for row in chosen)
            padded = np.zeros([len(chosen), longest], np.int32)  # [B, P]
            for index, row in enumerate(chosen):
                padded[index, : len(positions[row])] = positions[row]
            logits = self._outputs(packed, padded)["masked_lm_logits"]  # [B, P, V]
            return [logits[index, : len(positions[row])] for index, row in enumerate(chosen)]

        return by_length(list(map(len, rows)), batch_size, compute)

    def compute_next_sentence_logits(
        self, rows: Sequence[PackedText], batch_size: int
    ) -> np.ndarray:
        if not self.use_next_sentence:
            raise ValueError(
                "The model has no next-sentence head: score needs a checkpoint that has one, read "
                "with use_next_sentence=True."
            )

        def compute(chosen: list[int]) -> np.ndarray:
            # The model needs positions of masked words: the first position of each row is passed.
            positions = np.zeros([len(chosen), 1], np.int32)
            return self._outputs([rows[row] for row in chosen], positions)["next_sentence_logits"]

        return np.stack(by_length([len(row.ids) for row in rows], batch_size, compute))

    def _outputs(self, rows: Sequence[PackedText], positions: np.ndarray) -> dict[str, np.ndarray]:
        """Returns the model's outputs for rows; its MLM head is computed at positions [B, P]."""
        if self._compute_outputs is None:
            self._compute_outputs = self._compile_call()
        batch = pad_batch(list(rows), self.config.pad_token_id)
        inputs = {name: batch[name] for name in INPUTS}
        inputs["masked_lm_positions"] = positions
        outputs = self._compute_outputs(inputs)
        return {name: value.numpy().astype(np.float32) for name, value in outputs.items()}
