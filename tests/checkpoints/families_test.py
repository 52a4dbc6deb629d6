"""Families of encoders: golden outputs of transformers, there and back, weights, vocabularies."""

import dataclasses
import json

import numpy as np
import pytest
import safetensors.numpy

from bert_tf.checkpoints.adapt import POSITIONS, adapt, resize_positions
from bert_tf.checkpoints.families import find_family
from bert_tf.checkpoints.formats import read_checkpoint, write_checkpoint
from bert_tf.checkpoints.start import read_start
from bert_tf.network.encoder import BertEncoder
from bert_tf.network.pretrained import checkpoint_variables
from bert_tf.tasks.classification.model import BertClassifier
from bert_tf.tasks.tagging.model import BertTokenClassifier
from tests.checkpoints.family_outputs import differences, encoder_inputs, family_outputs
from tests.checkpoints.golden_families import copy_of, golden_folder
from tests.checkpoints.made_checkpoint import make_checkpoint, rewrite
from tests.float_bounds import REORDERED, assert_close
from tests.shared_data import read_arrays
from tests.slow_variants import slow_where

GOLDENS = [
    "roberta/masked_lm",
    "roberta/sequence_classification",
    "roberta/token_classification",
    "roberta/question_answering",
    "distilbert/masked_lm",
    "distilbert/sequence_classification",
    "distilbert/token_classification",
    "distilbert/question_answering",
    "modernbert/masked_lm",
    "modernbert/sequence_classification_mean",
    "modernbert/sequence_classification_cls",
    "modernbert/token_classification",
    "positions/roformer_masked_lm",
    "electra/discriminator",
    "electra/generator",
    "electra/sequence_classification",
    "electra/token_classification",
    "electra/question_answering",
    "xlm_roberta/masked_lm",
    "xlm_roberta/sequence_classification",
    "xlm_roberta/token_classification",
    "xlm_roberta/question_answering",
    "camembert/masked_lm",
    "albert/masked_lm",
    "albert/pretraining",
    "albert/sequence_classification",
    "mmbert/masked_lm",
    "mpnet/masked_lm",
    "mpnet/sequence_classification",
    "deberta_v2/masked_lm",
    "deberta_v2/masked_lm_legacy",
    "deberta_v2/sequence_classification",
    "deberta_v2/token_classification",
    "deberta_v2/question_answering",
    "xlnet/sequence_classification",
    "xlnet/question_answering_simple",
]
# Each family and each head is in another golden.
SLOW = {
    "distilbert/masked_lm",
    "distilbert/token_classification",
    "distilbert/question_answering",
    "modernbert/sequence_classification_cls",
    "electra/generator",
    "electra/token_classification",
    "electra/question_answering",
    "camembert/masked_lm",
    "xlm_roberta/sequence_classification",
    "xlm_roberta/token_classification",
    "xlm_roberta/question_answering",
    "albert/masked_lm",
    "albert/sequence_classification",
    "mpnet/sequence_classification",
    "deberta_v2/sequence_classification",
    "deberta_v2/token_classification",
    "deberta_v2/masked_lm_legacy",
    "modernbert/sequence_classification_mean",
    "electra/sequence_classification",
    "roberta/question_answering",
    "roberta/sequence_classification",
    "roberta/token_classification",
}


@pytest.mark.parametrize("name", slow_where(lambda name: name in SLOW, GOLDENS))
def test_outputs_loss_and_gradients_are_the_golden_ones(name, tmp_path):
    folder = golden_folder(name)
    golden = read_arrays(golden_folder(name) / "golden.npz")
    received, model = family_outputs(folder, golden)
    limit = 2e-5 if name.startswith(("modernbert", "deberta")) else 1e-5
    for key, difference in differences(received, golden, model.config.pad_token_id).items():
        assert difference < (1e-4 if key.startswith("grad_") else limit), (key, difference)
    for other in ("left_padded", "long"):
        if f"in_{other}_input_ids" not in golden:
            continue
        inputs = encoder_inputs(golden, f"in_{other}_")
        expected = golden[f"out_{other}_last_hidden_state"]
        output = np.asarray(model.bert(inputs)["sequence_output"])
        output = output * inputs["input_mask"][..., None]
        assert np.abs(output - expected).max() < limit * np.abs(expected).max()


@pytest.mark.parametrize("name", [*GOLDENS, "xlnet/lm_head"])
def test_written_back_the_tensors_are_the_same_bits(tmp_path, name):
    folder = golden_folder(name)
    before = read_checkpoint(folder)
    after = write_checkpoint(before, tmp_path / "again", "huggingface")
    assert (after.config, after.vocab, after.family) == (before.config, before.vocab, before.family)
    own = write_checkpoint(before, tmp_path / "own", "bert_tf")
    assert (own.config, own.vocab) == (before.config, before.vocab)
    theirs, ours = (
        safetensors.numpy.load_file(path / "model.safetensors")
        for path in (folder, tmp_path / "again")
    )
    assert set(ours) == set(theirs)
    for key, value in theirs.items():
        assert value.shape == ours[key].shape and value.tobytes() == ours[key].tobytes(), key
    # All that says something of the numbers is as it was.
    theirs, ours = (
        json.loads((path / "config.json").read_text()) for path in (folder, tmp_path / "again")
    )
    free = ("_id", "_dropout", "label", "id2")  # Without a tokenizer not all is known.
    for key in set(theirs) & set(ours):
        if not any(part in key for part in free) and key != "architectures":
            assert ours[key] == theirs[key], key
    assert ours["architectures"] == theirs["architectures"]


def test_a_bare_encoder_has_no_prefix(tmp_path):
    starts = {
        "roberta/masked_lm": "roberta.",
        "modernbert/masked_lm": "model.",
        "distilbert/masked_lm": "distilbert.",  # Without it names begin as XLNet's do.
        "xlnet/lm_head": "transformer.",
    }
    for name, start in starts.items():
        folder = copy_of(name, tmp_path / start)
        whole = read_checkpoint(folder)
        rewrite(
            folder,
            lambda weights, start=start: {
                key.removeprefix(start): value
                for key, value in weights.items()
                if key.startswith(start)
            },
        )
        bare = read_checkpoint(folder)
        assert bare.heads == () and not bare.unused
        assert all(np.array_equal(bare.weights[key], whole.weights[key]) for key in bare.weights)
        again = write_checkpoint(bare, tmp_path / start / "again", "huggingface")
        keys = safetensors.numpy.load_file(tmp_path / start / "again" / "model.safetensors")
        assert not any(key.startswith(start) for key in keys) and again.family == whole.family


def test_the_tokenizer_tells_roberta_from_xlm_roberta():
    config = read_checkpoint(golden_folder("roberta/masked_lm")).config
    assert find_family(config).model_type == "roberta"
    object.__setattr__(config, "tokenizer", "unigram")
    assert find_family(config).model_type == "xlm-roberta"


def test_an_albert_of_equal_widths_projects_its_embeddings(tmp_path):
    """By the identity the outputs are those without a projection."""
    shape = {"embedding_size": 0, "hidden_size": 12, "num_attention_heads": 2}
    shape |= {"num_layer_groups": 1, "num_hidden_layers": 2}
    made = make_checkpoint("encoder", embedding_projection=True, **shape)
    write_checkpoint(made, tmp_path / "random", "huggingface")
    values = json.loads((tmp_path / "random" / "config.json").read_text())
    assert (values["model_type"], values["embedding_size"]) == ("albert", 12)
    found = read_checkpoint(tmp_path / "random")
    assert (found.config, found.weights.keys()) == (made.config, made.weights.keys())
    inputs = {"input_word_ids": np.arange(6)[None], "input_mask": np.ones((1, 6), np.int32)}
    inputs["input_type_ids"] = np.zeros((1, 6), np.int32)
    plain = dict(made.weights)
    kernel = plain.pop("bert/embeddings_project/kernel")
    bias = plain.pop("bert/embeddings_project/bias")
    projected = {**plain, "bert/embeddings_project/kernel": np.eye(12, dtype=np.float32)}
    projected["bert/embeddings_project/bias"] = np.zeros_like(bias)
    outputs = {}
    for name, is_projected, weights in (
        ("plain", False, plain),
        ("identity", True, projected),
        ("random", True, made.weights),
    ):
        config = dataclasses.replace(made.config, embedding_projection=is_projected)
        checkpoint = dataclasses.replace(made, config=config, weights=weights)
        write_checkpoint(checkpoint, tmp_path / name / "own", "bert_tf")
        encoder = BertEncoder.from_pretrained(tmp_path / name / "own", use_pooler=False)
        outputs[name] = np.asarray(encoder(inputs)["sequence_output"])
    assert_close(outputs["identity"], outputs["plain"], REORDERED)
    assert kernel.shape == (12, 12) and np.abs(outputs["random"] - outputs["plain"]).max() > 0.1


def test_rows_of_mpnet_that_no_bucket_has(tmp_path):
    """transformers computes 32 buckets, however many rows the table has."""
    name = "mpnet/masked_lm"
    folder = copy_of(name, tmp_path, relative_attention_num_buckets=40)
    key = "mpnet.encoder.relative_attention_bias.weight"
    rewrite(folder, lambda weights: {**weights, key: np.pad(weights[key], [(0, 8), (0, 0)])})
    before = read_checkpoint(folder)
    before.check()
    golden = read_arrays(folder / "golden.npz")
    received = BertEncoder.from_checkpoint(before)(encoder_inputs(golden, "in_long_"))
    expected = golden["out_long_last_hidden_state"]
    assert np.abs(received["sequence_output"] - expected).max() < 1e-5 * np.abs(expected).max()
    after = write_checkpoint(before, tmp_path / "again", "huggingface")
    assert after.config == before.config
    np.testing.assert_array_equal(
        safetensors.numpy.load_file(tmp_path / "again" / "model.safetensors")[key],
        safetensors.numpy.load_file(folder / "model.safetensors")[key],
    )


@pytest.mark.parametrize("name", ["merges.txt", "vocab.json"])
def test_half_a_byte_bpe_tokenizer_is_refused(tmp_path, name):
    folder = copy_of("roberta/masked_lm", tmp_path)
    (folder / name).unlink()
    with pytest.raises(ValueError, match=f"/{name} .*tokenizer.json"):
        read_checkpoint(folder)
    (folder / "tokenizer.json").unlink()
    with pytest.raises(ValueError, match=f"/{name} .*tokenizer.json"):
        read_checkpoint(folder)


def test_merges_and_vocabulary_that_disagree(tmp_path):
    folder = copy_of("roberta/masked_lm", tmp_path)
    merges = (folder / "merges.txt").read_text().splitlines()
    (folder / "merges.txt").write_text("\n".join([*merges[:5], *merges[6:]]) + "\n")
    with pytest.raises(ValueError, match=r"merges.txt .*tokenizer.json"):
        read_checkpoint(folder)
    (folder / "merges.txt").write_text("\n".join([*merges, "zq qz"]) + "\n")
    with pytest.raises(ValueError, match="'zq'"):
        read_checkpoint(folder)


def test_byte_bpe_is_the_same_from_each_of_its_files(tmp_path):
    folder = copy_of("roberta/masked_lm", tmp_path)
    expected = read_checkpoint(folder)
    assert expected.config.tokenizer == "byte_bpe" and expected.config.pad_token_id == 1
    for path in (folder / "vocab.json", folder / "merges.txt"):
        path.unlink()
    assert read_checkpoint(folder).vocab == expected.vocab
    folder = copy_of("roberta/masked_lm", tmp_path)
    (folder / "tokenizer.json").unlink()
    received = read_checkpoint(folder).vocab
    assert (received.tokens, received.merges) == (expected.vocab.tokens, expected.vocab.merges)


def test_what_each_task_makes_anew_may_be_missing(tmp_path):
    classifier = BertClassifier.from_pretrained(
        golden_folder("roberta/masked_lm"), allow_missing=["cls/"], num_labels=3
    )
    assert "bert/pooler/dense/kernel" in checkpoint_variables(classifier)
    start = read_start(str(golden_folder("roberta/masked_lm")), {}, ("pooler",))
    assert start.heads == ("masked_lm",)
    bert = make_checkpoint("masked_lm", 1)
    write_checkpoint(bert, tmp_path / "bert", "huggingface")
    with pytest.raises(ValueError, match="bert/pooler/dense/kernel, .*--allow_missing"):
        BertClassifier.from_pretrained(tmp_path / "bert", allow_missing=["cls/"], num_labels=3)


def test_heads_of_tasks_begin_from_the_transformation_of_the_masked_lm():
    folder = golden_folder("modernbert/masked_lm")
    model = BertTokenClassifier.from_pretrained(folder, allow_missing=["cls/tagger/"], num_labels=3)
    variables = checkpoint_variables(model)
    head = safetensors.numpy.load_file(folder / "model.safetensors")
    kernel, gamma = (variables[f"cls/transform/{n}"] for n in ("dense/kernel", "LayerNorm/gamma"))
    np.testing.assert_array_equal(kernel, head["head.dense.weight"].T)
    np.testing.assert_array_equal(gamma, head["head.norm.weight"])


@pytest.mark.parametrize(
    ("name", "given", "message"),
    [
        (
            "roberta/masked_lm",
            {"position_type": "rotary"},
            "--position_type=rotary, .*learned",
        ),
        ("roberta/masked_lm", {"tokenizer": "wordpiece"}, "--tokenizer=wordpiece, .*byte_bpe"),
        ("roberta/masked_lm", {"do_lower_case": True}, "--do_lower_case=True, .*False"),
        ("modernbert/masked_lm", {"position_type": "alibi"}, "--position_type=alibi, .*rotary"),
    ],
)
def test_flags_that_contradict_a_checkpoint(name, given, message):
    with pytest.raises(ValueError, match=message):
        read_start(str(golden_folder(name)), given, ())


def test_positions_are_repeated_behind_the_row_of_padding():
    checkpoint = read_checkpoint(golden_folder("roberta/masked_lm"))
    table = checkpoint.weights[POSITIONS]  # [42, 48]: 40 positions from row 2 on
    longer = resize_positions(checkpoint, 100)
    longer.check()
    assert longer.config.longest_row == 98
    for row in (0, 1, 2, 41):
        np.testing.assert_array_equal(longer.weights[POSITIONS][row], table[row])
    for row in (42, 81, 82, 99):
        expected = table[2 + (row - 2) % 40]
        np.testing.assert_array_equal(longer.weights[POSITIONS][row], expected)
    np.testing.assert_array_equal(resize_positions(checkpoint, 9).weights[POSITIONS], table[:9])


def test_a_vocabulary_of_byte_bpe_is_not_exchanged(tmp_path):
    checkpoint = read_checkpoint(golden_folder("roberta/masked_lm"))
    same = golden_folder("roberta/masked_lm") / "tokenizer.json"
    assert adapt(checkpoint, vocab_file=str(same)).vocab == checkpoint.vocab
    other = make_checkpoint("masked_lm").vocab
    other.write(tmp_path / "vocab.txt")
    with pytest.raises(ValueError, match="WordPiece .*--vocab_file .*--added_words_file"):
        adapt(checkpoint, vocab_file=str(tmp_path / "vocab.txt"))
    (tmp_path / "words.txt").write_text("word\n")
    with pytest.raises(ValueError, match=r"WordPiece vocabulary .*--vocab_file\.$"):
        adapt(checkpoint, added_words_file=str(tmp_path / "words.txt"))


def test_a_vocabulary_is_attached_to_weights_alone(tmp_path):
    folder = copy_of("roberta/masked_lm", tmp_path)
    for path in folder.iterdir():
        if path.name not in ("config.json", "model.safetensors"):
            path.unlink()
    assert read_checkpoint(folder).vocab is None
    vocab_file = str(golden_folder("roberta/masked_lm") / "tokenizer.json")
    start = read_start(str(folder), {"tokenizer": "byte_bpe"}, (), vocab_file=vocab_file)
    assert start.config == read_checkpoint(golden_folder("roberta/masked_lm")).config


def test_a_pooler_beside_robertas_classifier_is_left_out(tmp_path):
    """Files of older transformers hold one, which the class does not compute with."""
    name = "roberta/sequence_classification"
    folder, expected = copy_of(name, tmp_path), read_checkpoint(golden_folder(name))
    size = expected.config.hidden_size
    pooler = {
        "roberta.pooler.dense.weight": np.ones((size, size), np.float32),
        "roberta.pooler.dense.bias": np.ones(size, np.float32),
    }
    rewrite(folder, lambda weights: {**weights, **pooler})
    received = read_checkpoint(folder)
    received.check()
    assert any("roberta.pooler.dense.weight" in note for note in received.notes)
    assert received.weights.keys() == expected.weights.keys()
    for weight, value in expected.weights.items():
        np.testing.assert_array_equal(received.weights[weight], value)
    rewrite(folder, lambda weights: {**weights, "roberta.adapter.bias": pooler.popitem()[1]})
    with pytest.raises(ValueError, match=r"\(1\): roberta.adapter.bias"):
        read_checkpoint(folder).check()


def test_a_discriminator_of_microsoft_is_read_as_an_encoder(tmp_path):
    """Their files also hold a masked LM's head that was not trained, and differences of tables."""
    name = "deberta_v2/masked_lm"
    expected = read_checkpoint(golden_folder(name))
    size = expected.config.hidden_size
    table = np.ones((expected.config.vocab_size, size), np.float32)
    positions = np.ones((expected.config.max_position_embeddings, size), np.float32)
    idle = {
        "mask_predictions.dense.weight": np.ones((size, size), np.float32),
        "mask_predictions.dense.bias": np.ones(size, np.float32),
        "mask_predictions.LayerNorm.weight": np.ones(size, np.float32),
        "mask_predictions.LayerNorm.bias": np.ones(size, np.float32),
        "mask_predictions.classifier.weight": np.ones((1, size), np.float32),
        "mask_predictions.classifier.bias": np.ones(1, np.float32),
        "deberta.embeddings.word_embeddings._weight": table,
        "deberta.embeddings.position_embeddings._weight": positions,
        "deberta.embeddings.position_embeddings.weight": positions,
    }
    # Their config.json has neither field.
    folder = copy_of(name, tmp_path, legacy=None, architectures=None)
    rewrite(folder, lambda weights: {**weights, **idle})
    received = read_checkpoint(folder)
    received.check()
    assert received.heads == () and all(key in " ".join(received.notes) for key in idle)
    assert received.config == expected.config
    of_encoder = {key for key in expected.weights if not key.startswith("cls/")}
    assert received.weights.keys() == of_encoder
    for weight in of_encoder:
        np.testing.assert_array_equal(received.weights[weight], expected.weights[weight])
