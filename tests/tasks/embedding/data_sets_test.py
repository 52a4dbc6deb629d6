"""Several data sets in one run: which batches come when, what is in them, and their losses."""

import collections
import functools

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.checkpoints.embedding import EmbeddingConfig
from bert_tf.config.ranking_config import RetrieverConfig
from bert_tf.tasks.base.examples.mixed_batches import MixedDataset
from bert_tf.tasks.embedding.examples import EmbeddingExample
from bert_tf.tasks.embedding.features import TextPacker, prepare_data_sets
from bert_tf.tasks.embedding.losses import Vectors, loss_of_data_set, make_loss
from bert_tf.text.tokenization import make_tokenizer
from bert_tf.text.vocab import Vocab
from tests.float_bounds import assert_close
from tests.tiny_model import tiny_words

SIZES = (12, 8, 4)
LOSSES = ("in_batch", "cosent", "triplet")
BATCH = 4


def examples(size: int, name: str, num_negatives: int = 0, has_score: bool = False):
    found = []
    for index in range(size):
        letter = chr(ord("a") + index)
        negatives = tuple(f"{letter} no {name} {i}" for i in range(num_negatives))
        scores = (index / size,) if has_score else ()
        texts = (f"{letter} {name}", f"{letter} {letter} yes {name}")
        found.append(EmbeddingExample(*texts, negatives, scores, f"{name}, line {index}"))
    return found


def make(mixing: str) -> MixedDataset:
    tokenizer = make_tokenizer(Vocab(tiny_words("yes", "no")), True)
    packer = TextPacker(tokenizer, EmbeddingConfig())
    task = RetrieverConfig(retrieval_loss=",".join(LOSSES), mixing=mixing)
    data_sets = [
        examples(SIZES[0], "one"),
        examples(SIZES[1], "two", has_score=True),
        examples(SIZES[2], "three", num_negatives=2),
    ]
    examples_to_train, names = prepare_data_sets(packer, data_sets, task, has_dropout=False)
    assert names == list(LOSSES)
    return examples_to_train.rows


@pytest.mark.parametrize(("mixing", "steps"), [("proportional", 6), ("in_turn", 3)])
def test_an_epoch_has_each_set_by_its_size_or_in_turn(mixing, steps):
    dataset = make(mixing)
    assert len(dataset) == steps * BATCH
    seen = collections.defaultdict(list)
    own_steps = collections.defaultdict(list)
    for step in range(2 * steps):
        index, own_step = dataset.locate(step, BATCH, seed=3)
        chosen, _ = dataset.choose(step, BATCH, seed=3)
        expected, _ = dataset.sets[index].choose(own_step, BATCH, seed=3)
        start = sum(SIZES[:index])
        np.testing.assert_array_equal(chosen, start + expected)
        seen[index] += [chosen]
        own_steps[index] += [own_step]
        if mixing == "in_turn":
            assert index == step % 3
    counts = [len(seen[index]) for index in range(3)]
    if mixing == "in_turn":
        assert counts == [2, 2, 2]
        assert all(steps == [0, 1] for steps in own_steps.values())
        return
    assert counts == [2 * size // BATCH for size in SIZES]
    for index, size in enumerate(SIZES):  # An epoch has each batch and example of a set once.
        assert sorted(own_steps[index]) == list(range(counts[index]))
        first = np.concatenate(seen[index][: size // BATCH])
        np.testing.assert_array_equal(np.sort(first), sum(SIZES[:index]) + np.arange(size))
    order = [dataset.locate(step, BATCH, seed=3)[0] for step in range(12)]
    others = [dataset.locate(step, BATCH, seed=4)[0] for step in range(12)]
    assert order[:6] != order[6:] or order != others


@pytest.mark.parametrize("index", range(3))
def test_a_batch_has_the_texts_and_the_loss_of_its_set(index):
    dataset = make("in_turn")
    chosen, epoch = dataset.choose(index, BATCH, seed=1)
    lengths = dataset.longest(chosen, epoch)
    batch = dataset.batch(chosen, epoch, BATCH, lengths)
    own = dataset.sets[index]
    expected = own.batch(*own.choose(0, BATCH, seed=1), BATCH, lengths)
    num_documents = expected["document_weights"].shape[1]
    for name, values in expected.items():
        part = tuple(map(slice, values.shape))  # Other sets have more documents and scores.
        np.testing.assert_array_equal(batch[name][part], values, name)
    assert batch["document/input_mask"].shape == (BATCH, 3, lengths[1])
    assert not batch["document_weights"][:, num_documents:].any()
    assert (batch["data_set"] == index).all()
    task = RetrieverConfig(matryoshka_dims="8,4")
    parts = [make_loss(name, task, 8) for name in LOSSES]
    rng = np.random.default_rng(index)
    queries = tf.constant(rng.normal(size=[BATCH, 8]), tf.float32)
    documents = tf.constant(rng.normal(size=[BATCH, 3, 8]), tf.float32)
    given = [documents, tf.constant(batch["document_weights"])]
    vectors = Vectors(queries, *given, tf.constant(batch["scores"]))
    compute = tf.function(functools.partial(loss_of_data_set, parts))
    found = compute(tf.constant(batch["data_set"]), vectors)
    own = [values[:, :num_documents] for values in given]
    alone = parts[index](Vectors(queries, *own, expected.get("scores")))
    assert_close(found.mean(), alone.mean())
