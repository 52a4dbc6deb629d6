"""Converts any input to TFRecord files, and stores the result of every step for the next run.

    input_file -> vocabulary -> tokens on disk -> examples for training and for evaluation

The results of a step are in a folder of cache_dir whose name contains a hash of everything they
depend on: the input files' names, sizes and times, the parameters, the version of this package. The
next run uses them; a changed parameter makes a new folder; a killed run resumes with the missing
files, as a file gets its name when it is complete.
"""

import dataclasses
import hashlib
import itertools
import pathlib
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from absl import logging

import bert_tf
from bert_tf.config import DataConfig, MaskingConfig
from bert_tf.corpus import manifests
from bert_tf.corpus.builtin_corpus import gather_builtin_corpus
from bert_tf.corpus.corpus import CorpusPart, list_data_parts, read_documents
from bert_tf.corpus.duplicates import kept_documents
from bert_tf.corpus.example_files import rules
from bert_tf.corpus.example_shards import (
    check_documents,
    passes,
    read_done_record,
    write_shards,
)
from bert_tf.corpus.splitmix import uniform
from bert_tf.corpus.tfrecords import list_record_files
from bert_tf.corpus.token_store import TokenStore, tokenize_corpus
from bert_tf.system.files import exclusive
from bert_tf.system.processes import count_workers
from bert_tf.text.bpe_training import train_bpe_vocab
from bert_tf.text.tokenization import AnyVocab, read_vocab
from bert_tf.text.unigram_training import train_unigram_vocab
from bert_tf.text.vocab import SENTENCEPIECE_BPE, UNIGRAM, WORDPIECE, Vocab
from bert_tf.text.vocab_training import count_words_of_parts, train_vocab

TOKENS_PER_SHARD = 1 << 19
MAX_SHARDS = 256  # readers keep all files open
HELD_OUT_STREAM = 0x68656C64  # Makes this draw independent of others with the same seed.


class PreparedData(NamedTuple):
    """Ready input of pre-training."""

    # TFRecord files; eval_files is empty if no data are held out.
    train_files: list[str]
    eval_files: list[str]
    vocab_file: str  # the vocabulary of their ids; "" if TFRecords were given without one
    # 12 hex digits that change when the training examples change: a hash of the content of prepared
    # files, or of the names and sizes of given TFRecords. It does not depend on the folder or the
    # time of the files.
    fingerprint: str


def prepare_pretraining_data(
    data: DataConfig,
    masking: MaskingConfig,
    *,
    vocab_size: int,
    do_lower_case: bool,
    cache_dir: str,
    do_eval: bool = True,
    tokenizer: str = WORDPIECE,
    begun_with: str = "",
) -> PreparedData:
    """Runs all steps from the input to TFRecord files whose results do not exist.

    Args:
      data: input and rules; an empty input_file means the built-in corpus.
      masking: the masking; only static masks are drawn here.
      vocab_size: size of a new vocabulary, and the largest size of a given one.
      do_lower_case: casing of the vocabulary and the tokenizer.
      cache_dir: the folder for all results; not used if the input is TFRecords.
      do_eval: whether an evaluation follows. If not, documents are nevertheless held out, so that
        later evaluations have unseen ones; of TFRecords all are used in training, as in the
        original.
      tokenizer: kind of a new vocabulary.
      begun_with: fingerprint of the examples at the start of the run; "" for a new run.

    Raises:
      ValueError: if the input is missing, empty, of mixed kinds, or too small, or cache_dir cannot
        be written.
    """
    parts = list_data_parts(data, data.input_file) if data.input_file else []
    if _are_records(parts):
        prepared = _use_records(data, parts, do_eval, begun_with)
        files = [*prepared.train_files, *prepared.eval_files]
        manifests.check_records(files, data, data.vocab_file, do_lower_case)
        return prepared
    cache = pathlib.Path(cache_dir)
    # One process prepares; others with the same cache wait and then use its results.
    with exclusive(cache / ".lock", flag="cache_dir"):
        parts = parts or list_data_parts(data, str(_builtin_corpus(cache)))
        data = _with_vocabulary(cache, parts, data, vocab_size, tokenizer, do_lower_case)
        store = _tokens(cache, parts, data, do_lower_case)
        train = kept_documents(store, data.deduplicate, count_workers(data.num_workers))
        held_out = train[:0]
        eval_store = store
        eval_files: list[str] = []
        if not data.eval_file:
            train, held_out = (train[rows] for rows in split_documents(len(train), data))
        elif _are_records(eval_parts := list_data_parts(data, data.eval_file)):
            eval_files = _record_paths(eval_parts)
            manifests.check_records(eval_files, data, data.vocab_file, do_lower_case)
        else:
            eval_store = _tokens(cache, eval_parts, data, do_lower_case)
            held_out = np.arange(eval_store.num_documents)
            try:  # Before the examples for training, which may take hours.
                check_documents(len(held_out), 1, data.use_next_sentence)
            except ValueError as error:
                raise ValueError(f"--eval_file={data.eval_file}: {error}") from None
        train_files, fingerprint = _examples(cache, "train", store, train, data, masking)
        # Too few documents to split: `split_documents` returned all of them twice.
        if not data.eval_file and np.array_equal(train, held_out):
            eval_files = train_files
        elif len(held_out):
            once = dataclasses.replace(data, dupe_factor=1)
            eval_files, _ = _examples(cache, "eval", eval_store, held_out, once, masking)
        return PreparedData(train_files, eval_files, data.vocab_file, fingerprint)


def split_documents(num_documents: int, data: DataConfig) -> tuple[np.ndarray, np.ndarray]:
    """Returns the documents for training and those held out, int64 each, ascending.

    A document is held out if its hash falls below eval_fraction; pairs need two documents on
    each side, so two are held out at least. With too few for that, both sets are all documents.
    """
    documents = np.arange(num_documents)
    if not data.eval_fraction:
        return documents, documents[:0]
    # A random partner comes from another document of the same set.
    fewest = 2 if data.use_next_sentence else 1
    if num_documents < 2 * fewest:
        logging.warning(
            "%d documents are too few to hold some out: the evaluation uses the training data.",
            num_documents,
        )
        return documents, documents
    # Each document has its hash, so documents added at the end do not move the others.
    draws = uniform(data.random_seed, HELD_OUT_STREAM, documents)
    count = max(fewest, int((draws < data.eval_fraction).sum()))
    count = min(count, num_documents - fewest)
    is_held_out = np.zeros(num_documents, bool)
    # Those with the smallest draws: all below eval_fraction, or as many as each side needs.
    is_held_out[draws.argsort(kind="stable")[:count]] = True
    return documents[~is_held_out], documents[is_held_out]


# Steps ----------------------------------------------------------------------------------------


def _builtin_corpus(cache: pathlib.Path) -> pathlib.Path:
    path = cache / f"embedded-{bert_tf.__version__}.txt"
    logging.info(
        "No --input_file: using the built-in corpus, the documentation of Python and of the "
        "installed packages (%s).",
        path,
    )
    if not path.exists():
        gather_builtin_corpus(path)
    return path


def _are_records(parts: Sequence[CorpusPart]) -> bool:
    first = {part.format: part.path for part in reversed(parts)}
    records = first.pop("tfrecord", None)
    if records and first:
        text = next(iter(first.values()))
        raise ValueError(
            f"The input mixes TFRecords ({records}) and text ({text}); give only one of them."
        )
    return records is not None


def _record_paths(parts: Sequence[CorpusPart]) -> list[str]:
    return list(dict.fromkeys(str(part.path) for part in parts))


def _use_records(
    data: DataConfig, parts: Sequence[CorpusPart], do_eval: bool, begun_with: str
) -> PreparedData:
    """Uses given TFRecord files; evaluations without eval_file get the last of several files.

    A resumed run continues with the training files of its start, even if evaluations were switched
    on or off since.
    """
    train_files = _record_paths(parts)
    takes_all = not do_eval
    if begun_with:
        takes_all = manifests.fingerprint_given(train_files) == begun_with
    eval_files: list[str] = []
    if data.eval_file:
        if do_eval:
            eval_files = list(map(str, list_record_files(data.eval_file)))
    elif data.eval_fraction:
        eval_files = train_files[-1:]
        if len(train_files) > 1 and not takes_all:
            train_files = train_files[:-1]
            logging.info("No --eval_file: %s is held out for evaluations.", eval_files[0])
        elif do_eval:
            logging.warning(
                "%s is trained on, and there is no --eval_file: the evaluation uses training data.",
                eval_files[0],
            )
    if not do_eval:
        eval_files = []
    return PreparedData(
        train_files, eval_files, data.vocab_file, manifests.fingerprint_given(train_files)
    )


def _with_vocabulary(
    cache: pathlib.Path,
    parts: Sequence[CorpusPart],
    data: DataConfig,
    vocab_size: int,
    tokenizer: str,
    do_lower_case: bool,
) -> DataConfig:
    """Returns the settings with the path of a vocabulary, which is trained if none is given.

    Raises:
      ValueError: if it has more than `vocab_size` tokens.
    """
    vocab_file = data.vocab_file
    if not vocab_file:
        parameters = {"input": manifests.describe_parts(parts), "size": vocab_size}
        if tokenizer == WORDPIECE:
            parameters["do_lower_case"] = do_lower_case
            name = "vocab.txt"
        else:
            parameters["kind"] = tokenizer
            name = "tokenizer.json"
        path = cache / f"vocabulary-{manifests.key_of(parameters)}" / name
        if not path.exists():
            logging.info("No --vocab_file: training a vocabulary of %d tokens.", vocab_size)
            num_workers = count_workers(data.num_workers)
            vocab = train_vocabulary(parts, vocab_size, tokenizer, do_lower_case, num_workers)
            vocab.write(path)
        vocab_file = str(path)
    num_tokens = len(read_vocab(vocab_file))
    if num_tokens > vocab_size:
        raise ValueError(
            f"{vocab_file} has {num_tokens} tokens, but the model's vocab_size is "
            f"{vocab_size}; pass --vocab_size or another --vocab_file."
        )
    return dataclasses.replace(data, vocab_file=vocab_file)


def train_vocabulary(
    parts: Sequence[CorpusPart],
    vocab_size: int,
    tokenizer: str,
    do_lower_case: bool,
    num_workers: int,
) -> AnyVocab:
    """Trains a vocabulary of any kind, see `ModelConfig.tokenizer`; 0 workers: one per core.

    Raises:
      ValueError: if the corpus is empty, or `vocab_size` too small.
    """
    if tokenizer == SENTENCEPIECE_BPE:
        raise ValueError(
            f"--tokenizer={SENTENCEPIECE_BPE} is read from folders, but not trained; train unigram "
            "or byte_bpe, or give --vocab_file."
        )
    if tokenizer == WORDPIECE:
        words = count_words_of_parts(parts, read_documents, do_lower_case, num_workers)
        logging.info("%d distinct words among %d; learning.", len(words), words.total())
        return Vocab(tuple(train_vocab(words, vocab_size)))
    documents = itertools.chain.from_iterable(map(read_documents, parts))
    sentences = itertools.chain.from_iterable(documents)
    if tokenizer == UNIGRAM:
        return train_unigram_vocab(sentences, vocab_size)
    return train_bpe_vocab(sentences, vocab_size)


def _tokens(
    cache: pathlib.Path,
    parts: Sequence[CorpusPart],
    data: DataConfig,
    do_lower_case: bool,
) -> TokenStore:
    parameters = {
        "input": manifests.describe_parts(parts),
        "vocabulary": manifests.vocabulary_hash(data.vocab_file),
        "do_lower_case": do_lower_case,
    }
    return tokenize_corpus(
        parts,
        cache / f"tokens-{manifests.key_of(parameters)}",
        vocab_file=data.vocab_file,
        do_lower_case=do_lower_case,
        num_workers=count_workers(data.num_workers),
    )


def _examples(
    cache: pathlib.Path,
    name: str,
    store: TokenStore,
    documents: np.ndarray,
    data: DataConfig,
    masking: MaskingConfig,
) -> tuple[list[str], str]:
    """Makes one set of examples in a folder of the cache; returns its files and fingerprint."""
    check_documents(len(documents), 1, data.use_next_sentence)
    parameters = {
        **rules(data, masking),
        "passes": passes(data, masking),
        "tokens": store.paths[0].parent.name,
        # Deduplication and eval_fraction decide which documents these are.
        "documents": hashlib.sha256(np.asarray(documents, "<i8").tobytes()).hexdigest(),
    }
    key = manifests.key_of(parameters)
    folder = cache / f"{name}-{key}"
    # The tokens of these documents, if they have the average length.
    share = store.num_tokens * len(documents) / store.num_documents
    count = min(MAX_SHARDS, len(documents), 1 + int(share / TOKENS_PER_SHARD))
    paths = [folder / f"{name}-{i:05d}-of-{count:05d}.tfrecord" for i in range(count)]
    markers = folder / "receipts"
    # The manifest alone is not enough: its files may have been deleted since.
    manifest = manifests.read_manifest(folder / manifests.MANIFEST, key)
    if not manifest or any(
        read_done_record(markers, number, path) is None for number, path in enumerate(paths)
    ):
        files = write_shards(store, documents, paths, markers, data, masking)
        manifest = manifests.write_manifest(
            folder / manifests.MANIFEST, key, parameters, store, files
        )
    return list(map(str, paths)), manifests.fingerprint_made(manifest)
