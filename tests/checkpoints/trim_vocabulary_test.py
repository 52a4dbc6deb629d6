"""Models whose vocabulary was trimmed answer the texts as before."""

import dataclasses
import json
import pathlib
import random

import numpy as np
import pytest

from bert_tf.checkpoints import trim_vocabulary as trimming
from bert_tf.checkpoints.checkpoint import Checkpoint
from bert_tf.checkpoints.formats import read_checkpoint, write_checkpoint
from bert_tf.checkpoints.trim_vocabulary import trim_vocabulary
from bert_tf.pretraining.masked_words.model import BertPretrainer
from bert_tf.tasks.base.examples.tables import read_every_text
from bert_tf.text.text_tokenizer import TextTokenizer
from bert_tf.text.tokenization import make_tokenizer
from bert_tf.text.vocab import Vocab
from tests.checkpoints.made_checkpoint import assert_same, make_checkpoint
from tests.float_bounds import assert_close
from tests.programs import fail, finish, run
from tests.shared_data import golden_file

ROBERTA = golden_file("families", "roberta", "masked_lm")
TEXTS = [
    "The cat sat by the river; unaffable, isn't it?",
    "  Déjà vu in Zürich, 中文 and привет мир. ",
    "supercalifragilistic tokens #1 \u2603 \u1234x",
    "[MASK] and <mask>\tspaces   and\ttabs",
]


def make_model(vocab: Vocab, lower: bool, purpose: str = "masked_lm") -> Checkpoint:
    made = make_checkpoint(
        purpose,
        5,
        vocab_size=len(vocab),
        hidden_size=8,
        num_attention_heads=2,
        num_hidden_layers=2,
        max_position_embeddings=64,
        type_vocab_size=2,
        layer_norm_eps=1e-12,
        hidden_act="gelu_exact",
        do_lower_case=lower,
    )
    config = dataclasses.replace(made.config, pad_token_id=vocab.pad_id)
    return dataclasses.replace(made, vocab=vocab, config=config, stated_casing=lower)


def outputs(checkpoint: Checkpoint, texts: list[str]) -> tuple[np.ndarray, np.ndarray]:
    """Returns the hidden states [B, T, D] and the logits of the first positions [B, P, V]."""
    batch = TextTokenizer(checkpoint.vocab, checkpoint.config.do_lower_case)(texts, max_length=32)
    batch["masked_lm_positions"] = np.tile(np.arange(4, dtype=np.int32), (len(texts), 1))
    model = BertPretrainer.from_checkpoint(checkpoint)
    states = model.bert(batch)["sequence_output"]
    return np.asarray(states), np.asarray(model(batch)["masked_lm_logits"])


def tokens_of(checkpoint: Checkpoint, text: str) -> list[str]:
    return make_tokenizer(checkpoint.vocab, checkpoint.config.do_lower_case).tokenize(text)


def assert_same_answers(before: Checkpoint, after: Checkpoint, texts: list[str]) -> None:
    after.check()
    for text in texts:
        assert tokens_of(after, text) == tokens_of(before, text)
    states, logits = outputs(before, texts)
    new_states, new_logits = outputs(after, texts)
    np.testing.assert_allclose(new_states, states, atol=1e-6)
    kept = [before.vocab.ids[token] for token in after.vocab.tokens]
    assert kept == sorted(kept)
    assert_close(new_logits, logits[..., kept])


def convert(source: pathlib.Path, output: pathlib.Path, files: str, **flags) -> tuple:
    printed = finish(
        run("convert_checkpoint", input=source, output=output, trim_vocab=files, **flags)
    )
    return printed, read_checkpoint(output)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["uncased", "cased"])
def test_a_bert_of_hugging_face_answers_as_before(name, tmp_path):
    vocab = Vocab.read(golden_file("vocab", f"bert-base-{name}-vocab.txt"))
    made = make_model(vocab, name == "uncased", "pretrained")
    before = write_checkpoint(made, tmp_path / "model", "huggingface")
    (tmp_path / "a.txt").write_text("\n".join(TEXTS[:2]) + "\n", encoding="utf8")
    (tmp_path / "b.txt").write_text("\n".join(TEXTS[2:]) + "\n", encoding="utf8")
    printed, after = convert(
        tmp_path / "model", tmp_path / "small", f"{tmp_path}/*.txt", to="huggingface"
    )
    assert len(after.vocab) < 400
    assert_same_answers(before, after, TEXTS)
    for checkpoint in (before, after):
        assert f"{sum(value.size for value in checkpoint.weights.values()):,}" in printed
    # Other texts of these characters are spelled.
    assert "[UNK]" not in tokens_of(after, "Rural catastrophes! (2029)")
    config = json.loads((tmp_path / "small" / "config.json").read_text())
    assert config["vocab_size"] == len(after.vocab)


@pytest.mark.slow
def test_a_byte_bpe_roberta_answers_as_before(tmp_path):
    golden = json.loads((ROBERTA / "tokenizer_golden.json").read_text(encoding="utf8"))
    texts = [row["text"] for row in golden[:2]] + TEXTS
    (tmp_path / "texts.jsonl").write_text("\n".join(json.dumps({"text": t}) for t in texts))
    before = read_checkpoint(ROBERTA)
    _, after = convert(ROBERTA, tmp_path / "small", str(tmp_path / "texts.jsonl"), to="huggingface")
    assert 256 < len(after.vocab) < len(before.vocab) - 300
    assert after.vocab.added_tokens == before.vocab.added_tokens
    assert_same_answers(before, after, texts)
    assert tokens_of(after, "\U0001f600") == list("ðŁĺĢ")  # The bytes of any text.


@pytest.mark.parametrize("family", ["xlm_roberta", pytest.param("mmbert", marks=pytest.mark.slow)])
def test_a_sentencepiece_model_answers_as_before(family, tmp_path):
    folder = golden_file("families", family, "masked_lm")
    golden = json.loads((folder / "tokenizer_golden.json").read_text(encoding="utf8"))
    rows = golden if isinstance(golden, list) else golden["texts"]
    texts = [row["text"] for row in rows[:4]] + TEXTS
    before = read_checkpoint(folder)
    (tmp_path / "texts.json").write_text(json.dumps([{"text": text} for text in texts]))
    _, after = convert(folder, tmp_path / "small", str(tmp_path / "texts.json"), to="huggingface")
    assert len(after.vocab) < len(before.vocab) - 50
    assert after.vocab.added_tokens == before.vocab.added_tokens
    assert_same_answers(before, after, texts)
    if before.vocab.is_unigram:
        # The score of an unknown character is counted from the least probable token.
        assert min(after.vocab.scores) == min(before.vocab.scores)
    else:
        assert "<0x00>" in after.vocab.ids


def test_bpe_needs_the_merges_of_its_tokens_and_no_others():
    before = read_checkpoint(ROBERTA)
    text = "".join(before.vocab.merges[-1]).replace("Ġ", " ")
    after = trim_vocabulary(before, lambda: [text])
    assert before.vocab.merges[-1] in after.vocab.merges
    assert len(after.vocab.merges) < 20
    merged = {"".join(pair) for pair in after.vocab.merges}
    single = {token for token in after.vocab.tokens if len(token) == 1}
    added = {token.content for token in after.vocab.added_tokens}
    assert {*after.vocab.tokens} == merged | single | added


def test_random_words_keep_their_tokens():
    """Also the unknown ones: with less tokens a shorter match could succeed."""
    letters = "abc"
    tokens = [*"[PAD] [UNK] [CLS] [SEP] [MASK]".split(), *"ab", "##a", "##b"]
    draw = random.Random(1)
    for length in (2, 3, 3, 4):
        for _ in range(8):
            word = "".join(draw.choices(letters, k=length))
            tokens += [word, f"##{word}"]
    vocab = Vocab(tuple(dict.fromkeys(tokens)))
    made = make_model(vocab, True)
    for _ in range(50):
        texts = ["".join(draw.choices(letters, k=draw.randint(1, 9))) for _ in range(3)]
        after = trim_vocabulary(made, lambda texts=texts: texts)
        for text in texts:
            assert tokens_of(after, text) == tokens_of(made, text)


def test_a_cased_model_of_lower_case_texts_can_be_read_again(tmp_path):
    vocab = Vocab.read(golden_file("vocab", "bert-base-cased-vocab.txt"))
    made = make_model(vocab, False)
    words = [token for token in vocab.tokens if token.islower() and token.isalpha()][:3000]
    small = trim_vocabulary(made, lambda: words)
    assert 3000 < len(small.vocab) < 3700
    write_checkpoint(small, tmp_path / "small", "huggingface")
    assert read_checkpoint(tmp_path / "small").config.do_lower_case is False


def test_added_words_are_not_trimmed(tmp_path):
    vocab = Vocab.read(golden_file("vocab", "bert-base-uncased-vocab.txt"))
    write_checkpoint(make_model(vocab, True), tmp_path / "model", "bert_tf")
    (tmp_path / "texts.csv").write_text('text,label\n"the river, again",1\n')
    (tmp_path / "words.txt").write_text("rivercat\n")
    _, small = convert(
        tmp_path / "model",
        tmp_path / "small",
        str(tmp_path / "texts.csv"),
        added_words_file=tmp_path / "words.txt",
    )
    assert {"river", "again", "label", "rivercat"} <= {*small.vocab.tokens}


def test_a_trimmed_vocabulary_needs_no_trimming():
    for made in (make_checkpoint("masked_lm"), read_checkpoint(ROBERTA)):
        small = trim_vocabulary(made, lambda: ["the river"])
        assert len(small.vocab) < len(made.vocab)
        assert_same(trim_vocabulary(small, lambda: ["the river"]), small)


def test_texts_are_those_of_all_columns(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"q": "one", "n": 3, "c": ["two", {"d": "three"}]}\n')
    (tmp_path / "b.tsv").write_text("four\tfive\nsix\tseven\n")
    (tmp_path / "c.log").write_text("eight nine\n\n  ten\n")
    files = [str(tmp_path / name) for name in ("a.jsonl", "b.tsv", "c.log")]
    expected = ["one", "two", "three", "four", "five", "six", "seven", "eight nine", "  ten"]
    assert list(read_every_text(files)) == expected


def test_what_cannot_be_trimmed(tmp_path, monkeypatch):
    made = make_checkpoint("masked_lm", do_lower_case=True)
    with pytest.raises(ValueError, match="--vocab_file"):
        trim_vocabulary(dataclasses.replace(made, vocab=None), lambda: ["a"])
    for texts in ([], [" "]):
        with pytest.raises(ValueError):
            trim_vocabulary(made, lambda texts=texts: texts)
    with pytest.raises(ValueError, match="str"):
        trim_vocabulary(dataclasses.replace(made, vocab="tokens"), lambda: ["a"])
    few = Vocab(tuple(token for token in made.vocab.tokens if token != "river"))
    monkeypatch.setitem(trimming.TRIMMED, Vocab, lambda tokenizer, texts: few)
    with pytest.raises(ValueError, match="a river"):
        trim_vocabulary(made, lambda: ["a river"])
    missing = tmp_path / "missing.txt"
    output = tmp_path / "output"
    printed = fail(run("convert_checkpoint", input="x", output=output, trim_vocab=missing))
    assert "--trim_vocab" in printed and "missing.txt" in printed
