"""Finds out what a place is, a corpus, prepared data or a run, and has it looked at."""

import dataclasses
import glob
import pathlib

from bert_tf.config import DataConfig, MaskingConfig, ModelConfig
from bert_tf.data.corpus_format import is_tfrecord
from bert_tf.diagnosis.corpus import count_corpus, list_readable
from bert_tf.diagnosis.corpus_findings import diagnose_corpus
from bert_tf.diagnosis.examples_findings import diagnose_examples
from bert_tf.diagnosis.findings import Diagnosis
from bert_tf.diagnosis.fine_tuning_run import diagnose_fine_tuning
from bert_tf.diagnosis.pretraining_run import diagnose_pretraining
from bert_tf.diagnosis.record_scan import scan_records
from bert_tf.diagnosis.run_files import is_run, read_run
from bert_tf.run_record import recorded
from bert_tf.text.vocab import Vocab
from bert_tf.text.wordpiece import WordPiece


def diagnose(
    paths: str,
    data: DataConfig,
    masking: MaskingConfig,
    do_lower_case: bool,
    is_measured: bool = False,
) -> list[Diagnosis]:
    """Looks at each of some places.

    Args:
      paths: comma-separated files, globs, folders or dataset names.
      data: `vocab_file`, and how text is read.
      masking: how examples are, or will be, masked.
      do_lower_case: casing of the vocabulary.
      is_measured: whether the input of prepared data is timed, and with a run among the places
        the steps of its model on them.

    Raises:
      ValueError: if a place is not there, or is none of what can be looked at.
    """
    vocab = Vocab.read(data.vocab_file) if data.vocab_file else None
    tokenizer = WordPiece(vocab, do_lower_case) if vocab else None
    diagnoses: list[Diagnosis] = []
    names = [name.strip() for name in paths.split(",") if name.strip()]
    runs = [pathlib.Path(name) for name in names if is_run(pathlib.Path(name))]
    for name in names:
        if pathlib.Path(name) in runs:
            seeds = sorted(filter(is_run, pathlib.Path(name).glob("seed-*")))
            diagnoses += map(diagnose_run, [pathlib.Path(name), *seeds])
            continue
        folders = record_folders(name)
        for place, files in folders.items():
            found = diagnose_examples(place, scan_records(files), vocab, masking)
            if is_measured:
                found = _measured(found, files, vocab, masking, runs)
            diagnoses.append(found)
        if not folders:
            diagnoses.append(_diagnose_text(name, data, tokenizer))
    return diagnoses


def diagnose_run(folder: pathlib.Path) -> Diagnosis:
    """Looks at a run directory."""
    run = read_run(folder)
    return diagnose_pretraining(run) if run.is_pretraining else diagnose_fine_tuning(run)


def _measured(
    diagnosis: Diagnosis,
    files: list[pathlib.Path],
    vocab: Vocab | None,
    masking: MaskingConfig,
    runs: list[pathlib.Path],
) -> Diagnosis:
    """Adds what was timed to what was found."""
    from bert_tf.diagnosis.measure import measure

    run = next((run for run in runs if (run / "bert_config.json").is_file()), None)
    if vocab is None and run:
        vocab = Vocab.read(run / "vocab.txt")
    if vocab is None:
        raise ValueError("--measure needs the --vocab_file of the records.")
    model = ModelConfig.read(run / "bert_config.json") if run else None
    batch_size = int(recorded(str(run), "train_batch_size") or 32) if run else 32
    facts, findings = measure(files, vocab, masking, model, batch_size)
    return dataclasses.replace(
        diagnosis,
        facts={**diagnosis.facts, **facts},
        findings=[*diagnosis.findings, *findings],
    )


def _diagnose_text(name: str, data: DataConfig, tokenizer: WordPiece | None) -> Diagnosis:
    pattern = f"{name}/*" if pathlib.Path(name).is_dir() else name
    parts, problems = list_readable(pattern, data.input_format, data.text_field)
    counts = count_corpus(parts, tokenizer)
    counts.problems += problems
    return diagnose_corpus(name, counts)


def record_folders(name: str) -> dict[str, list[pathlib.Path]]:
    """Returns the TFRecord files of a place; of a folder of folders, those of each.

    Returns:
      Files by the name of the place they are of; {} if there are none.
    """
    path = pathlib.Path(name)
    if not path.is_dir():
        files = [pathlib.Path(match) for match in sorted(glob.glob(name))]  # noqa: PTH207
        return {name: files} if files and all(map(_holds_records, files)) else {}
    own = sorted(filter(_holds_records, path.iterdir()))
    if own:
        return {name: own}
    folders = {str(sub): sorted(filter(_holds_records, sub.iterdir())) for sub in _folders(path)}
    return {place: files for place, files in folders.items() if files}


def _folders(path: pathlib.Path) -> list[pathlib.Path]:
    return sorted(sub for sub in path.iterdir() if sub.is_dir() and not sub.name.startswith("."))


def _holds_records(path: pathlib.Path) -> bool:
    """True for TFRecords, by their first bytes; damaged ones by their name."""
    if not path.is_file() or path.name.startswith(".") or path.suffix == ".json":
        return False
    with path.open("rb") as file:
        return is_tfrecord(file.read(12)) or ".tfrecord" in path.name
