"""What a run starts from: everything comes along, and contradictions stop it at once."""

import dataclasses
import json

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.checkpoints.formats import write_checkpoint
from bert_tf.checkpoints.start import (
    check_output_dir,
    has_pooler,
    keep_vocabulary,
    read_begun,
    read_start,
    starts_of_names,
)
from bert_tf.config import (
    DataConfig,
    MaskingConfig,
    ObjectiveConfig,
    OptimizerConfig,
    PretrainingConfigs,
    TrainingConfig,
)
from bert_tf.network.encoder import BertEncoder
from bert_tf.network.pretrained import assign_checkpoint, checkpoint_variables
from bert_tf.pretraining.build import make_model
from bert_tf.pretraining.masked_words.model import BertPretrainer
from bert_tf.tasks.classification.model import BertClassifier
from bert_tf.text.vocab import Vocab
from bert_tf.training.checkpointing import RunDirectory, read_fingerprint
from tests.checkpoints.made_checkpoint import assert_same, make_checkpoint

PRETRAINING = ("masked_lm", "pooler", "next_sentence")


@pytest.fixture(name="made")
def fixture_made():
    return make_checkpoint("pretrained", 4, do_lower_case=True, vocab_size=70)


@pytest.fixture(name="path")
def fixture_path(made, tmp_path):
    write_checkpoint(made, tmp_path / "model", "huggingface")
    return str(tmp_path / "model")


def test_all_comes_along(path, made):
    assert_same(read_start(path, {}, PRETRAINING), made)


def test_what_is_free_is_taken_from_the_flags(path, made):
    given = {
        "hidden_dropout_prob": 0.5,
        "attention_probs_dropout_prob": 0.25,
        "max_position_embeddings": 50,
        "hidden_size": made.config.hidden_size,
    }
    start = read_start(path, given, PRETRAINING)
    assert start.config == dataclasses.replace(made.config, **given)
    table = start.weights["bert/embeddings/position_embeddings"]
    before = made.weights["bert/embeddings/position_embeddings"]
    np.testing.assert_array_equal(table, np.resize(before, table.shape))


def test_what_a_new_classifier_reads_is_free(tmp_path):
    """An encoder without a pooler, then a classifier on one, whose head is kept or replaced."""
    chosen = {"classifier_pooling": "cls"}
    write_checkpoint(make_checkpoint("encoder", 5), tmp_path / "encoder", "bert_tf")
    start = read_start(str(tmp_path / "encoder"), chosen, ("pooler",))
    assert start.config.classifier_pooling == "cls"
    with pytest.raises(ValueError, match="--allow_missing=bert/pooler/"):
        read_start(str(tmp_path / "encoder"), {}, ("pooler",))
    path = str(tmp_path / "classifier")
    write_checkpoint(make_checkpoint("classifier", 6), path, "bert_tf")
    with pytest.raises(ValueError, match="classifier_pooling=cls,.*pooler"):
        read_start(path, chosen, ("pooler",))
    start = read_start(path, chosen, ("pooler",), new_head=True)
    assert start.config.classifier_pooling == "cls"


def test_what_contradicts_the_weights_is_refused(path):
    for given, message in (
        ({"hidden_size": 7}, "--hidden_size=7,"),
        ({"do_lower_case": False}, "--do_lower_case=False,.*True"),
        ({"hidden_act": "relu"}, "--hidden_act=relu,.*gelu"),
    ):
        with pytest.raises(ValueError, match=message):
            read_start(path, given, PRETRAINING)
    with pytest.raises(ValueError, match="/model .*--bert_config_file"):
        read_start(path, {}, PRETRAINING, config_file="x.json")


def test_missing_heads_must_be_named(tmp_path):
    made = make_checkpoint("encoder", 5)
    write_checkpoint(made, tmp_path / "model", "huggingface")
    path = str(tmp_path / "model")
    with pytest.raises(ValueError) as error:
        read_start(path, {}, PRETRAINING)
    named = "--allow_missing=bert/pooler/,cls/predictions/,cls/seq_relationship/."
    assert named in str(error.value) and "(9): bert/pooler/dense/bias," in str(error.value)
    start = read_start(path, {}, PRETRAINING, allow_missing=starts_of_names("bert/pooler/, cls/"))
    assert_same(start, made)
    assert not has_pooler(str(tmp_path / "run"), start) and has_pooler(str(tmp_path), None)


def test_a_pooler_that_no_loss_reaches_is_not_decayed(tmp_path, made):
    path, name = str(tmp_path), "bert/pooler/dense/kernel"
    directory = RunDirectory(path, {name: tf.Variable(0.0)})
    directory.save(3, {"data_fingerprint": "abc"})
    directory.save(4, {"data_fingerprint": "abc"})
    (tmp_path / "model.ckpt-3.index").write_bytes(b"damaged")
    assert has_pooler(path, None) and read_begun(path, read_fingerprint) == "abc"
    groups = (DataConfig(use_next_sentence=False), MaskingConfig(), OptimizerConfig())
    training = TrainingConfig(output_dir=path)
    model = make_model(
        PretrainingConfigs(made.config, *groups, training, ObjectiveConfig()), start=None
    )
    paths = {variable.path for variable in model.trainable_variables}
    assert not {name, "bert/pooler/dense/bias"} & paths
    assert name in checkpoint_variables(model)


def test_a_checkpoint_without_vocabulary_takes_the_one_given(tmp_path, made):
    bare = dataclasses.replace(made, vocab=None)
    write_checkpoint(bare, tmp_path / "model", "bert_tf")
    made.vocab.write(tmp_path / "vocab.txt")
    path = str(tmp_path / "model")
    with pytest.raises(ValueError, match="--vocab_file"):
        read_start(path, {}, PRETRAINING)
    assert_same(read_start(path, {}, PRETRAINING, vocab_file=str(tmp_path / "vocab.txt")), made)
    Vocab((*made.vocab.tokens, "more")).write(tmp_path / "long.txt")
    with pytest.raises(ValueError, match="71.*70 rows"):
        read_start(path, {}, PRETRAINING, vocab_file=str(tmp_path / "long.txt"))
    Vocab(made.vocab.tokens[:-1]).write(tmp_path / "short.txt")
    start = read_start(path, {}, PRETRAINING, vocab_file=str(tmp_path / "short.txt"))
    assert start.vocab.tokens == (*made.vocab.tokens[:-1], "[row69]")


def test_a_casing_that_nothing_states_may_be_given(tmp_path, made):
    letters = [token for token in made.vocab.tokens if token.islower()]
    write_checkpoint(made, tmp_path / "model", "google")
    config = tmp_path / "model" / "bert_config.json"
    values = json.loads(config.read_text())
    del values["do_lower_case"]
    config.write_text(json.dumps(values))
    path = str(tmp_path / "model")
    start = read_start(path, {}, PRETRAINING)
    assert start.config.do_lower_case and "uncased" in start.notes[-1] and letters
    start = read_start(path, {"do_lower_case": False}, PRETRAINING)
    assert start.config.do_lower_case is False
    # What the files do state is not overridden, also by a vocabulary that looks otherwise.
    bare = dataclasses.replace(
        made, vocab=None, config=dataclasses.replace(made.config, do_lower_case=False)
    )
    write_checkpoint(bare, tmp_path / "stated", "bert_tf")
    made.vocab.write(tmp_path / "vocab.txt")
    start = read_start(
        str(tmp_path / "stated"), {}, PRETRAINING, vocab_file=str(tmp_path / "vocab.txt")
    )
    assert start.config.do_lower_case is False


def test_weights_of_the_encoder_may_be_missing_too(path, tmp_path):
    name = "bert/embeddings/position_embeddings"
    made = make_checkpoint("encoder", 9)
    weights = {key: value for key, value in made.weights.items() if key != name}
    broken = dataclasses.replace(made, weights=weights)
    with pytest.raises(
        ValueError, match=r"\(1\): bert/embeddings/position_embeddings;.*--allow_missing"
    ):
        broken.check(allow_missing=())
    broken.check(allow_missing=name)
    model = BertEncoder.from_checkpoint(broken, allow_missing=[name])
    assert np.abs(model.embeddings.position_embeddings.numpy()).max() < 1


def test_frozen_models_are_loaded_too(path, made):
    model = BertEncoder.from_pretrained(path, trainable=False)
    assert not model.trainable_variables
    table = model.embeddings.word_embeddings.numpy()
    np.testing.assert_array_equal(table, made.weights["bert/embeddings/word_embeddings"])


def test_a_run_does_not_begin_in_somebodys_folder(path, tmp_path):
    with pytest.raises(ValueError, match="--init_check"):
        check_output_dir(path)
    (tmp_path / "model" / "run.flags").write_text("")
    check_output_dir(path)
    check_output_dir(str(tmp_path / "new"))


def test_a_vocabulary_is_kept_under_the_name_of_its_content(tmp_path, made):
    path = keep_vocabulary(made.vocab, tmp_path)
    assert Vocab.read(path) == made.vocab and keep_vocabulary(made.vocab, tmp_path) == path
    other = Vocab((*made.vocab.tokens, "more"))
    assert keep_vocabulary(other, tmp_path) != path
    path.write_text(path.read_text().replace("[CLS]", "[cLS]"))
    assert Vocab.read(keep_vocabulary(made.vocab, tmp_path)) == made.vocab


def test_every_replica_gets_the_weights(made):
    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    with strategy.scope():
        model = BertPretrainer(made.config)
        assign_checkpoint(model, made)
    for name, variable in checkpoint_variables(model).items():
        copies = strategy.experimental_local_results(variable.value)
        assert len(copies) == 2
        for copy in copies:
            np.testing.assert_array_equal(copy.numpy(), made.weights[name])


def test_a_new_head_must_be_named_and_others_are_left_out(made, path):
    with pytest.raises(ValueError, match=r"labels=.*num_labels"):
        BertClassifier.from_pretrained(path)
    model = BertClassifier.from_pretrained(path, num_labels=3)
    variables = checkpoint_variables(model)
    assert {"cls/classifier/output_weights", "cls/classifier/output_bias"} <= set(variables)
    assert not any(name.startswith("cls/predictions") for name in variables)
    for name in set(variables) & set(made.weights):
        np.testing.assert_array_equal(variables[name].numpy(), made.weights[name])
