"""Answers about whole texts: classes, numbers, next sentences, embeddings, encoder outputs."""

from typing import Any

import tensorflow as tf

from bert_tf.served.model import Batch, Outputs, Served
from bert_tf.served.text_pieces import check_utf8


class ServedClassifier(Served):
    """A `BertClassifier` of classes.

    Args:
      arguments: of `Served`.
      labels: names of the classes, C of them.

    Outputs:
      label: string [B], the likeliest class.
      score: float32 [B], its probability.
      probabilities: float32 [B, C], in the order of the labels.
    """

    kind = "classifier"

    def from_ids(self, batch: Batch) -> Outputs:
        logits = self.call_model(batch)  # [B, C]
        probabilities = tf.nn.softmax(logits)
        return {
            "label": tf.gather(tf.constant(self.labels), tf.argmax(logits, axis=-1)),
            "score": tf.reduce_max(probabilities, axis=-1),
            "probabilities": probabilities,
        }


class ServedLabels(ServedClassifier):
    """A `BertClassifier` of several labels a text.

    Outputs:
      labels: string [B, C], those with a probability above a half, the likeliest first, then "".
      probabilities: float32 [B, C], in the order of the labels.
    """

    kind = "multi_label"

    def from_ids(self, batch: Batch) -> Outputs:
        probabilities = tf.sigmoid(self.call_model(batch))  # [B, C]
        order = tf.argsort(-probabilities, axis=-1, stable=True)
        is_one = tf.gather(probabilities, order, batch_dims=1) > 0.5
        names = tf.gather(tf.constant(self.labels), order)
        return {"labels": tf.where(is_one, names, ""), "probabilities": probabilities}


class ServedNumber(Served):
    """A `BertClassifier` of a number.

    Outputs:
      value: float32 [B].
    """

    kind = "regression"

    def from_ids(self, batch: Batch) -> Outputs:
        return {"value": self.call_model(batch)[:, 0]}


class ServedNextSentence(Served):
    """The next-sentence head of a `BertPretrainer`.

    Outputs:
      is_next: float32 [B], the probability that the second text follows the first.
    """

    kind = "next_sentence"

    def from_ids(self, batch: Batch) -> Outputs:
        # No masked word is asked for; the first place of each row stands for them.
        nowhere = tf.zeros([tf.shape(batch["input_mask"])[0], 1], tf.int32)
        outputs = self.call_model({**batch, "masked_lm_positions": nowhere})
        return {"is_next": tf.nn.softmax(outputs["next_sentence_logits"])[:, 0]}  # 0: it is next


class ServedEmbedder(Served):
    """A `BertEmbedder`: a vector a text.

    Args:
      arguments: of `Served`.
      prompt: stands before each text; of ids it is part of them.
      prompt_pieces: how many first pieces do not count in the pooling.
      lower: whether texts are lower-cased before they are tokenized.

    Outputs:
      embedding: float32 [B, D].
    """

    kind = "embeddings"

    def __init__(
        self,
        *arguments: Any,
        prompt: str = "",
        prompt_pieces: int = 0,
        lower: bool = False,
        **options: Any,
    ) -> None:
        super().__init__(*arguments, **options)
        self.prompt, self.prompt_pieces, self.lower = prompt, prompt_pieces, lower

    def card(self) -> dict[str, Any]:
        """Also says what is done to texts first, for programs that tokenize outside the graph."""
        return {**super().card(), "prompt": self.prompt, "lower_case_texts": self.lower}

    def from_ids(self, batch: Batch) -> Outputs:
        if self.prompt_pieces:
            size = tf.shape(batch["input_mask"])[0]
            batch = {**batch, "prompt_pieces": tf.fill([size], self.prompt_pieces)}
        return {"embedding": self.call_model(batch)}

    def pack(self, *texts: tf.Tensor) -> Batch:
        text = check_utf8(*texts)  # Lower-casing would replace what is not UTF-8.
        text = self.prompt + text if self.prompt else text
        return super().pack(tf.strings.lower(text, "utf-8") if self.lower else text)


class ServedEncoder(Served):
    """The encoder alone.

    Outputs:
      sequence_output: float32 [B, T, D].
      pooled_output: float32 [B, D], if the model has a pooler.
      input_word_ids, input_mask: int32 [B, T], the pieces that the vectors are of.
    """

    kind = "encoder"

    def from_ids(self, batch: Batch) -> Outputs:
        encoded = self.call_model(batch)
        kept = [name for name in ("sequence_output", "pooled_output") if name in encoded]
        pieces = {name: batch[name] for name in ("input_word_ids", "input_mask")}
        return {**{name: encoded[name] for name in kept}, **pieces}
