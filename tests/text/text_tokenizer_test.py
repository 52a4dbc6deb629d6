"""`bert_tf.load_tokenizer`: rows against Hugging Face's, from every folder that has a tokenizer."""

import itertools
import json
import lzma
import subprocess
import sys

import numpy as np
import pytest
import tokenizers

import bert_tf
from bert_tf.checkpoints.run_record import write_run_record
from bert_tf.checkpoints.tokenizer_files import read_tokenizer
from bert_tf.checkpoints.tokenizer_writing import write_tokenizer
from bert_tf.config import ModelConfig
from bert_tf.tasks.base.models.preprocessor import BertPreprocessor
from bert_tf.tasks.classification.answers import text_examples
from bert_tf.tasks.classification.features import make_examples
from bert_tf.text.kinds import vocab_from_config
from bert_tf.text.text_tokenizer import TextTokenizer
from bert_tf.text.tokenization import make_tokenizer, read_vocab
from bert_tf.text.vocab import Vocab
from tests.conftest import tiny_tokens
from tests.shared_data import ROOT, golden_file
from tests.tiny_bpe import tiny_bpe_vocab

NAMES = ("input_word_ids", "input_mask", "input_type_ids")


def test_roberta_rows_are_hugging_faces():
    tokenizer = bert_tf.load_tokenizer(golden_file("vocab", "roberta-base"))
    file = golden_file("families", "roberta", "tokenization-golden.jsonl.xz")
    with lzma.open(file, "rt", encoding="utf8") as lines:
        rows = [json.loads(line) for line in lines]
    pairs = [row for row in rows if "pair" in row]
    assert len(pairs) == 35
    for row in pairs + rows[:20]:
        made = tokenizer(row["text"], row.get("pair"), row.get("max_length"))
        assert made["input_word_ids"].tolist() == row["plain"]["ids"], row["text"]
        assert made["input_mask"].all() and not made["input_type_ids"].any()


def test_pairs_of_byte_bpe_are_cut_as_by_hugging_face(tmp_path):
    vocab = tiny_bpe_vocab()
    vocab.write(tmp_path / "tokenizer.json")
    theirs = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    ours = TextTokenizer(vocab, False)
    for first, second, length in itertools.product(range(1, 9), range(1, 9), range(5, 16)):
        pair = "x" * first, "y" * second
        theirs.enable_truncation(length, strategy="longest_first")
        expected = theirs.encode(*pair)
        row = ours(*pair, max_length=length)
        assert row["input_word_ids"].tolist() == expected.ids, (first, second, length)
        assert row["input_type_ids"].tolist() == expected.type_ids


@pytest.mark.parametrize("kind", ["byte_bpe", "folder", "run", "keras"])
def test_blank_second_texts_are_packed_as_by_hugging_face(tmp_path, kind):
    """All roads: a list of pairs, a classifier's examples, windows, and the graph.

    WordPiece of a folder of Hugging Face's, also once it was stored in a run or a Keras file.
    """
    vocab = tiny_bpe_vocab()
    if kind == "byte_bpe":
        vocab.write(tmp_path / "tokenizer.json")
    else:
        plain = Vocab(tuple(tiny_tokens()))
        write_tokenizer(tmp_path, plain, ModelConfig(vocab_size=len(plain)))
        vocab = read_tokenizer(tmp_path, None).vocab
        assert vocab == plain and vocab.content == plain.content
    if kind == "run":
        vocab.write(tmp_path / "run.txt")
        vocab = Vocab.read(tmp_path / "run.txt")
    elif kind == "keras":
        vocab = vocab_from_config(vocab.to_config())
    theirs = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    pairs = [("the boat", ""), ("", ""), ("", "x"), ("the boat", "x"), ("x " * 30, "x x " * 30)]
    theirs.enable_truncation(16)
    expected = [row.ids for row in theirs.encode_batch(pairs)]
    columns = [list(column) for column in zip(*pairs, strict=True)]
    tokenizer = make_tokenizer(vocab, False)
    labels = np.zeros(len(pairs), np.int32)
    roads = [TextTokenizer(vocab, False)(*columns, max_length=16)]
    for long_texts, number in (("head", 5), ("windows", 4)):
        examples = text_examples(pairs[:number])
        made = make_examples(examples, labels[:number], "single_label", tokenizer, 16, long_texts)
        roads.append(made.rows.batch(np.arange(number), number, 16))
    graph = BertPreprocessor(vocab, False, max_seq_length=16)
    roads.append(graph(*columns))
    for batch in roads:
        for row, mask, ids in zip(*[batch[name] for name in NAMES[:2]], expected, strict=False):
            assert np.array(row)[: np.sum(mask)].tolist() == ids
    # BERT's WordPiece packs them as google-research/bert does.
    plain = TextTokenizer(Vocab(tuple(tiny_tokens())), True)
    assert plain(["the"], [""])["input_word_ids"].shape == plain(["the"])["input_word_ids"].shape


def test_rows_of_several_texts_are_padded():
    vocab = tiny_bpe_vocab()
    tokenizer = TextTokenizer(vocab, False)
    batch = tokenizer(["The boat", "", "a <mask>"], ["river", "x y", "z"])
    single = [
        tokenizer("The boat", "river"),
        tokenizer("", "x y"),
        tokenizer("a <mask>", "z"),
    ]
    longest = max(len(row["input_mask"]) for row in single)
    for name, empty in zip(NAMES, (vocab.pad_id, 0, 0), strict=True):
        assert batch[name].dtype == np.int32 and batch[name].shape == (3, longest)
        for row, expected in zip(batch[name], single, strict=True):
            assert row.tolist() == expected[name].tolist() + [empty] * (
                longest - len(expected[name])
            )
    for text, pair in ((["a"], "b"), ("a", ["b"]), (["a"], ["b", "c"]), ([], None)):
        with pytest.raises(ValueError, match="^text .*(pair|list)"):
            tokenizer(text, pair)


def test_every_folder_with_a_tokenizer_is_read(tmp_path):
    bpe, wordpiece = tiny_bpe_vocab(), Vocab(tuple(tiny_tokens()))
    texts = "The River!", "It's 10 o'clock"
    for vocab, lower in ((bpe, False), (wordpiece, True), (wordpiece, False)):
        expected = TextTokenizer(vocab, lower)(*texts)
        run = tmp_path / f"run_{vocab.file_name}_{lower}"
        config = ModelConfig(vocab_size=len(vocab), do_lower_case=lower)
        run.mkdir()
        write_run_record(str(run), vocab, config)
        export = tmp_path / f"export_{run.name}" / "assets.extra"
        export.mkdir(parents=True)
        vocab.write(export / vocab.file_name)
        card = {"vocab_size": len(vocab), "do_lower_case": lower}
        (export / "bert_tf.json").write_text(json.dumps(card))
        alone = [run / vocab.file_name] if vocab is bpe or lower else []
        for path in (run, export, export.parent, *alone):
            found = bert_tf.load_tokenizer(path)(*texts)
            assert all((found[name] == expected[name]).all() for name in NAMES), path
    with pytest.raises(ValueError, match=rf"^{tmp_path} .*vocab\.txt, tokenizer\.json"):
        bert_tf.load_tokenizer(tmp_path)


def test_hugging_faces_small_tokenizers():
    folder = golden_file("families", "roberta", "masked_lm")
    golden = json.loads((folder / "tokenizer_golden.json").read_text(encoding="utf8"))
    tokenizer = bert_tf.load_tokenizer(folder / "tokenizer.json")
    assert read_vocab(folder / "tokenizer.json") == tokenizer.vocab
    for row in golden:
        made = tokenizer(row["text"], row.get("pair"))
        assert made["input_word_ids"].tolist() == row.get("input_ids", row.get("ids"))


def test_the_package_loads_no_tensorflow():
    code = (
        "import sys, bert_tf, pickle; assert set(bert_tf.__all__) <= set(dir(bert_tf));"
        "assert callable(bert_tf.load_tokenizer); sys.exit('tensorflow' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT).returncode == 0
    with pytest.raises(AttributeError, match="BertDecoder"):
        bert_tf.BertDecoder  # noqa: B018
    for name in bert_tf.__all__:
        assert getattr(bert_tf, name).__name__ == name
