"""Decodes the outputs of a tagger into tags of words and entities, without TensorFlow.

outputs of rows [T, C] --gather_words--> scores of the words of each sentence [W, C]
    --best_tags--> label and probability of each word --join_words--> entities
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from bert_tf.config.fine_tuning_defaults import BATCH_SIZE
from bert_tf.metrics.classification import softmax
from bert_tf.metrics.entities import join_words
from bert_tf.system.type_names import Texts
from bert_tf.tasks.base.examples.columns import CheckedTexts, is_empty, read_column, read_texts
from bert_tf.tasks.tagging.features import TagRow, make_examples
from bert_tf.tasks.tagging.sentences import TaggedSentence, read_words
from bert_tf.text.text_counts import counts_texts
from bert_tf.text.tokenization import Tokenizer
from bert_tf.text.words import word_offsets

Word = dict[str, Any]  # word, label, score; for a raw text also start and end


class TaggerAnswers:
    """`tag` and `find_entities`, for anything that computes the scores of tokenized rows.

    A subclass defines `predict_rows`, or the methods that call it: `tag_texts`, `tag_words`.
    """

    tokenizer: Tokenizer
    max_seq_length: int
    known_labels: tuple[str, ...]  # names of the C tags
    # From rows and a batch size to the logits or log-probabilities of each row, float32 [T, C].
    predict_rows: Any

    @counts_texts
    def tag(self, texts: Texts, batch_size: int = BATCH_SIZE) -> list[list[Word]]:
        """Tags words.

        Args:
          texts: raw texts of any length, which the tokenizer splits into words at white space and
            punctuation; or lists of words, which are used unchanged.
          batch_size: rows per batch.

        Returns:
          For each text its words: {"word": "Ada", "label": "B-PER", "score": 0.99}, the score being
            the label's probability, and, for raw texts, their "start" and "end" in characters.

        Raises:
          ValueError: if a value is not a text or a list of words.
        """
        if is_empty(texts):
            return []
        column = texts if isinstance(texts, CheckedTexts) else read_column(texts, "texts")
        # The first value decides; the functions that read the column check the others.
        if isinstance(column[0], str):
            return self.tag_texts(read_texts(column), batch_size)
        return self.tag_words(read_words(column), batch_size)

    def tag_texts(self, texts: list[str], batch_size: int) -> list[list[Word]]:
        """Returns the words of raw texts in the format of `tag`."""
        offsets = [word_offsets(text, self.tokenizer) for text in texts]
        sentences = []
        for text, spans in zip(texts, offsets, strict=True):
            sentences.append([text[start:end] for start, end in spans])
        answers = self.tag_words(sentences, batch_size)
        for answer, spans in zip(answers, offsets, strict=True):
            for tagged_word, (start, end) in zip(answer, spans, strict=True):
                tagged_word["start"] = start
                tagged_word["end"] = end
        return answers

    def tag_words(self, sentences: list[list[str]], batch_size: int) -> list[list[Word]]:
        """Returns the words of sentences in the format of `tag`."""
        answers = []
        for words, scores in zip(sentences, self._word_scores(sentences, batch_size), strict=True):
            tags = best_tags(scores, self.known_labels)
            answer = []
            for word, (label, score) in zip(words, tags, strict=True):
                answer.append({"word": word, "label": label, "score": score})
            answers.append(answer)
        return answers

    @counts_texts
    def find_entities(
        self, texts: Texts, batch_size: int = BATCH_SIZE
    ) -> list[list[dict[str, Any]]]:
        """Finds named or other tagged entities in raw texts: the words of `tag`, joined by labels.

        Labels of BIO, IOB1, BIOES and BILOU mark entities of several words. With other labels, each
        word with a label other than O is an entity.

        Returns:
          For each text its entities in order: {"type": "PER", "text": "Ada Lovelace", "start": 0,
            "end": 12, "score": 0.99}: text[start:end] is the entity, and the score is the lowest of
            its words'.

        Raises:
          ValueError: if a value is not a text.
        """
        # Lists of words have no text in which an entity could be located.
        texts = [] if is_empty(texts) else read_texts(texts)
        tagged = zip(texts, self.tag(texts, batch_size), strict=True)
        return [join_words(self.known_labels, text, words) for text, words in tagged]

    def _word_scores(
        self, sentences: Sequence[Sequence[str]], batch_size: int
    ) -> Sequence[np.ndarray]:
        """Returns the scores of the words of each sentence, float32 [W, C]."""
        tagged = [
            TaggedSentence(tuple(words), None, f"texts[{index}]")
            for index, words in enumerate(sentences)
        ]
        examples = make_examples(
            tagged, self.known_labels, self.tokenizer, self.max_seq_length, is_labelled=False
        )
        if not len(examples.rows):
            # No sentence has a word, so that there is nothing to compute.
            return [np.zeros([0, len(self.known_labels)], np.float32)] * len(tagged)
        outputs = self.predict_rows(examples.rows, batch_size)
        return gather_words(examples.tag_rows, outputs, tagged)


def best_tags(scores: np.ndarray, labels: Sequence[str]) -> list[tuple[str, float]]:
    """Returns the label of each word and its probability."""
    if not len(scores):
        return []
    best = scores.argmax(axis=-1)
    # Log-probabilities may be given as well: their softmax is the probabilities.
    probabilities = softmax(scores).max(axis=-1)
    return [
        (labels[index], float(probability))
        for index, probability in zip(best, probabilities, strict=True)
    ]


def gather_words(
    rows: Sequence[TagRow], outputs: Sequence[np.ndarray], sentences: Sequence[TaggedSentence]
) -> list[np.ndarray]:
    """Collects the outputs of tokens at the first tokens of words from all windows.

    Returns:
      For each sentence an array [W, ...], with the type of the outputs.
    """
    # The first row has the type and the shape of all: ids [T] as well as scores [T, C].
    first = np.asarray(outputs[0]) if rows else np.zeros([0], np.int64)
    gathered = []
    for sentence in sentences:
        gathered.append(np.zeros((len(sentence.words), *first.shape[1:]), first.dtype))
    for row, values in zip(rows, outputs, strict=True):
        gathered[row.sentence][row.words] = values[row.positions]  # [W of this window, ...]
    return gathered


def words_of_outputs(text: str, outputs: Mapping[str, Any]) -> list[Word]:
    """Converts the outputs of an exported tagger for one text to the format of `tag`.

    Args:
      outputs: `tags`, `scores`, `starts` and `ends` of its words, [W]; after the last word the
        tags are "".
    """
    words = []
    columns = [outputs[name] for name in ("tags", "scores", "starts", "ends")]
    for tag, score, start, end in zip(*columns, strict=True):
        if not tag:
            # Padding: another text of the batch has more words.
            break
        words.append(
            {
                "word": text[start:end],
                "label": as_text(tag),
                "score": float(score),
                "start": int(start),
                "end": int(end),
            }
        )
    return words


def entities_of_outputs(
    labels: Sequence[str], outputs: Mapping[str, Any], texts: Sequence[str]
) -> list[list[dict[str, Any]]]:
    """Converts the outputs of an exported tagger to the format of `find_entities`.

    Args:
      outputs: outputs of all texts, [B, W].
    """
    entities = []
    for index, text in enumerate(texts):
        outputs_of_text = {name: values[index] for name, values in outputs.items()}  # [W]
        words = words_of_outputs(text, outputs_of_text)
        entities.append(join_words(labels, text, words))
    return entities


def as_text(value: object) -> str:
    """Converts a string output to str; TensorFlow returns strings as bytes."""
    if isinstance(value, bytes):
        return value.decode("utf8")
    return str(value)
