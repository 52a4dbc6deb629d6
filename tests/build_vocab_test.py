"""The program build_vocab, run as a user runs it."""

import pathlib
import random
import re

from bert_tf.text.tokenization import read_vocab
from bert_tf.text.vocab import Vocab
from bert_tf.text.wordpiece import WordPiece
from tests.programs import fail, finish, run


def write_corpus(path: pathlib.Path) -> list[str]:
    rng = random.Random(0)
    words = ["The", "cats", "walked", "Walking", "dogs", "talked", "talking", "café", "über", "."]
    lines = [" ".join(rng.choices(words, k=12)) for _ in range(300)]
    path.write_text("\n".join(lines[:150]) + "\n\n" + "\n".join(lines[150:]) + "\n", "utf8")
    return lines


def test_writes_exactly_the_rows_asked_for(tmp_path) -> None:
    lines = write_corpus(tmp_path / "corpus.txt")
    written = []
    for workers in (1, 2):
        target = tmp_path / f"vocab{workers}.txt"
        files = {"input_file": tmp_path / "corpus.txt", "vocab_file": target}
        finish(run("build_vocab", "--nodo_lower_case", **files, vocab_size=80, num_workers=workers))
        written.append(target.read_bytes())
    assert written[0] == written[1]
    vocab = Vocab.read(target)
    assert len(vocab) == 80
    assert {"Walking", "walked", "café"} <= set(vocab.tokens)
    tokenizer = WordPiece(vocab, False)
    assert not any(vocab.unk_id in tokenizer.encode(line) for line in lines)


def test_bad_input_is_one_clear_line(tmp_path) -> None:
    write_corpus(tmp_path / "corpus.txt")
    cases = {
        (f"--input_file={tmp_path}/none.txt", f"--vocab_file={tmp_path}/v.txt"): "none.txt",
        (
            f"--input_file={tmp_path}/corpus.txt",
            f"--vocab_file={tmp_path}/v.txt",
            "--vocab_size=20",
        ): "vocab_size 20 ",
        (f"--input_file={tmp_path}/corpus.txt",): "--vocab_file",
        # The corpus does not exist: names are looked at first.
        ("--input_file=none", f"--vocab_file={tmp_path}/v.json"): f"{tmp_path}/v.json .*\\.json",
        (
            "--input_file=none",
            "--tokenizer=byte_bpe",
            f"--vocab_file={tmp_path}/v.txt",
        ): f"{tmp_path}/v.txt .*tokenizer.json",
        **{
            ("--input_file=none", "--tokenizer=byte_bpe", "--vocab_file=v.json", flag): message
            for flag, message in (
                ("--do_lower_case", "--do_lower_case=true .*--tokenizer=byte_bpe"),
                ("--num_workers=2", "--num_workers=2 .*--tokenizer=byte_bpe"),
                # What is so may be said.
                ("--nodo_lower_case", "none"),
            )
        },
    }
    for arguments, message in cases.items():
        assert re.search(message, fail(run("build_vocab", *arguments)))
    assert not (tmp_path / "v.txt").exists()


def test_an_existing_vocabulary_is_not_overwritten(tmp_path) -> None:
    (tmp_path / "v.txt").write_text("mine\n")
    # The corpus does not exist either: the vocabulary is looked at first.
    files = {"input_file": tmp_path / "none.txt", "vocab_file": tmp_path / "v.txt"}
    printed = fail(run("build_vocab", **files))
    assert printed.splitlines()[-1].startswith(f"ERROR: --vocab_file {tmp_path}/v.txt ")
    assert (tmp_path / "v.txt").read_text() == "mine\n"


def test_the_home_folder_is_meant_by_its_sign(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    write_corpus(tmp_path / "corpus.txt")
    files = {"input_file": tmp_path / "corpus.txt", "vocab_file": "~/v.txt"}
    finish(run("build_vocab", **files, vocab_size=80, num_workers=1))
    assert {path.name for path in tmp_path.iterdir()} == {"corpus.txt", "v.txt"}
    assert read_vocab("~/v.txt") == Vocab.read(tmp_path / "v.txt")
    assert "--vocab_file ~/v.txt" in fail(run("build_vocab", **files))
