"""keras-hub loads what we write and computes the same; its own files are read."""

import dataclasses
import json

import h5py
import keras_hub
import numpy as np
import pytest

from bert_tf.checkpoints.formats import (
    as_computed,
    left_out,
    read_checkpoint,
    write_checkpoint,
)
from bert_tf.checkpoints.load_tokenizer import load_tokenizer
from bert_tf.network.encoder import BertEncoder
from bert_tf.network.heads import gather_positions
from bert_tf.pretraining.masked_words.model import BertPretrainer
from bert_tf.tasks.classification.model import BertClassifier
from tests.checkpoints.made_checkpoint import (
    assert_same,
    make_batch,
    make_checkpoint,
    make_vocab,
    make_weights,
)
from tests.shared_data import golden_file


def write(tmp_path, purpose, seed=0, **changes):
    made = make_checkpoint(purpose, seed, **changes)
    write_checkpoint(made, tmp_path / "preset", "keras_hub")
    return made, str(tmp_path / "preset")


def their_inputs(batch):
    return {
        "token_ids": batch["input_word_ids"],
        "padding_mask": batch["input_mask"],
        "segment_ids": batch["input_type_ids"],
    }


def assert_close(received, expected, batch):
    real = batch["input_mask"].astype(bool)
    received, expected = np.asarray(received), np.asarray(expected)
    if expected.shape[:2] == real.shape:
        received, expected = received[real], expected[real]
    np.testing.assert_allclose(received, expected, atol=2e-5, rtol=2e-5)


SLOW_SEEDS = [pytest.param(seed, marks=pytest.mark.slow) for seed in (1, 2, 3)]


@pytest.mark.parametrize("seed", [0, *SLOW_SEEDS])
def test_backbone_computes_the_same(tmp_path, seed):
    made, folder = write(tmp_path, "encoder with pooler", seed)
    batch = make_batch(made.config, np.random.default_rng(seed))
    expected = keras_hub.models.BertBackbone.from_preset(folder)(their_inputs(batch))
    # It has the tanh form and an epsilon of 1e-12, whatever the model was made with.
    made = dataclasses.replace(made, config=as_computed(made.config, "keras_hub"))
    received = BertEncoder.from_checkpoint(made)(batch)
    assert_close(received["sequence_output"], expected["sequence_output"], batch)
    assert_close(received["pooled_output"], expected["pooled_output"], batch)


@pytest.mark.slow
def test_classifier_computes_the_same(tmp_path):
    made, folder = write(tmp_path, "classifier", 1, layer_norm_eps=1e-12, hidden_act="gelu_tanh")
    batch = make_batch(made.config, np.random.default_rng(0))
    task = keras_hub.models.BertTextClassifier.from_preset(folder)
    assert_close(BertClassifier.from_pretrained(folder)(batch), task(their_inputs(batch)), batch)


@pytest.mark.slow
def test_masked_lm_head_differs_as_the_docs_say(tmp_path):
    made, folder = write(tmp_path, "pretrained", 2, layer_norm_eps=1e-12, hidden_act="gelu_tanh")
    batch = make_batch(made.config, np.random.default_rng(0))
    task = keras_hub.models.BertMaskedLM.from_preset(folder)
    positions = {"mask_positions": batch["masked_lm_positions"]}
    theirs = np.asarray(task({**their_inputs(batch), **positions}))
    # Exact GELU and an epsilon of 1e-5 in its head: our encoder with such a head is that model.
    model = BertPretrainer.from_pretrained(folder)
    head = BertPretrainer.from_checkpoint(
        dataclasses.replace(
            read_checkpoint(folder),
            config=dataclasses.replace(made.config, hidden_act="gelu_exact", layer_norm_eps=1e-5),
        )
    ).predictions
    sequence = model.bert(batch)["sequence_output"]
    same = head(
        gather_positions(sequence, batch["masked_lm_positions"]),
        model.bert.embeddings.word_embeddings,
    )
    np.testing.assert_allclose(np.asarray(same), theirs, atol=2e-5, rtol=2e-5)
    ours = np.asarray(model(batch)["masked_lm_logits"])
    assert 1e-6 < np.abs(ours - theirs).max() < 0.1


def test_tokenizer_of_the_preset_strips_accents(tmp_path):
    made, folder = write(tmp_path, "encoder with pooler", 3, do_lower_case=True, vocab_size=70)
    tokenizer = keras_hub.models.BertTokenizer.from_preset(folder)
    assert tokenizer.lowercase and tokenizer.strip_accents
    assert np.asarray(tokenizer("Thé river")).tolist() == [
        made.vocab.ids["the"],
        made.vocab.ids["river"],
    ]


def test_presets_and_weights_that_keras_hub_wrote(tmp_path):
    backbone = keras_hub.models.BertBackbone(
        vocabulary_size=31,
        num_layers=3,
        num_heads=2,
        hidden_dim=8,
        intermediate_dim=12,
        max_sequence_length=9,
    )
    task = keras_hub.models.BertMaskedLM(backbone)
    task.save_to_preset(str(tmp_path / "preset"))
    backbone.save_weights(str(tmp_path / "a.weights.h5"))
    task.save_weights(str(tmp_path / "b.weights.h5"))
    preset = read_checkpoint(tmp_path / "preset")
    preset.check()
    assert preset.heads == ("pooler", "masked_lm") and preset.vocab is None
    batch = make_batch(preset.config, np.random.default_rng(0))
    expected = backbone(their_inputs(batch))["sequence_output"]
    for path in ("preset", "a.weights.h5", "b.weights.h5"):
        received = read_checkpoint(tmp_path / path)
        received.check()
        assert received.config == preset.config
        assert_close(
            BertEncoder.from_checkpoint(received)(batch)["sequence_output"], expected, batch
        )
        head = {name for name in preset.weights if name.startswith("cls/")}
        assert head <= set(received.weights) or path == "a.weights.h5"


def test_the_weights_file_of_a_preset_is_that_preset(tmp_path):
    made, folder = write(tmp_path, "classifier", 6, do_lower_case=False)
    assert_same(read_checkpoint(tmp_path / "preset" / "model.weights.h5"), made)


def test_the_mlm_head_beside_a_classifier_is_left_out(tmp_path):
    made = make_checkpoint("classifier", num_hidden_layers=1)
    head = make_weights(made.config, ("masked_lm",), np.random.default_rng(1))
    both = dataclasses.replace(made, weights={**head, **made.weights})
    assert left_out(both, "keras_hub") == ("masked_lm",)
    assert_same(write_checkpoint(both, tmp_path / "preset", "keras_hub"), made)


@pytest.mark.slow
@pytest.mark.parametrize("tower", ["discriminator", "generator"])
def test_electras_backbone_is_written_and_computes_the_same(tmp_path, tower):
    """The golden ELECTRAs; keras-hub has BERT's GELU instead of theirs, and no head of theirs."""
    made = read_checkpoint(golden_file("families", "electra", tower))
    folder = tmp_path / "preset"
    write_checkpoint(made, folder, "keras_hub")
    received = read_checkpoint(folder)
    received.check()
    assert_same(received, without_heads(made))
    assert received.family == "ELECTRA" and "exact form" in received.notes[0]
    assert json.loads((folder / "bert_config.json").read_text())["hidden_act"] == "gelu_exact"
    backbone = keras_hub.models.ElectraBackbone.from_preset(str(folder))
    batch = make_batch(made.config, np.random.default_rng(0))
    expected = backbone(their_inputs(batch))["sequence_output"]
    exact = BertEncoder.from_checkpoint(received)(batch)["sequence_output"]
    theirs = dataclasses.replace(received, config=as_computed(made.config, "keras_hub", "ELECTRA"))
    assert_close(BertEncoder.from_checkpoint(theirs)(batch)["sequence_output"], expected, batch)
    real = batch["input_mask"].astype(bool)
    assert 1e-4 < np.abs(np.asarray(exact) - np.asarray(expected))[real].max() < 0.5


@pytest.mark.parametrize(
    ("class_name", "key"), [("BertBackbone", "vocabulary_size"), ("ElectraBackbone", "vocab_size")]
)
def test_the_tokenizer_of_a_preset(tmp_path, class_name, key):
    vocab = make_vocab(60, True)
    vocab.write(tmp_path / "assets" / "tokenizer" / "vocabulary.txt")
    config = {"class_name": class_name, "config": {key: 60}}
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert load_tokenizer(tmp_path).vocab == vocab
    (tmp_path / "config.json").write_text(json.dumps({**config, "config": {}}))
    with pytest.raises(ValueError, match=f"config.json .*{key};"):
        load_tokenizer(tmp_path)


def without_heads(checkpoint):
    weights = {n: v for n, v in checkpoint.weights.items() if not n.startswith("cls/")}
    return dataclasses.replace(checkpoint, weights=weights)


@pytest.mark.parametrize("width", [pytest.param(6, marks=pytest.mark.slow), 8])
def test_electras_that_keras_hub_wrote(tmp_path, width):
    """With tables narrower than the layers and as wide; weights alone show the first alone."""
    sizes = {"num_layers": 2, "num_heads": 2, "hidden_dim": 8, "intermediate_dim": 12}
    backbone = keras_hub.models.ElectraBackbone(
        vocab_size=31, embedding_dim=width, max_sequence_length=9, **sizes
    )
    backbone.save_to_preset(str(tmp_path / "preset"))
    backbone.save_weights(str(tmp_path / "a.weights.h5"))
    batch = make_batch(read_checkpoint(tmp_path / "preset").config, np.random.default_rng(0))
    expected = backbone(their_inputs(batch))["sequence_output"]
    for path in ("preset", "a.weights.h5")[: 2 if width == 6 else 1]:
        received = read_checkpoint(tmp_path / path)
        received.check()
        assert (received.family, received.heads) == ("ELECTRA", ())
        config = received.config
        assert (config.table_width, config.hidden_act) == (width, "gelu_exact")
        theirs = dataclasses.replace(received, config=as_computed(config, "keras_hub", "ELECTRA"))
        assert_close(BertEncoder.from_checkpoint(theirs)(batch)["sequence_output"], expected, batch)


def test_arrays_that_are_not_plain(tmp_path):
    path = tmp_path / "x.weights.h5"
    name = "layers/reversible_embedding/vars/0"
    (tmp_path / "secret").write_bytes(b"s" * 400)
    external = [(str(tmp_path / "secret"), 0, 400)]
    for arguments in (
        {"data": [b"text"]},
        {"data": np.zeros(3, np.int8)},
        {"shape": (10**7, 10**7), "dtype": "float32", "chunks": (8, 8)},
        {"shape": (100,), "dtype": "float32", "external": external},
    ):
        with h5py.File(path, "w") as file:
            file.create_dataset(name, **arguments)
        with pytest.raises(ValueError, match=rf"x.weights.h5 .*({name} | \d+ bytes)"):
            read_checkpoint(path)


def test_all_arrays_together_are_bounded_before_one_is_read(tmp_path, monkeypatch):
    """Compressed to nothing: each is smaller than the bound, all together are not."""
    path = tmp_path / "x.weights.h5"
    with h5py.File(path, "w") as file:
        for number in range(40):
            zeros = np.zeros((100, 1000), np.float32)
            file.create_dataset(f"layers/{number}", data=zeros, chunks=True, compression="gzip")
        file.create_dataset("noise", data=np.random.default_rng(0).random(30_000, np.float32))
    assert 4 * path.stat().st_size > 100 * 1000 * 4
    monkeypatch.setattr(h5py.Dataset, "__array__", None)
    with pytest.raises(ValueError, match="x.weights.h5 .* 16120000 bytes,"):
        read_checkpoint(path)
    with h5py.File(path, "w") as file:
        options = {"chunks": (1000, 10_000), "maxshape": (None, 10_000), "compression": "gzip"}
        file.create_dataset("layers/0", shape=(1, 10_000), dtype="float32", **options)[...] = 0
    with pytest.raises(ValueError, match="x.weights.h5 .* 40000000 bytes,"):
        read_checkpoint(path)


def test_files_that_are_no_bert(tmp_path):
    (tmp_path / "x.weights.h5").write_bytes(b"nothing")
    with pytest.raises(ValueError, match="x.weights.h5.*Keras weights file"):
        read_checkpoint(tmp_path / "x.weights.h5")
    _, folder = write(tmp_path, "encoder with pooler", 4)
    path = tmp_path / "preset" / "config.json"
    values = json.loads(path.read_text())
    path.write_text(json.dumps({**values, "class_name": "RobertaBackbone"}))
    for read in (read_checkpoint, load_tokenizer):
        with pytest.raises(ValueError, match="class_name.*RobertaBackbone"):
            read(folder)
    path.write_text(json.dumps({**values, "config": {"num_layers": 2}}))
    with pytest.raises(ValueError, match="config.json .*'hidden_dim', 'intermediate_dim'"):
        read_checkpoint(folder)
    for key in ("hidden_dim", "num_layers", "dropout"):
        path.write_text(json.dumps({**values, "config": {**values["config"], key: None}}))
        with pytest.raises(ValueError, match=rf"config.json.*\b{key}\b"):
            read_checkpoint(folder)
    path.write_text(json.dumps(values))
    weights = tmp_path / "preset" / "model.weights.h5"
    weights.write_bytes(weights.read_bytes()[:500])
    with pytest.raises(ValueError, match="model.weights.h5.*Keras weights file"):
        read_checkpoint(folder)
    relu = make_checkpoint("encoder with pooler", 5, hidden_act="relu")
    with pytest.raises(ValueError, match="keras-hub.*hidden_act relu"):
        write_checkpoint(relu, tmp_path / "relu", "keras_hub")
    assert not (tmp_path / "relu").exists()
