"""`BertClassifier.from_few_shot`: a classifier from a few labelled texts."""

import dataclasses

import keras
import numpy as np
import pytest
import tensorflow as tf

import bert_tf
from bert_tf.config.ranking_config import RetrieverConfig
from bert_tf.corpus.mapping import ALL
from bert_tf.tasks.classification.few_shot import classifier_config, names_in
from bert_tf.tasks.classification.pairs import make_pairs, pair_examples
from bert_tf.tasks.embedding.features import TextPacker, prepare_training
from bert_tf.tasks.embedding.sides import embed_sides
from bert_tf.tasks.embedding.task import DenoisingTask
from bert_tf.tasks.embedding.tsdae_model import BertDenoiser
from tests.fine_tune import LABELS, WORDS, texts
from tests.float_bounds import assert_close, close_to
from tests.tiny_model import write_tiny_model

TEXTS = [row["text"] for row in texts(24)]
NAMES = [row["label"] for row in texts(24)]
FEW = {"epochs": 3, "learning_rate": 3e-3, "batch_size": 32, "verbose": 0}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_tiny_model(tmp_path_factory.mktemp("few") / "model", *WORDS, num_hidden_layers=1)


@pytest.fixture(scope="module")
def embedder(folder):
    return bert_tf.BertEmbedder.from_pretrained(folder, normalize=True, max_seq_length=16)


@pytest.mark.slow
def test_learns_and_is_saved(embedder, tmp_path):
    before = embedder.encode(TEXTS)
    keras.utils.set_random_seed(1)
    model = bert_tf.BertClassifier.from_few_shot(embedder, TEXTS, NAMES, **FEW)
    np.testing.assert_array_equal(embedder.encode(TEXTS), before)  # The given model is unchanged.
    assert model.labels == tuple(sorted(LABELS.values()))
    assert model.config.classifier_pooling == "normalized_mean"
    assert model.max_seq_length == 16
    assert [answer["label"] for answer in model.classify(TEXTS)] == NAMES
    model.save(tmp_path / "model.keras")
    loaded = bert_tf.load(tmp_path / "model.keras").probabilities(TEXTS)
    for row, expected in zip(loaded, model.probabilities(TEXTS), strict=True):
        assert row == close_to(expected)


@pytest.mark.slow
def test_the_head_reads_the_vectors_of_the_embedder(embedder):
    few = {**FEW, "learning_rate": 1e-12}  # Leaves the embedder nearly as it is.
    model = bert_tf.BertClassifier.from_few_shot(embedder, TEXTS, NAMES, **few)
    logits = embedder.encode(TEXTS) @ model.head.output_weights.numpy().T
    assert_close(model.compute_logits(TEXTS), logits + model.head.output_bias.numpy())


@pytest.mark.slow
def test_several_labels(folder):
    sets = [
        [name, "film"] if "very" in text else [name]
        for text, name in zip(TEXTS, NAMES, strict=True)
    ]
    keras.utils.set_random_seed(1)
    model = bert_tf.BertClassifier.from_few_shot(
        folder, TEXTS, sets, problem_type="multi_label", **{**FEW, "epochs": 1}
    )
    assert model.problem_type == "multi_label" and model.config.classifier_pooling == "mean"
    found = [set(answer["labels"]) for answer in model.classify(TEXTS)]
    rights = [one == set(other) for one, other in zip(found, sets, strict=True)]
    assert np.mean(rights) > 0.8


@pytest.mark.parametrize(
    ("options", "loss", "batch_size"),
    [({"sampling": "unique"}, "cosine", 16), ({}, "same_label", 12)],
)
def test_the_pairs_that_are_trained_on(embedder, monkeypatch, options, loss, batch_size):
    seen = {}

    def fit(self, x, **options):
        seen.update(x=x, **options)

    monkeypatch.setattr(bert_tf.BertEmbedder, "fit", fit)
    bert_tf.BertClassifier.from_few_shot(
        embedder, TEXTS, NAMES, pairs_per_example=4, seed=5, **options
    )
    ids = np.unique(NAMES, return_inverse=True)[1]
    pairs = make_pairs(ids, options.get("sampling", "in_batch"), 4, seed=5)
    for example, (first, second), score in zip(seen["x"], pairs.indices, pairs.scores, strict=True):
        assert (example.query, example.positive) == (TEXTS[first], TEXTS[second])
        if loss == "cosine":
            assert example.scores == (score,)
    # Batches of 16 pairs without a repeated text would need 32 texts.
    assert (seen["loss"], seen["batch_size"], seen["epochs"]) == (loss, batch_size, 1)
    assert seen["learning_rate"] == 2e-5


def in_batch_groups(embedder, pairs_per_example):
    """Returns the examples of `TEXTS`, as `fit` makes batches of them, and their labels."""
    ids = np.unique(NAMES, return_inverse=True)[1]
    examples = pair_examples(TEXTS, TEXTS, ids, "in_batch", pairs_per_example, seed=0)
    packer = TextPacker(embedder.tokenizer, embedder.embedding)
    settings = RetrieverConfig(retrieval_loss="same_label")
    return prepare_training(packer, examples, settings, True)[0].rows


def test_batches_hold_several_texts_of_several_labels(embedder):
    groups = in_batch_groups(embedder, pairs_per_example=4)
    assert groups.batches_per_epoch(6) == 8  # 24 texts x 2 pairs
    for step in range(8):
        chosen, epoch = groups.choose(step, 6, 1)
        batch = groups.batch(chosen, epoch, 6, groups.longest(chosen, epoch))
        pairs = groups.texts[np.stack([groups.queries[chosen], groups.positives[chosen]], axis=1)]
        texts = [set(pair) for pair in pairs.tolist()]
        assert sum(map(len, texts)) == len(set.union(*texts))
        counts = batch["scores"].reshape(-1, 3).sum(axis=0)
        assert counts.sum() == 2 * len(chosen) >= 4
        assert (counts > 0).sum() >= 2 and counts.max() >= 2


@pytest.mark.parametrize("unpad", [True, False])
def test_one_pass_embeds_both_texts_of_a_pair(embedder, unpad):
    groups = in_batch_groups(embedder, pairs_per_example=2)
    chosen, epoch = groups.choose(0, 6, 1)
    batch = groups.batch(chosen, epoch, 8, groups.longest(chosen, epoch))
    inputs = {name: tf.constant(value) for name, value in batch.items()}
    embedder.bert.leave_out_padding(unpad)

    def compute(texts, seed, side):
        return embedder(texts)

    joint = embed_sides(compute, inputs, None, joint=True)
    for together, apart in zip(joint, embed_sides(compute, inputs, None), strict=True):
        assert_close(together, apart)


@pytest.mark.slow
def test_unlabelled_texts_are_reconstructed_first(embedder, monkeypatch):
    fits = []
    noted = bert_tf.BertEmbedder.fit

    def fit(self, x, **options):
        before = self.encode(TEXTS)
        history = noted(self, x, **options)
        fits.append((type(self), len(x), before, self.encode(TEXTS), history.history["loss"]))
        return history

    monkeypatch.setattr(bert_tf.BertEmbedder, "fit", fit)
    keras.utils.set_random_seed(1)
    unlabelled = [text.replace("film", "bad film") for text in TEXTS]
    model = bert_tf.BertClassifier.from_few_shot(
        embedder, TEXTS, NAMES, unlabelled_texts=unlabelled, **FEW
    )
    (first, count, before, adapted, losses), (second, _, start, _, _) = fits
    assert first is BertDenoiser and count == 24 and second is bert_tf.BertEmbedder
    np.testing.assert_array_equal(before, embedder.encode(TEXTS))
    np.testing.assert_array_equal(start, adapted)  # Pairs are trained on after the domain.
    assert np.abs(adapted - before).max() > 1e-3
    assert losses[-1] < losses[0]
    assert model.classify(TEXTS)[0]["label"] in LABELS.values()
    with pytest.raises(ValueError, match="'  '"):
        bert_tf.BertClassifier.from_few_shot(
            embedder, TEXTS, NAMES, unlabelled_texts=["a", "  "], **FEW
        )


def test_the_loss_of_reconstruction_is_the_program_s(embedder):
    model = BertDenoiser(embedder.config, embedder.embedding, vocab=embedder.vocab)
    examples = model.read_examples(TEXTS)
    data, steps = model.raw_input.training_data(examples, 8, seed=3)
    assert steps == 3
    task = DenoisingTask(
        model, examples.rows, None, model.raw_input.buckets(examples.rows.whole), 3
    )
    expected = iter(task.train_dataset(8, 0, ALL))
    for (inputs, labels, _), batch, _ in zip(data, expected, range(4), strict=False):
        assert inputs.keys() == batch.keys()
        for name, value in inputs.items():
            np.testing.assert_array_equal(value, batch[name])
        outputs = model(inputs)
        found = model.task_loss(inputs, labels, outputs, None).mean()
        wanted = task.loss_and_metric_sums(batch, outputs)["loss"].mean()
        assert float(found) == float(wanted) > 0


def test_wrong_input_is_refused(embedder):
    for source, labels, options, named in (
        (embedder, ["a"] * 24, {}, "'a'"),
        (embedder, ["a"] * 23 + ["b"], {}, "'b'"),
        (embedder, ["Joy", "joy"] * 12, {}, "'joy'"),
        (embedder, NAMES[:-1], {}, "23 .* 24 "),
        (embedder, [*NAMES[:-1], None], {}, r"labels\[23\]"),
        (embedder, NAMES, {"problem_type": "regression"}, "regression"),
        (None, NAMES, {}, "None"),
    ):
        with pytest.raises(ValueError, match=named):
            bert_tf.BertClassifier.from_few_shot(source, TEXTS, labels, **options)


@pytest.mark.parametrize("problem_type", ["single_label", "multi_label"])
@pytest.mark.parametrize("kind", [np.int64, np.float32, bool, list])
def test_decisions_need_the_names_of_the_labels(embedder, problem_type, kind):
    decisions = np.array([[0, 1, 1], [1, 0, 1]] * 12)
    labels = decisions.tolist() if kind is list else decisions.astype(kind)
    with pytest.raises(ValueError, match=r"\b24\b.*\b3\b.*names="):
        bert_tf.BertClassifier.from_few_shot(embedder, TEXTS, labels, problem_type=problem_type)


@pytest.mark.slow
def test_the_names_of_decisions(folder):
    decisions = np.array([[name == one for one in LABELS.values()] for name in NAMES])
    options = {"problem_type": "multi_label", "names": [*LABELS.values()], **FEW, "epochs": 1}
    model = bert_tf.BertClassifier.from_few_shot(folder, TEXTS, decisions, **options)
    assert model.labels == tuple(LABELS.values())
    # Lists of one or two indices are not decisions.
    assert names_in([[0], [1], [0, 1]], "multi_label", 3) == ("0", "1")
    assert names_in(np.array([3, 5]), "single_label", 2) == ("3", "5")


def test_poolings_that_a_classifier_has(embedder):
    config, embedding = embedder.config, embedder.embedding
    for pooling in ("cls", "mean"):
        for normalize, start in ((False, ""), (True, "normalized_")):
            changed = dataclasses.replace(embedding, pooling=(pooling,), normalize=normalize)
            assert classifier_config(config, changed).classifier_pooling == start + pooling
    for pooling in (("max",), ("cls", "mean")):
        with pytest.raises(ValueError, match=",".join(pooling)):
            classifier_config(config, dataclasses.replace(embedding, pooling=pooling))
