"""The classes of grapheme clusters and the rules equal those that `tokenizers` applies."""

import base64
import io
import json

import sentencepiece
import tokenizers
from sentencepiece import sentencepiece_model_pb2

from bert_tf.text.charsmap import continuing_characters, prepended_characters, read_rules
from tests.shared_data import golden_file

CODES = [code for code in range(0x110000) if not 0xD800 <= code < 0xE000]


def one_rule(tmp_path) -> bytes:
    """Returns a charsmap that makes an "a" a "b", and nothing else."""
    rules = tmp_path / "rules.tsv"
    rules.write_text("61\t62\n")
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter([f"some text {number}" for number in range(200)]),
        model_writer=model,
        vocab_size=30,
        hard_vocab_limit=False,
        normalization_rule_tsv=str(rules),
        minloglevel=2,
    )
    proto = sentencepiece_model_pb2.ModelProto()
    proto.ParseFromString(model.getvalue())
    return proto.normalizer_spec.precompiled_charsmap


def test_continuing_characters_are_those_that_a_rule_for_the_letter_takes(tmp_path):
    normalizer = tokenizers.normalizers.Precompiled(one_rule(tmp_path))
    taken = [code for code in CODES if normalizer.normalize_str("a" + chr(code)) == "b"]
    assert taken == continuing_characters()


def test_rules_are_those_of_tokenizers():
    path = golden_file("families", "xlm_roberta", "tokenization", "tokenizer.json")
    step = json.loads(path.read_text())["normalizer"]["normalizers"][0]
    charsmap = base64.b64decode(step["precompiled_charsmap"])
    normalizer = tokenizers.normalizers.Precompiled(charsmap)
    rules = read_rules(charsmap)
    for code in CODES:
        char = chr(code)
        assert normalizer.normalize_str(char) == rules.get(char, char)
    assert not {rule[0] for rule in rules} & set(map(chr, prepended_characters()))
