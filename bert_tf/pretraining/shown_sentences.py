"""The sentences of --show_masks, in the language of the run."""

import itertools
import json
import pathlib
from typing import Any

from absl import logging

from bert_tf.config import DataConfig
from bert_tf.corpus.corpus import list_data_parts, read_documents
from bert_tf.corpus.unspaced_text import word_spans
from bert_tf.pretraining.masked_words.answers import FillMaskAnswers
from bert_tf.system.files import atomic_write
from bert_tf.text.tokenization import Tokenizer
from bert_tf.training.metrics_log import read_metrics

MASK = "[MASK]"
FOREIGN = 1.25  # times as many tokens per word as the run's own text
WORDS = range(5, 16)  # a sentence that is shown; in scripts without spaces, characters
NUM_READ = 2000  # sentences
READABLE = ("lines", "prose", "jsonl")


def shown_sentences(data: DataConfig, tokenizer: Tokenizer) -> list[str]:
    """Returns the sentences of --show_masks, or as many of the run's instead of foreign ones.

    Sentences are foreign if the vocabulary splits their words into `FOREIGN` times as many tokens
    as those of the run's own text: --eval_file, or else --input_file.
    """
    shown = [text.strip() for text in data.show_masks.split("|") if text.strip()]
    own = _own_sentences(data) if shown else []
    if not own:
        return shown
    parts = []
    for text in shown:
        parts += text.split(MASK)
    if tokens_per_word(parts, tokenizer) <= FOREIGN * tokens_per_word(own, tokenizer):
        return shown
    # Evenly from the text that was read, so that not all are from one document.
    own = [*dict.fromkeys(own)]
    chosen = own[:: max(1, len(own) // len(shown))][: len(shown)]
    logging.info(
        "--show_masks is not in the language of the text; sentences of the text are shown instead."
    )
    return list(map(masked, chosen))


def tokens_per_word(texts: list[str], tokenizer: Tokenizer) -> float:
    """Returns the mean number of tokens of a word; in scripts without spaces, of a character."""
    num_words = sum(len(word_spans(text)) for text in texts)
    return sum(len(tokenizer.encode(text)) for text in texts) / max(1, num_words)


def masked(text: str) -> str:
    """Returns the text with [MASK] for its longest word without punctuation, the last of them."""
    words = [(start, end) for start, end in word_spans(text) if text[start:end].isalpha()]
    start, end = max(words, key=lambda span: (span[1] - span[0], span[0]))
    return text[:start] + MASK + text[end:]


def _own_sentences(data: DataConfig) -> list[str]:
    """Returns short sentences of the run's text; none of TFRecords and datasets."""
    source = data.eval_file or data.input_file
    if not source:
        return []
    parts = list_data_parts(data, source)
    documents = itertools.chain.from_iterable(
        read_documents(part) for part in parts if part.format in READABLE
    )
    sentences = itertools.islice(itertools.chain.from_iterable(documents), NUM_READ)
    own = []
    for text in sentences:
        spans = word_spans(text)
        if len(spans) in WORDS and any(text[start:end].isalpha() for start, end in spans):
            own.append(text)
    return own


FILE = "filled_masks.jsonl"
SHOWN = 3  # Tokens for each mask.


class MaskSamples:
    """Fills in sentences with [MASK] and keeps the answers in the run directory, a line a step.

    A sentence that has no mask, or loses one because it is too long, is an error.
    """

    def __init__(self, folder: pathlib.Path, model: FillMaskAnswers, texts: list[str]) -> None:
        self.path = folder / FILE
        self.model = model
        self.texts = texts
        # A sentence without a mask fails here, and not at the first evaluation.
        self._fill()

    def _fill(self) -> list[str]:
        filled = []
        for masks in self.model.fill_mask(self.texts, SHOWN):
            shown = []
            for answers in masks:
                shown.append(", ".join(answer["piece"] for answer in answers))
            filled.append(" / ".join(shown))
        return filled

    def note(self, step: int) -> None:
        """Adds the answers of a step, and drops those of later steps, which a stopped run wrote."""
        lines: list[dict[str, Any]] = [
            line for line in read_metrics(self.path) if line["step"] < step
        ]
        lines.append({"step": step, "texts": self.texts, "filled": self._fill()})
        with atomic_write(self.path) as file:
            file.writelines(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)

    def report(self) -> list[str]:
        """Returns the first and the last answers for each sentence, as lines of text."""
        lines = [line for line in read_metrics(self.path) if line["texts"] == self.texts]
        if not lines:
            return []
        first = lines[0]
        last = lines[-1]
        shown = []
        for text, before, after in zip(self.texts, first["filled"], last["filled"], strict=True):
            shown.append(text)
            if first is not last:
                shown.append(f"    step {first['step']}: {before}")
            shown.append(f"    step {last['step']}: {after}")
        return shown
