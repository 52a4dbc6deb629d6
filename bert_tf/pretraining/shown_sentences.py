"""The sentences of --show_masks, in the language of the run."""

import itertools

from absl import logging

from bert_tf.config import DataConfig
from bert_tf.corpus.corpus import list_data_parts, read_documents
from bert_tf.corpus.unspaced_text import word_spans
from bert_tf.text.tokenization import Tokenizer

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
