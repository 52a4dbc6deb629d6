"""TSDAE's decoder beside one of NumPy, text by text; who sees what; where gradients go."""

import dataclasses
from unittest import mock

import keras
import numpy as np
import pytest
import tensorflow as tf

from bert_tf.checkpoints.embedding import DECODER, DenseStep, EmbeddingConfig
from bert_tf.checkpoints.tf_bundle import bundle_names
from bert_tf.config import ModelConfig
from bert_tf.network import attention
from bert_tf.network.dropout import dropout
from bert_tf.network.encoder import BertEncoder
from bert_tf.network.layout import find_layout
from bert_tf.network.losses import class_losses
from bert_tf.network.pretrained import checkpoint_variables
from bert_tf.tasks.embedding.model import BertEmbedder
from bert_tf.tasks.embedding.tsdae_model import BertDenoiser, VectorAttention
from bert_tf.tasks.embedding.tsdae_noise import INPUTS, WHOLE
from bert_tf.text.vocab import Vocab
from tests.conftest import LETTERS, SPECIAL_TOKENS
from tests.float_bounds import close_to

CONFIG = ModelConfig(
    vocab_size=23,
    hidden_size=8,
    num_hidden_layers=2,
    num_attention_heads=2,
    intermediate_size=12,
    max_position_embeddings=12,
    hidden_act="gelu_tanh",
    hidden_dropout_prob=0.0,
    attention_probs_dropout_prob=0.0,
    initializer_range=0.4,
)
WHOLES = ([2, 7, 8, 9, 10, 11, 3], [2, 12, 3], [2, 9, 7, 20, 3])
DAMAGED = ([2, 8, 21, 3], [2, 12, 3], [2, 9, 3])
CLS = EmbeddingConfig(("cls",), max_seq_length=12)


def denoiser(config=CONFIG, embedding=CLS, **options):
    """Returns a model all of whose weights are random, biases too."""
    keras.utils.set_random_seed(5)
    model = BertDenoiser(config, embedding, **options)
    draw = np.random.default_rng(5)
    for variable in model.weights:
        noise = draw.normal(scale=0.1, size=variable.shape).astype(np.float32)
        variable.assign(variable + noise)
    return model


def batch_of(damaged=DAMAGED, whole=WHOLES):
    """Returns a batch, padded by more than it needs."""
    batch = {}
    for start, texts in (("", damaged), (WHOLE, whole)):
        length = max(map(len, texts)) + 2
        ids = np.array([text + [0] * (length - len(text)) for text in texts], np.int32)
        mask = (np.arange(length) < np.array([[len(text)] for text in texts])).astype(np.int32)
        values = dict(zip(INPUTS, (ids, mask, np.zeros_like(ids)), strict=True))
        batch |= {start + name: tf.constant(value) for name, value in values.items()}
    return batch


def loss_of(model, batch, **options):
    found = model(batch, **options)
    weights = tf.cast(found["weights"], tf.float32)
    losses = class_losses(found["logits"], found["labels"])
    return tf.reduce_sum(losses * weights) / tf.reduce_sum(weights)


def twin_loss(weights, damaged=DAMAGED, whole=WHOLES):
    """The mean loss of the pieces, in float64 and by loops; `weights` by names of variables."""

    def dense(x, name):
        return x @ weights[f"{name}/kernel"] + weights[f"{name}/bias"]

    def norm(x, name):
        normal = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-12)
        return normal * weights[f"{name}/LayerNorm/gamma"] + weights[f"{name}/LayerNorm/beta"]

    def gelu(x):
        return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))

    def run(ids, vector):
        start = "bert/embeddings"
        words = weights[f"{start}/word_embeddings"][ids]
        places = weights[f"{start}/position_embeddings"][: len(ids)]
        x = norm(words + places + weights[f"{start}/token_type_embeddings"][0], start)
        for layer in range(CONFIG.num_hidden_layers):
            name = f"bert/encoder/layer_{layer}"
            q, k, v = (dense(x, f"{name}/attention/self/{p}") for p in ("query", "key", "value"))
            context = np.zeros_like(x)
            for place in range(len(ids)):
                seen = len(ids) if vector is None else place + 1
                for head in range(2):
                    part = slice(4 * head, 4 * head + 4)
                    scores = k[:seen, part] @ q[place, part] / np.sqrt(4)
                    probs = np.exp(scores - scores.max())
                    context[place, part] = probs / probs.sum() @ v[:seen, part]
            output = f"{name}/attention/output"
            x = norm(x + dense(context, f"{output}/dense"), output)
            if vector is not None:
                # With query and key, as the paper has it: their only score has the weight 1.
                cross = f"denoiser/cross_{layer}"
                found = dense(dense(vector, f"{cross}/value"), f"{cross}/output/dense")
                x = norm(x + found, f"{cross}/output")
            inner = gelu(dense(x, f"{name}/intermediate/dense"))
            x = norm(x + dense(inner, f"{name}/output/dense"), f"{name}/output")
        return x

    losses = []
    for left, ids in zip(damaged, whole, strict=True):
        vector = run(left, None)[0]
        head = "denoiser/predictions"
        x = gelu(dense(run(ids[:-1], vector), f"{head}/transform/dense"))
        x = norm(x, f"{head}/transform") @ weights["bert/embeddings/word_embeddings"].T
        x += weights[f"{head}/output_bias"]
        losses += [
            np.log(np.exp(row).sum()) - row[label] for row, label in zip(x, ids[1:], strict=True)
        ]
    return np.mean(losses)


def values_of(model):
    return {n: np.asarray(v).astype(np.float64) for n, v in checkpoint_variables(model).items()}


@pytest.mark.parametrize("unpad", [True, False])
def test_loss_and_gradient_are_those_of_the_twin(unpad):
    model = denoiser(unpad=unpad)
    # Of 7, 3 and 5 pieces all but the first are found, padded to 9: to 8.
    assert len(model(batch_of())["labels"]) == (12 if unpad else 24)
    variables, values = checkpoint_variables(model), values_of(model)
    with tf.GradientTape() as tape:
        # No dropout, but LayerNorm's own gradient.
        loss = loss_of(model, batch_of(), training=True, dropout_seed=tf.constant(1))
    assert float(loss) == close_to(twin_loss(values))
    slopes = tape.gradient(loss, [variable.value for variable in variables.values()])
    slopes = {n: tf.convert_to_tensor(s).numpy() for n, s in zip(variables, slopes, strict=True)}
    draw = np.random.default_rng(3)
    for chosen in ("bert/embeddings", "bert/encoder/layer_0", "bert/encoder/layer_1", DECODER):
        # Along a random direction: by the gradient, and by the twin's difference quotient.
        way = {n: draw.normal(size=v.shape) * n.startswith(chosen) for n, v in values.items()}
        ends = [twin_loss({n: v + h * way[n] for n, v in values.items()}) for h in (1e-5, -1e-5)]
        expected = (ends[0] - ends[1]) / 2e-5
        found = sum((slopes[n] * way[n]).sum() for n in values)
        assert found == pytest.approx(expected, rel=1e-3), chosen


@pytest.mark.slow
def test_dropout_and_recomputation(monkeypatch):
    config = dataclasses.replace(CONFIG, hidden_dropout_prob=0.2, attention_probs_dropout_prob=0.1)
    models = [denoiser(config, unpad=True, recompute=again) for again in (False, True)]
    found, counts = [], []
    for model in models:
        remat = mock.Mock(wraps=keras.remat)
        monkeypatch.setattr(keras, "remat", remat)
        with tf.GradientTape() as tape:
            loss = loss_of(model, batch_of(), training=True, dropout_seed=tf.constant(4))
        slopes = tape.gradient(loss, [v.value for v in model.trainable_variables])
        found.append([loss, *map(tf.convert_to_tensor, slopes)])
        counts.append(remat.call_count)
    assert counts == [0, 4]  # Two layers, which two passes go through.
    for one, other in zip(*found, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-6)
    other = loss_of(models[0], batch_of(), training=True, dropout_seed=tf.constant(5))
    assert abs(float(other) - float(found[0][0])) > 1e-3
    seeds, embed = [], BertEncoder.embed

    def spy(self, inputs, dropout_seed, layout):
        seeds.append(int(dropout_seed))
        return embed(self, inputs, dropout_seed, layout)

    monkeypatch.setattr(BertEncoder, "embed", spy)
    loss_of(models[0], batch_of(), training=True, dropout_seed=tf.constant(4))
    assert len(set(seeds)) == 2  # The decoder's masks are others than the encoder's.
    loss_of(models[0], batch_of(), training=True)


def test_decoder_layers_that_share_weights_drop_other_elements(monkeypatch):
    model = denoiser(dataclasses.replace(CONFIG, num_layer_groups=1, hidden_dropout_prob=0.3))
    batch = batch_of()
    vectors = tf.ones([len(WHOLES), CONFIG.hidden_size])
    whole = {name: batch[WHOLE + name] for name in INPUTS}
    seed = tf.constant(7)
    received = model.reconstruct(vectors, whole, True, seed)["logits"]
    np.testing.assert_array_equal(model.reconstruct(vectors, whole, True, seed)["logits"], received)
    monkeypatch.setattr(BertEncoder, "layer_dropout_seed", lambda _, index, seed: seed)
    same_masks = model.reconstruct(vectors, whole, True, seed)["logits"]
    assert np.abs(received - same_masks).max() > 0.1


def test_attention_to_a_vector_is_its_value_for_every_piece():
    config = dataclasses.replace(CONFIG, hidden_dropout_prob=0.5)
    layer, lengths = VectorAttention(config, 1), [4, 1, 2]
    layer.build((None, 5))
    layout = find_layout({"input_mask": tf.sequence_mask(lengths, dtype=tf.int32)}, unpad=True)
    draw = np.random.default_rng(2)
    inputs, vectors = (draw.normal(size=s).astype(np.float32) for s in ([7, 8], [3, 5]))
    found = layer(inputs, vectors, layout=layout, dropout_seed=tf.constant(3))
    context = np.repeat(layer.dense(layer.value(vectors)), lengths, axis=0)
    # 0 is the dropout of the embeddings, 1 to 6 are those of the two layers, 7 the first one's.
    dropped = dropout(context, 0.5, tf.constant(3), 8)
    np.testing.assert_allclose(found, layer.layer_norm(inputs + dropped), atol=1e-6)
    still = layer(inputs, vectors, layout=layout)
    np.testing.assert_allclose(still, layer.layer_norm(inputs + context), atol=1e-6)


@pytest.mark.parametrize(
    "changes",
    [
        {"position_type": "rotary"},
        pytest.param({"position_type": "alibi"}, marks=pytest.mark.slow),
        {"embedding_size": 4, "num_layer_groups": 1},
        {"local_attention": 2, "global_attention_every": 2},
    ],
)
def test_other_networks_are_causal_too(changes, monkeypatch):
    """And the embedding may be of another size, as after several poolings or a dense layer."""
    # Local attention of rows as short as these is cut in chunks, too, where it may be.
    monkeypatch.setattr(attention, "MAX_FULL_BLOCKS", 1)
    monkeypatch.setattr(attention, "MIN_BLOCK_SIZE", 1)
    config = dataclasses.replace(CONFIG, **changes)
    embedding = EmbeddingConfig(("cls", "mean"), (DenseStep(16, 5),), True, max_seq_length=12)
    model = denoiser(config, embedding, unpad=True)
    others = [list(text) for text in WHOLES]
    others[0][5] = 15
    found = [model(batch_of(whole=whole))["logits"].numpy() for whole in (WHOLES, others)]
    np.testing.assert_allclose(found[0][:5], found[1][:5], atol=1e-6)
    assert np.abs(found[0][5] - found[1][5]).max() > 1e-3


def test_without_whole_texts_it_is_the_embedder_and_is_saved_as_one(tmp_path):
    vocab = Vocab((*SPECIAL_TOKENS, *LETTERS[: CONFIG.vocab_size - len(SPECIAL_TOKENS)]))
    model, batch = denoiser(vocab=vocab), batch_of()
    inputs = {name: batch[name] for name in INPUTS}
    model.save_pretrained(tmp_path / "saved", "bert_tf")
    names = bundle_names(str(tmp_path / "saved/bert_model.ckpt"))
    assert names and not [name for name in names if DECODER in name]
    saved = BertEmbedder.from_pretrained(tmp_path / "saved")
    np.testing.assert_array_equal(model(inputs), saved(inputs))


def test_pre_norm_blocks_are_refused():
    with pytest.raises(ValueError, match="block_type .*pre_norm.* denoising"):
        denoiser(dataclasses.replace(CONFIG, block_type="pre_norm"))
