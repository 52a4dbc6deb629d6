"""The Beam pipeline beside the local maker: the same bytes, from a killed run too."""

import dataclasses
import functools
import pathlib
import signal
import subprocess
import sys
import time

import pytest

from bert_tf.config import DataConfig, MaskingConfig
from bert_tf.corpus import beam_examples, duplicates, example_shards, token_store
from bert_tf.corpus.corpus import CorpusPart
from bert_tf.corpus.example_files import ExampleJob, write_examples
from bert_tf.text.vocab import Vocab

needs_beam = pytest.mark.needs("apache_beam")  # In an environment of its own.
LETTERS = "wordx0123456789"
IN_MEMORY = "--runner=FnApiRunner"
NUM_FILES = 4


@pytest.fixture
def corpus(tmp_path):
    """Two files of 35 documents; the last five are there a second time."""
    for file, documents in enumerate((range(10), (*range(10, 30), *range(5)))):
        texts = ["\n".join(f"word{d}x{s} is here ." for s in range(12)) for d in documents]
        (tmp_path / f"text{file}.txt").write_text("\n\n".join(texts))
    pieces = [*"is.", *LETTERS, *(f"##{letter}" for letter in LETTERS)]
    special = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
    Vocab((*special, *pieces)).write(tmp_path / "vocab.txt")
    return DataConfig(
        input_file=f"{tmp_path}/text*.txt",
        vocab_file=str(tmp_path / "vocab.txt"),
        max_seq_length=32,
        num_workers=1,
        dupe_factor=2,
    )


def output_files(folder):
    return [pathlib.Path(folder, f"{number}.tfrecord") for number in range(NUM_FILES)]


def write(corpus, folder, masking="dynamic", beam_options=None):
    """Returns the manifest and the content of the files."""
    paths = output_files(folder)
    by_beam = functools.partial(beam_examples.fill_work_folder, beam_options=beam_options)
    fill = None if beam_options is None else by_beam
    masking = MaskingConfig(masking=masking)
    manifest = write_examples(paths, corpus, masking, do_lower_case=True, fill_work_folder=fill)
    assert list(paths[0].parent.glob(".*")) == []
    return manifest, [path.read_bytes() for path in paths]


def refuse_work(function, tasks, *_):
    assert list(tasks) == [], f"{function} was left to the local maker"
    return iter(())


@needs_beam
@pytest.mark.parametrize(
    ("masking", "use_next_sentence", "deduplicate"),
    [
        ("dynamic", True, "none"),
        ("static", True, "exact"),
        ("static", True, "near"),
        ("static", False, "none"),
    ],
)
def test_examples_are_those_of_the_local_maker(
    corpus, tmp_path, monkeypatch, masking, use_next_sentence, deduplicate
):
    corpus = dataclasses.replace(
        corpus, use_next_sentence=use_next_sentence, deduplicate=deduplicate
    )
    local, expected = write(corpus, tmp_path / "local", masking)
    for module in (token_store, example_shards, duplicates):
        monkeypatch.setattr(module, "map_in_processes", refuse_work)
    monkeypatch.chdir(tmp_path)  # relative paths are for the user, workers get absolute ones
    corpus = dataclasses.replace(corpus, input_file="text*.txt", vocab_file="vocab.txt")
    beam, contents = write(corpus, "beam", masking, IN_MEMORY)
    assert contents == expected and all(contents)
    for entry in ("files", "examples", "tokens", "bytes", "corpus", "duplicates"):
        assert beam[entry] == local[entry]
    assert beam["duplicates"] == (0 if deduplicate == "none" else 5)
    assert beam["run"]["runner"] == "beam" and beam["run"]["examples/s"] > 0


def test_workers_get_absolute_paths(corpus, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    parts = (CorpusPart("text0.txt", "lines"), CorpusPart("tfds:wiki:train", "tfds"))
    data = dataclasses.replace(corpus, vocab_file="vocab.txt")
    out = pathlib.Path("out")
    job = ExampleJob(parts, (out / "x",), out / "work", data, MaskingConfig(), True)
    job = beam_examples.with_absolute_paths(job)
    assert [part.path for part in job.parts] == [f"{tmp_path}/text0.txt", "tfds:wiki:train"]
    assert (job.output_files, job.work) == ((tmp_path / "out/x",), tmp_path / "out/work")
    assert job.data.vocab_file == f"{tmp_path}/vocab.txt"


@needs_beam
def test_a_fault_of_the_input_is_one_clear_line(corpus, tmp_path):
    (tmp_path / "text.jsonl").write_text('{"text": "word ."}\n{"txt": 1}\n')
    corpus = dataclasses.replace(corpus, input_file=f"{tmp_path}/text.jsonl")
    with pytest.raises(ValueError, match=r"^\S+text\.jsonl, line 2 .*'text'.*\.$"):
        write(corpus, tmp_path / "out", beam_options=IN_MEMORY)


def test_the_text_of_a_remote_error_is_found():
    text = "Traceback:\n  File x\nValueError: a b. [while running 'Write']\n\n2 others\n"
    with pytest.raises(ValueError, match=r"^a b\.$"):
        beam_examples.raise_input_fault(RuntimeError(text))
    with pytest.raises(RuntimeError, match=r"^The pipeline was cancelled\.$"):
        beam_examples.raise_input_fault(RuntimeError("The pipeline was cancelled."))


def test_without_beam_the_command_to_install_it_is_named(corpus, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "apache_beam", None)
    with pytest.raises(ValueError, match=r"pip install '\.\[beam\]'"):
        write(corpus, tmp_path / "out", beam_options="")


@needs_beam
def test_killed_and_taken_up_by_either_runner(corpus, tmp_path):
    for file in tmp_path.glob("text*"):
        file.write_text("\n\n".join([file.read_text()] * 60))
    _, expected = write(corpus, tmp_path / "whole", "static")
    command = [sys.executable, "-m", "bert_tf.create_pretraining_data", "--masking=static"]
    command += [f"--input_file={corpus.input_file}", f"--vocab_file={corpus.vocab_file}"]
    command += ["--max_seq_length=32", "--dupe_factor=2", "--runner=beam", "--num_workers=2"]
    killed = ",".join(map(str, output_files(tmp_path / "killed")))
    process = subprocess.Popen([*command, f"--output_file={killed}"])
    deadline = time.monotonic() + 100
    while not (markers := list(tmp_path.glob("killed/.*.work/shard-*.json"))):
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.002)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert len(markers) < NUM_FILES
    assert write(corpus, tmp_path / "killed", "static")[1] == expected
