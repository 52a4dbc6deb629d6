"""Serving functions for zero-shot classification: the candidate labels are part of the request."""

from typing import Any

import tensorflow as tf

from bert_tf.tasks.base.serving.model import Batch, Outputs, Serving
from bert_tf.tasks.classification.zero_shot import SLOT, TEMPLATE, check_template, find_classes
from bert_tf.text.packing import text_room
from bert_tf.text.tensor_packing import cut, pack_rows

NO_LOGIT = -1e9  # of "": below all logits, and a number in JSON


class ZeroShotServing(Serving):
    """A `BertClassifier` of natural language inference that chooses among candidate labels.

    Args:
      options: of `Serving`; the labels are the classes, of which one begins with "entail".
      template: the sentence about a candidate, with {} for the candidate.

    Inputs:
      text: string [B].
      candidates: string [B, K]; "" fills up the list of a text with fewer candidates.

    Outputs:
      label: string [B], the likeliest candidate.
      score: float32 [B], its probability.
      probabilities: float32 [B, K], of the candidates, one label per text; 0 for "".
      several_probabilities: float32 [B, K], of each candidate alone; absent if no class of the
        model is the contradiction.

    For ids a row is a pair of text and sentence; `entailment` and `contradiction` are its logits,
    float32 [R].
    """

    kind = "zero_shot"
    lists = ("candidates",)

    def __init__(self, *arguments: Any, template: str = TEMPLATE, **options: Any) -> None:
        super().__init__(*arguments, **{**options, "texts": ("text", "candidates")})
        check_template(template)
        self.classes = find_classes(self.labels)
        self.template = template

    def from_ids(self, batch: Batch) -> Outputs:
        return self.by_name(self.call_model(batch))

    def by_name(self, logits: tf.Tensor) -> Outputs:
        """Returns the logits of entailment and contradiction, from those of pairs [R, C]."""
        outputs = {"entailment": logits[:, self.classes.entailment]}
        if self.classes.contradiction is not None:
            outputs["contradiction"] = logits[:, self.classes.contradiction]
        return outputs

    def from_texts(self, *texts: tf.Tensor) -> Outputs:
        text, candidates = texts
        is_one = candidates != ""  # [B, K]
        indices = tf.where(is_one)  # [R, 2]
        pairs = self.pack_pairs(text, indices[:, 0], tf.gather_nd(candidates, indices))
        logits = self.by_name(self.call_in_parts(pairs, tf.float32))
        shape = tf.shape(candidates, tf.int64)
        entailment = tf.scatter_nd(indices, logits["entailment"], shape)  # [B, K]
        shares = tf.nn.softmax(tf.where(is_one, entailment, NO_LOGIT))
        probabilities = tf.where(is_one, shares, 0.0)
        # A column that is always there, so that a request without candidates has the answer "".
        names = tf.pad(candidates, [[0, 0], [0, 1]])
        padded = tf.pad(probabilities, [[0, 0], [0, 1]])
        best = tf.argmax(padded, axis=1)
        outputs = {
            "label": tf.gather(names, best, batch_dims=1),
            "score": tf.gather(padded, best, batch_dims=1),
            "probabilities": probabilities,
        }
        if "contradiction" in logits:
            alone = tf.sigmoid(logits["entailment"] - logits["contradiction"])  # [R]
            outputs["several_probabilities"] = tf.scatter_nd(indices, alone, shape)
        return outputs

    def pack_pairs(self, text: tf.Tensor, owners: tf.Tensor, candidates: tf.Tensor) -> Batch:
        """Packs texts with the sentences of candidates; only texts are cut.

        Args:
          text: string [B].
          owners: int [R], the text of each pair.
          candidates: string [R].
        """
        before, after = self.template.split(SLOT)
        # Rows share most candidates, and all texts; each is tokenized once.
        unique, positions = tf.unique(candidates)
        hypotheses = self.tokenize(tf.strings.join([before, unique, after]))
        second = tf.gather(hypotheses, positions)  # [R, (tokens)]
        first = tf.gather(self.tokenize(text), owners)  # [R, (tokens)]
        room = text_room(self.max_seq_length, True, self.vocab.num_separators)
        # The sentence has precedence, and the text gets the rest of the row.
        second_length = tf.minimum(second.row_lengths(), room)
        first_length = tf.minimum(first.row_lengths(), room - second_length)
        first = cut(first, first_length, self.long_texts == "tail")
        return pack_rows(self.vocab, first, cut(second, second_length))

    def pack(self, *texts: tf.Tensor) -> Batch:
        text, candidates = texts
        return self.pack_pairs(text, tf.range(tf.size(text)), candidates)

    def sample_ids(self, *texts: tf.Tensor) -> list[tf.Tensor]:
        text, candidates = texts
        return super().sample_ids(text, candidates[:, 0])

    def card(self) -> dict[str, Any]:
        """Adds the template; a request has its own labels, and `classes` are those of pairs."""
        return {
            **super().card(),
            "labels": [],
            "classes": list(self.labels),
            "lists": list(self.lists),
            "template": self.template,
            "long_texts": self.long_texts,
        }
