"""Files of words and their tags: CoNLL (see `conll`), JSON and tables (see `tables`)."""

import os
from collections.abc import Callable, Iterable, Sequence

import numpy as np
from absl import logging

from bert_tf.config.fine_tuning_config import TableConfig
from bert_tf.corpus.tfrecords import list_record_files
from bert_tf.system.files import atomic_write
from bert_tf.tasks.base.examples.columns import is_integer_text
from bert_tf.tasks.base.examples.labels import LabelNames, unify_spellings
from bert_tf.tasks.tagging.conll import read_conll, write_conll
from bert_tf.tasks.tagging.schemes import respelled_tags
from bert_tf.tasks.tagging.sentences import TaggedSentence
from bert_tf.tasks.tagging.tables import (
    is_json_text,
    is_tagged_table,
    read_tagged_table,
    with_predictions,
)


def read_tagged(
    path: str | os.PathLike,
    word_column: int = 0,
    tag_column: int | str | None = -1,
    *,
    reading: TableConfig | None = None,
    is_needed: bool = False,
    reads_tags: bool = True,
) -> list[TaggedSentence]:
    """Reads the sentences of one or more files.

    A file is CoNLL-U if it is named *.conllu, or if its first line that is not a comment has ten
    columns with an id and a head. Its words are in the column FORM. Other files are separated by
    tabs if the line of their first word has one, otherwise by spaces; a file with one column has
    words only. For JSON and tables with a header see `tables`.

    Args:
      path: comma-separated files and globs; files may be compressed by gzip, xz or bzip2.
      word_column: column of the words in plain columns, counted from 0, or backwards from -1.
      tag_column: column of the tags, counted the same way; in CoNLL-U also a name, such as upos,
        xpos, deprel or feats, and -1 means UPOS. A column with "_" for every word of a file has no
        tags. In JSON and tables: a name; with a number, the column is found by its usual names.
        None: tags are not read.
      reading: options for reading tables; None: the defaults.
      is_needed: whether a sentence without tags is an error, unless `reading` skips it.
      reads_tags: False: the words are those that are read with the tags of `tag_column`, but
        without the tags; the column may be missing.

    Raises:
      ValueError: if no file matches, a file is damaged, not UTF-8 or without a sentence, the number
        of columns changes, a word or a tag is empty, ids of CoNLL-U are not 1, 2, 3 ..., or the
        column does not exist. The message names file and line.
    """
    sentences: list[TaggedSentence] = []
    for file in _list_files(path):
        if is_tagged_table(file):
            sentences += read_tagged_table(file, tag_column, reading, reads_tags=reads_tags)
        else:
            sentences += read_conll(file, word_column, tag_column if reads_tags else None)
    if is_needed:
        return _with_tags_only(sentences, path, reading)
    return sentences


def _with_tags_only(
    sentences: list[TaggedSentence], path: str | os.PathLike, reading: TableConfig | None
) -> list[TaggedSentence]:
    """Returns the sentences with tags."""
    tagged = [sentence for sentence in sentences if sentence.tags is not None]
    untagged = [sentence for sentence in sentences if sentence.tags is None]
    if untagged and tagged and reading and reading.skip_unlabelled:
        logging.info("%s: %d sentences without tags are left out.", path, len(untagged))
        return tagged
    if untagged:
        raise ValueError(
            f"{untagged[0].source}: the sentence has no tags; {len(untagged):,} of "
            f"{len(sentences):,} sentences have none. Expected a column of tags (CoNLL-U: one that "
            "is not all _), or tags or spans in each JSON object (--tag_column names their key). "
            "--skip_unlabelled leaves sentences without tags out."
        )
    return tagged


def write_tagged(
    path_in: str | os.PathLike,
    path_out: str | os.PathLike,
    tags: Sequence[Sequence[str]],
    word_column: int = 0,
    tag_column: int | str = -1,
    *,
    reading: TableConfig | None = None,
) -> None:
    """Copies files line by line, and adds a tag to each word.

    In plain columns the tag becomes a new last column, so that conlleval reads the result;
    -DOCSTART- lines get "O" there. In CoNLL-U only MISC changes: it gets Predicted=TAG, which
    replaces an earlier one; a "|" within the tag is written "\\p", as in that format's SpacesAfter.
    All other lines are unchanged. For JSON and tables see `tables.with_predictions`. Several files
    are written one after the other, each in its format. The output is uncompressed; after an error
    there is no partial file.

    Args:
      path_out: the output file; it may be the input.
      tags: one tag per word, for each sentence that `read_tagged` returns.

    Raises:
      ValueError: as `read_tagged`; also if the numbers of sentences, words and tags differ, or a
        tag would not be read as one column.
    """
    names = _list_files(path_in)
    if tables := list(filter(is_tagged_table, names)):
        _write_tables(names, tables, path_out, tags, tag_column, reading)
    else:
        write_conll(names, path_out, tags, word_column)


def _write_tables(
    names: Sequence[str],
    tables: Sequence[str],
    path_out: str | os.PathLike,
    tags: Sequence[Sequence[str]],
    tag_column: int | str,
    reading: TableConfig | None,
) -> None:
    formats = set(map(is_json_text, tables))
    if len(formats) > 1 or len(tables) < len(names):
        raise ValueError(
            f"{', '.join(names)}: files of different formats cannot be written into one; tag them "
            "one by one."
        )
    counts: list[int] = []  # words of each sentence
    for name in names:
        for sentence in read_tagged_table(name, tag_column, reading, reads_tags=False):
            counts.append(len(sentence.words))
    if counts != list(map(len, tags)):
        raise ValueError(
            f"{', '.join(names)} has {len(counts)} sentences with {sum(counts)} words, but there "
            f"are tags for {len(tags)} with {sum(map(len, tags))}; expected tags for all."
        )
    # One iterator, so that each file takes its tags where the previous one stopped.
    remaining_tags = iter(tags)
    with atomic_write(path_out) as output:
        for name in names:
            output.writelines(with_predictions(name, remaining_tags, reading, tag_column))


def predictions_name(path: str | os.PathLike) -> str:
    """Returns the file name for the predictions of some input, by the format of the input."""
    tables = list(filter(is_tagged_table, _list_files(path)))
    if not tables:
        return "predictions.txt"
    if is_json_text(tables[0]):
        return "predictions.jsonl"
    return "predictions.csv"


def with_entity_tags(
    sentences: list[TaggedSentence], labels: Sequence[str] = ()
) -> list[TaggedSentence]:
    """Returns the sentences with tags of entities in the spelling B-LOC, see `schemes`."""
    names = {tag for sentence in sentences for tag in sentence.tags or ()}
    spelled = respelled_tags(names, labels)
    return _respelled(sentences, lambda tag: spelled.get(tag, tag))


def with_known_tags(
    sentences: Iterable[TaggedSentence], labels: Sequence[str]
) -> list[TaggedSentence]:
    """Returns the sentences with tags in the spelling of the labels."""
    return _respelled(sentences, LabelNames(labels).name_of)


def _respelled(
    sentences: Iterable[TaggedSentence], spelling: Callable[[str], str]
) -> list[TaggedSentence]:
    respelled = []
    for sentence in sentences:
        if sentence.tags:
            sentence = sentence._replace(tags=tuple(map(spelling, sentence.tags)))
        respelled.append(sentence)
    return respelled


def column_of(text: str) -> int | str:
    """Returns a column as a number if the text is one, otherwise as a name."""
    return int(text) if is_integer_text(text) else text


def tag_names(sentences: Iterable[TaggedSentence]) -> tuple[str, ...]:
    """Returns all tags, sorted, "O" before the others."""
    names: set[str] = set()
    for sentence in sentences:
        names.update(_tags_of(sentence))
    if not names:
        raise ValueError("No sentences; expected at least one with tags.")
    unified = unify_spellings(sorted(names))
    if all(map(is_integer_text, unified)):
        # Ids, as Hugging Face's data sets have them: 10 after 9.
        return tuple(sorted(unified, key=int))
    # "O" first, because False is less than True.
    return tuple(sorted(unified, key=lambda name: (name != "O", name)))


def tag_ids(sentences: Iterable[TaggedSentence], labels: Sequence[str]) -> list[np.ndarray]:
    """Returns the label ids of the tags, int32 [words] for each sentence."""
    known = LabelNames(labels)
    ids_of_sentences = []
    for sentence in sentences:
        ids = []
        for index, tag in enumerate(_tags_of(sentence)):
            label_id = known.find(tag)
            if label_id is None:
                raise ValueError(
                    f"{sentence.source}: word {index + 1} of this sentence, "
                    f"{sentence.words[index]!r}, has the tag {tag!r}; expected one of "
                    f"{', '.join(labels)}. Correct the tag, or add it to the training data."
                )
            ids.append(label_id)
        ids_of_sentences.append(np.array(ids, np.int32))
    return ids_of_sentences


def _tags_of(sentence: TaggedSentence) -> tuple[str, ...]:
    if sentence.tags is None:
        raise ValueError(
            f"{sentence.source}: the sentence has no tags; expected a column of tags (CoNLL-U: one "
            "that is not all _)."
        )
    return sentence.tags


def _list_files(path: str | os.PathLike) -> list[str]:
    files = list(map(str, list_record_files(os.fspath(path))))
    if not files:
        raise ValueError(f"{path!r} names no file; give comma-separated files or globs.")
    return files
