"""The forms of attention compute the same numbers, and lower to what they are for."""

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.config import ModelConfig
from bert_tf.network import attention, fused_attention
from bert_tf.network.attention import AttentionPattern, attend_from_scaled
from bert_tf.network.attention_form import attention_form
from bert_tf.network.encoder import BertEncoder
from bert_tf.network.layout import PaddedBatch, attention_bias
from bert_tf.network.softmax import softmax
from bert_tf.tasks.embedding.tsdae_model import CausalPattern
from tests.float_bounds import BFLOAT16, HALF, assert_close

B, T, N, H = 4, 6, 2, 8
LENGTHS = np.array([6, 4, 1, 0], np.int32)
MASK = (np.arange(T) < LENGTHS[:, None]).astype(np.int32)
REAL = MASK[:, :, None].astype(np.float32)
# The text of 6 tokens in a row, those of 4 and 1 in another.
PACKED = {"packed_positions": [[0, 1, 2, 3, 4, 5], [6, 7, 8, 9, 12, -1]]}
PACKED["packed_starts"] = [0, 6, 10, 0]
ROTARY = {"position_type": "rotary"}
WINDOWS = {**ROTARY, "local_attention": 2, "global_attention_every": 2}


def make_encoder(**fields) -> BertEncoder:
    shape = {"vocab_size": 30, "hidden_size": N * H, "num_attention_heads": N}
    shape |= {"num_hidden_layers": 2, "intermediate_size": 20, "max_position_embeddings": T}
    return BertEncoder(ModelConfig(**{**shape, **fields}))


def run(encoder: BertEncoder, form: str, packed: dict | None = None):
    """Returns the outputs at real tokens, and the gradients of the weights."""
    words = np.random.default_rng(1).integers(0, 30, (B, T)).astype(np.int32)
    batch = {"input_word_ids": words, "input_mask": MASK, "input_type_ids": words % 2}
    batch |= {name: np.array(values, np.int32) for name, values in (packed or {}).items()}
    with tf.GradientTape() as tape, attention_form(form):
        outputs = encoder(batch, training=True, dropout_seed=tf.constant(5))
        real = tf.cast(outputs["sequence_output"], tf.float32) * REAL
        loss = tf.reduce_sum(real**3) + tf.reduce_sum(outputs["pooled_output"] * REAL[:, 0])
    variables = [variable.value for variable in encoder.trainable_variables]
    return real.numpy(), tape.gradient(loss, variables, unconnected_gradients="zero")


def assert_gradients_close(found, expected) -> None:
    # Some are 0 but for rounding, such as those of the keys' biases: the largest is the scale.
    expected = [tf.convert_to_tensor(gradient).numpy() for gradient in expected]
    scale = max(abs(gradient).max() for gradient in expected)
    for one, other in zip(found, expected, strict=True):
        assert_close(tf.convert_to_tensor(one), other, scale=scale)


@pytest.mark.parametrize(
    "packed", [pytest.param(None, marks=pytest.mark.slow), PACKED], ids=["padded", "packed"]
)
@pytest.mark.parametrize(
    "fields",
    [
        {"attention_probs_dropout_prob": 0.0, "hidden_dropout_prob": 0.0},
        {"attention_probs_dropout_prob": 0.4, "hidden_dropout_prob": 0.4},
        ROTARY,
        {"position_type": "rotary_interleaved", "biases": "none"},
        WINDOWS,
        {"position_type": "alibi"},
        {"position_type": "relative"},
        {"position_type": "disentangled"},
        {"position_type": "transformer_xl"},
    ],
    ids=str,
)
def test_by_heads_is_plain_with_other_axes(fields, packed, monkeypatch):
    encoder = make_encoder(**fields)
    expected, slopes = run(encoder, "plain", packed)
    shapes = []

    def watched(query, *rest):
        shapes.append(query.shape[1:])
        return attend_from_scaled(query, *rest)

    monkeypatch.setattr(attention, "attend_from_scaled", watched)
    found, found_slopes = run(encoder, "by_heads", packed)
    assert shapes == [[N, T, H]] * 2
    assert_close(found, expected)
    assert_gradients_close(found_slopes, slopes)


@pytest.mark.parametrize("form", ["plain", "by_heads"])
def test_the_gradient_of_softmax_in_bfloat16(form):
    random = np.random.default_rng(1)
    scores = tf.cast(random.normal(size=(B, N, T, T)) * 3, tf.bfloat16)
    upstream = tf.cast(random.normal(size=scores.shape), tf.bfloat16)
    bias = attention_bias(MASK[:3])
    with attention_form(form), tf.GradientTape() as tape:
        tape.watch(scores)
        probs = softmax(scores[:3], bias)
    slope = tape.gradient(probs, scores, upstream[:3])[:3]
    exact = np.exp(tf.cast(scores[:3], tf.float64) + tf.cast(bias, tf.float64))
    exact /= exact.sum(-1, keepdims=True)
    given = tf.cast(upstream[:3], tf.float64).numpy()
    expected = exact * (given - (exact * given).sum(-1, keepdims=True))
    assert probs.dtype == slope.dtype == tf.bfloat16
    assert_close(tf.cast(probs, tf.float64), exact, HALF, epsilon=BFLOAT16)
    assert_close(tf.cast(slope, tf.float64), expected, HALF, epsilon=BFLOAT16)


@pytest.mark.parametrize(
    ("fields", "fused_layers"),
    [
        (ROTARY, 2),  # Rotation comes before attention.
        (WINDOWS, 1),
        ({"position_type": "alibi"}, 0),
        ({"position_type": "relative"}, 0),
        ({"position_type": "disentangled"}, 0),
        ({"position_type": "transformer_xl"}, 0),
    ],
)
def test_terms_and_windows_are_not_fused(fields, fused_layers, monkeypatch):
    encoder = make_encoder(attention_probs_dropout_prob=0.0, **fields)
    expected, _ = run(encoder, "plain")
    # A kernel for any row: it must not be asked where there are terms or windows.
    monkeypatch.setattr("bert_tf.network.attention.can_fuse", lambda query: True)
    calls = []

    def attend(query, key, value, lengths):
        calls.append(lengths.numpy().tolist())
        return attend_from_scaled(query, key, value, attention_bias(MASK))

    monkeypatch.setattr("bert_tf.network.attention.attend_fused", attend)
    assert_close(run(encoder, "fused")[0], expected)
    assert calls == [[6, 4, 1, 1]] * fused_layers


def kernel_twin(module, products, inputs, outputs):
    """Computes what cuDNN does by its description, in NumPy: forward, or backward."""
    query, key, value = (tensor.numpy().astype(np.float64) for tensor in inputs[:3])
    lengths = inputs[-1].numpy()
    is_padding = np.arange(T) >= lengths[:, None]  # [B, T]
    scores = np.einsum("btnh,bsnh->bnts", query, key)
    scores = np.where(is_padding[:, None, None], -np.inf, scores)
    is_row = 1.0 - is_padding[:, None, :, None]
    if module is fused_attention.FORWARD:
        sums = np.log(np.exp(scores).sum(-1))  # [B, N, T]
        probs = np.exp(scores - sums[..., None]) * is_row
        results = [np.einsum("bnts,bsnh->btnh", probs, value), sums]
    else:
        sums, slope, context = (tensor.numpy().astype(np.float64) for tensor in inputs[3:6])
        probs = np.exp(scores - sums[..., None]) * is_row
        of_probs = np.einsum("btnh,bsnh->bnts", slope, value)
        shared = np.einsum("btnh,btnh->bnt", slope, context)[..., None]
        of_scores = probs * (of_probs - shared)
        results = [
            np.einsum("bnts,bsnh->btnh", of_scores, key),
            np.einsum("bnts,btnh->bsnh", of_scores, query),
            np.einsum("bnts,btnh->bsnh", probs, slope),
        ]
    return [tf.constant(each, dtype) for each, (_, dtype) in zip(results, outputs, strict=True)]


def test_a_twin_of_the_kernel_gives_the_numbers_of_plain_attention(monkeypatch):
    """The order of its inputs and results, the scale, the lengths and the gradient are right."""
    encoder = make_encoder(attention_probs_dropout_prob=0.0)
    expected, slopes = run(encoder, "plain")
    monkeypatch.setattr(fused_attention, "ELEMENTS", {tf.float32: "f32"})
    monkeypatch.setattr(fused_attention, "_run", kernel_twin)
    monkeypatch.setattr("bert_tf.network.attention.attend_from_scaled", None)
    found, found_slopes = run(encoder, "fused")
    assert_close(found, expected)
    assert_gradients_close(found_slopes, slopes)


@pytest.mark.parametrize(("dropout", "calls"), [(None, 1), (tf.identity, 0)])
def test_the_kernel_is_in_the_program_for_a_gpu(dropout, calls):
    rows = tf.TensorSpec((B, T, N, H), tf.bfloat16)

    @tf.function(jit_compile=True, autograph=False)
    def step(query: tf.Tensor, key: tf.Tensor, value: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
        pattern = AttentionPattern(PaddedBatch(mask), ModelConfig(), is_local=False)
        inputs = [query, key, value]
        with tf.GradientTape() as tape, attention_form("fused"):
            tape.watch(inputs)
            context = pattern.attend(*inputs, dropout)
        return tape.gradient(context, inputs)

    lowered = step.experimental_get_compiler_ir(rows, rows, rows, tf.TensorSpec((B, T), tf.int32))
    program = lowered(stage="hlo", platform_name="GPU")
    for name in ("fmhaSoftmax", "fmhaSoftmaxBackward"):
        assert program.count(f'custom_call_target="__cudnn${name}"') == calls
    # Without the kernel the program holds the scores of all heads.
    assert (f"f32[{B},{N},{T},{T}]" in program) is (calls == 0)


def test_what_the_kernel_takes():
    for shape, dtype, fits in (
        ([2, 6, 1, 64], tf.bfloat16, True),
        ([2, 6, 1, 64], tf.float16, True),
        ([2, 6, 1, 64], tf.float32, False),
        ([2, 7, 1, 64], tf.bfloat16, False),
        ([2, 6, 1, 12], tf.bfloat16, False),
        ([2, 6, 1, 256], tf.bfloat16, False),
        ([None, 6, 1, 64], tf.bfloat16, False),
    ):
        assert fused_attention.can_fuse(tf.TensorSpec(shape, dtype)) is fits


def test_the_kernel_does_not_attend_in_one_direction(monkeypatch):
    """A token of a decoder must not see later ones, which the kernel has no mask for."""
    monkeypatch.setattr(attention, "can_fuse", lambda query: True)
    monkeypatch.setattr(attention, "attend_fused", None)  # Is not called.
    pattern = CausalPattern(PaddedBatch(tf.constant(MASK)), ModelConfig(), is_local=False)
    rows = tf.ones([B, T, N, H])
    with attention_form("fused"):
        pattern.attend(rows, rows, rows, None)
