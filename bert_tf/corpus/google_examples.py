"""Makes exactly the examples of google-research/bert's program.

One generator makes all draws in the original's order: the order of the documents; for each pass and
document the pairs, and for each pair its truncation and masks; the order of the examples. It is
therefore one process with all examples in memory. Use it to repeat an earlier experiment;
`example_shards.py` draws from the same distributions at any scale.

Reference: google-research/bert's create_pretraining_data.py; Devlin et al. 2019, section 3.1.
"""

import dataclasses
import pathlib
import random
from collections.abc import Iterable, Sequence
from typing import IO

import numpy as np

from bert_tf.config import DataConfig, MaskingConfig
from bert_tf.corpus.corpus import SAMPLE_BYTES
from bert_tf.corpus.corpus_format import detect_format, open_decompressed
from bert_tf.corpus.text_lines import numbered_lines
from bert_tf.corpus.tfrecords import list_record_files
from bert_tf.system.files import not_utf8
from bert_tf.text.packing import add_special_tokens, num_special_tokens
from bert_tf.text.tokenization import AnyVocab, Tokenizer


@dataclasses.dataclass(frozen=True)
class GoogleExample:
    """One masked example, lists of Python ints without padding."""

    ids: list[int]  # token ids after masking, including special tokens
    type_ids: list[int]  # 0 for the first segment, 1 for the second
    # The labels, by ascending position.
    masked_lm_positions: list[int]
    masked_lm_ids: list[int]
    is_random_next: bool  # whether the second segment is from a random document


def read_google_documents(
    input_file: str, tokenizer: Tokenizer, input_format: str = "auto"
) -> list[list[list[int]]]:
    """Reads one sentence per line, with blank lines between documents, like the original.

    Args:
      input_file: comma-separated files and globs, also compressed by gzip, xz or bzip2. The
        matches of a glob are sorted; the original takes them in the order of the folder
        (tf.gfile.Glob), which differs between machines.
      input_format: "lines" reads each file without a check; "auto" refuses files of other formats.

    Raises:
      ValueError: if no file matches, one is JSONL, TFRecords or damaged, a line is not UTF-8, or
        there is no text.
    """
    documents: list[list[list[int]]] = [[]]
    for path in list_record_files(input_file):
        with open_decompressed(str(path)) as file:  # Binary mode: only "\n" ends a line.
            if input_format == "auto":
                _check_format(path, file)
            _read_lines(path, file, tokenizer, documents)
    documents = list(filter(None, documents))
    if not documents:
        raise ValueError(f"No text found in {input_file!r}; expected one sentence per line.")
    return documents


def _check_format(path: pathlib.Path, file: IO[bytes]) -> None:
    """Refuses a file that the original would silently misread."""
    sample = file.read(SAMPLE_BYTES)
    file.seek(0)
    form = detect_format(str(path), sample, len(sample) == SAMPLE_BYTES)
    if form in ("jsonl", "tfrecord"):
        raise ValueError(
            f"{path} looks like {form}, but google-research/bert's program reads one sentence per "
            f"line. Give other input, leave out --google_identical, or force it with "
            f"--input_format=lines."
        )


def _read_lines(
    path: pathlib.Path, file: IO[bytes], tokenizer: Tokenizer, documents: list[list[list[int]]]
) -> None:
    """Adds a file to the documents; a document may continue in the next file."""
    space = tokenizer.vocab.sentence_separator
    for number, line in numbered_lines(file, str(path)):
        try:
            text = line.decode("utf-8-sig").strip()
        except UnicodeDecodeError as error:
            raise not_utf8(f"{path}, line {number}", path, error) from None
        if not text:
            documents.append([])
        elif ids := tokenizer.encode(space + text if documents[-1] else text):
            documents[-1].append(ids)


def make_google_examples(
    documents: Iterable[list[list[int]]],
    data: DataConfig,
    masking: MaskingConfig,
    vocab: AnyVocab,
) -> list[GoogleExample]:
    """Makes all examples of a corpus, the documents of `read_google_documents`."""
    documents = list(documents)
    generator = random.Random(data.random_seed)
    generator.shuffle(documents)
    examples = []
    for _ in range(data.dupe_factor):
        for index in range(len(documents)):
            # A generator: the masks of a pair are drawn before the next pair, as in the original.
            pairs = _draw_pairs(documents, index, data, generator, vocab.num_separators)
            for ids_a, ids_b, is_random_next in pairs:
                ids, type_ids = add_special_tokens(vocab, ids_a, ids_b)
                masked = _draw_masks(ids, masking, vocab, generator)
                examples.append(GoogleExample(masked[0], type_ids, *masked[1:], is_random_next))
    generator.shuffle(examples)
    return examples


def _draw_pairs(
    documents: Sequence[list[list[int]]],
    index: int,
    data: DataConfig,
    generator: random.Random,
    num_separators: int,
) -> Iterable[tuple[list[int], list[int], bool]]:
    """Yields the pairs of one document; the caller draws the masks of a pair before the next."""
    document = documents[index]
    max_length = target = data.max_seq_length - num_special_tokens(True, num_separators)
    if generator.random() < data.short_seq_prob:
        # Short sequences reduce the mismatch with fine-tuning, whose texts are short.
        target = generator.randint(2, max_length)
    first = 0
    while first < len(document):
        # Gather the sentences first..last-1.
        last = first
        length = 0
        while last < len(document) and (last == first or length < target):
            length += len(document[last])
            last += 1
        num_sentences = last - first
        # Segment a is first..middle-1: at least one sentence, and not the last of several.
        middle = first + (generator.randint(1, num_sentences - 1) if num_sentences >= 2 else 1)
        ids_a = sum(document[first:middle], [])
        is_random_next = num_sentences == 1 or generator.random() < 0.5
        if is_random_next:
            ids_b = _draw_partner(documents, index, target - len(ids_a), generator)
            # b is from elsewhere: the sentences after a begin the next pair.
            first = middle
        else:
            ids_b = sum(document[middle:last], [])
            first = last
        _truncate(ids_a, ids_b, max_length, generator)
        yield ids_a, ids_b, is_random_next


def _draw_partner(
    documents: Sequence[list[list[int]]], index: int, target: int, generator: random.Random
) -> list[int]:
    """Draws sentences of a random document, which after ten draws may be the same one."""
    for _ in range(10):
        other = generator.randint(0, len(documents) - 1)
        if other != index:
            break
    document = documents[other]
    ids: list[int] = []
    for sentence in document[generator.randint(0, len(document) - 1) :]:
        ids.extend(sentence)
        if len(ids) >= target:
            break
    return ids


def _truncate(
    ids_a: list[int], ids_b: list[int], max_length: int, generator: random.Random
) -> None:
    """Drops tokens of the longer list, at the front or back, until both fit; changes the lists."""
    while len(ids_a) + len(ids_b) > max_length:
        longer = ids_a if len(ids_a) > len(ids_b) else ids_b
        del longer[0 if generator.random() < 0.5 else -1]


def _draw_masks(
    ids: list[int], config: MaskingConfig, vocab: AnyVocab, generator: random.Random
) -> tuple[list[int], list[int], list[int]]:
    """Returns (masked ids, positions, original ids at the positions)."""
    words: list[list[int]] = []
    specials = vocab.never_masked
    for position, token in enumerate(ids):
        if token in specials:
            continue
        if config.do_whole_word_mask and words and vocab.is_continuation[token]:
            words[-1].append(position)
        else:
            words.append([position])
    generator.shuffle(words)
    # Halves go to even, and the length includes special tokens, both as in the original.
    wanted = max(1, int(round(len(ids) * config.masked_lm_prob)))
    count = min(config.max_predictions_per_seq, wanted)
    masked = list(ids)
    positions: list[int] = []
    for word in words:
        # Skipped, not cut: a shorter word may still fit.
        if len(positions) + len(word) > count:
            continue
        for position in word:
            if generator.random() < 0.8:
                masked[position] = vocab.mask_id
            # Half of the other 20 % are kept, half become a random token.
            elif generator.random() >= 0.5:
                masked[position] = generator.randint(0, len(vocab) - 1)
        positions += word
    positions.sort()
    return masked, positions, [ids[position] for position in positions]


def pad_examples(
    examples: Sequence[GoogleExample],
    max_seq_length: int,
    max_predictions_per_seq: int,
    pad_id: int = 0,
) -> dict[str, np.ndarray]:
    """Returns the features of the files, with one row per example.

    Ids are padded with `pad_id` and other features with 0.
    """
    tokens = (len(examples), max_seq_length)
    predictions = (len(examples), max_predictions_per_seq)
    features: dict[str, np.ndarray] = {
        "input_ids": np.full(tokens, pad_id, np.int64),
        "input_mask": np.zeros(tokens, np.int64),
        "segment_ids": np.zeros(tokens, np.int64),
        "masked_lm_positions": np.zeros(predictions, np.int64),
        "masked_lm_ids": np.zeros(predictions, np.int64),
        "masked_lm_weights": np.zeros(predictions, np.float32),
        "next_sentence_labels": np.zeros((len(examples), 1), np.int64),
    }
    for row, example in enumerate(examples):
        length = len(example.ids)
        count = len(example.masked_lm_ids)
        features["input_ids"][row, :length] = example.ids
        features["input_mask"][row, :length] = 1
        features["segment_ids"][row, :length] = example.type_ids
        features["masked_lm_positions"][row, :count] = example.masked_lm_positions
        features["masked_lm_ids"][row, :count] = example.masked_lm_ids
        features["masked_lm_weights"][row, :count] = 1
        features["next_sentence_labels"][row] = example.is_random_next
    return features
