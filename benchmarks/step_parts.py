"""Times the parts of a pre-training step, and how a step grows with length and batch.

    python -m benchmarks.step_parts --plot=docs/step_parts.png

4 layers x 512 (8 heads, 2,048 inside), vocabulary 30,522, 20 predictions per 128 positions, dropout
0.1, float32, XLA. A part is its forward and backward pass alone, compiled as a function of its own;
the optimizer is clipping and update. "whole" is the real step. All cases are timed in turn, and
the table holds medians over the rounds. The parts do not sum to the whole exactly: compiled
together they share work, alone they also write their gradients down.
"""

from collections.abc import Callable
from typing import Any

import tensorflow as tf
from absl import app, flags

from benchmarks.timing import in_turn, print_table
from benchmarks.training_step import D, L, make_batch, model_config, whole_step
from bert_tf.config import OptimizerConfig
from bert_tf.network.attention import AttentionPattern
from bert_tf.network.layout import PaddedBatch
from bert_tf.pretraining.masked_words.model import BertPretrainer
from bert_tf.pretraining.objectives.masked_lm import MaskedLM
from bert_tf.system.files import atomic_write
from bert_tf.training.optimizers import build_optimizer

CASES = [(64, 64), (32, 128), (16, 256), (8, 512), (8, 128), (16, 128), (64, 128)]  # (B, T)
ROUNDS = flags.DEFINE_integer("rounds", 7, "Timed calls of each part.")
PLOT = flags.DEFINE_string("plot", "", "PNG file to draw.")

SEED = tf.constant(7)  # of dropout
PARTS = ("embedding", "attention", "feed-forward", "vocabulary product", "optimizer", "whole")
Table = dict[tuple[int, int], dict[str, float]]  # seconds by (B, T) and part


def compiled(function: Callable[..., Any], variables: list[Any], *inputs: Any) -> Callable:
    """Returns a call of forward and backward pass: gradients of the summed output."""
    values = [variable.value for variable in variables]

    @tf.function(jit_compile=True)
    def run(*args: tf.Tensor) -> list[tf.Tensor]:
        with tf.GradientTape() as tape:
            tape.watch([x for x in args if x.dtype.is_floating])
            total = tf.reduce_sum(function(*args))
        wanted = values + [x for x in args if x.dtype.is_floating]
        return [tf.convert_to_tensor(g) for g in tape.gradient(total, wanted)]

    return lambda: run(*inputs)[0].numpy()


def make_parts(model: BertPretrainer, batch: dict[str, tf.Tensor]) -> dict[str, Callable]:
    """Returns a call for each part but the optimizer; of the layers, one."""
    encoder, layer, heads = model.bert, model.bert.layer_0, model.predictions
    batch_size, length = batch["input_word_ids"].shape
    rows = tf.random.normal([batch_size * length, D])
    sequence = tf.reshape(rows, [batch_size, length, D])
    table = tf.convert_to_tensor(encoder.embeddings.word_embeddings)
    layout = PaddedBatch(batch["input_mask"])
    pattern = AttentionPattern(layout, model.config, is_local=False)

    def embed(ids: tf.Tensor) -> tf.Tensor:
        return encoder.embeddings(ids, batch["input_type_ids"], layout=layout, dropout_seed=SEED)

    def attend(x: tf.Tensor) -> tf.Tensor:
        return layer.attend(x, pattern, SEED)

    def feed_forward(x: tf.Tensor) -> tf.Tensor:
        return layer.transform(x, SEED)

    def predict(x: tf.Tensor, table: tf.Tensor) -> tf.Tensor:
        logits = heads(x, batch["masked_lm_positions"], table)
        return (
            MaskedLM()
            .loss_and_metric_sums(batch, {"masked_lm_logits": logits})["masked_lm_loss"]
            .mean()
        )

    attention = [layer.self_attention, layer.attention_output, layer.attention_norm]
    inside = [layer.intermediate, layer.output_dense, layer.feed_forward_norm]
    return {
        "embedding": compiled(embed, variables_of([encoder.embeddings]), batch["input_word_ids"]),
        "attention": compiled(attend, variables_of(attention), rows),
        "feed-forward": compiled(feed_forward, variables_of(inside), rows),
        "vocabulary product": compiled(predict, variables_of([heads]), sequence, table),
    }


def make_update(model: BertPretrainer) -> Callable:
    """Returns a call of the optimizer alone."""
    variables = model.trainable_variables
    optimizer = build_optimizer(OptimizerConfig())
    optimizer.build(variables)

    @tf.function(jit_compile=True)
    def update() -> tf.Tensor:
        return optimizer.apply_summed([v.value * 1e-3 for v in variables], variables)

    return lambda: update().numpy()


def make_calls(batch_size: int, length: int) -> dict[str, Callable]:
    """Returns a call for each of PARTS."""
    model = BertPretrainer(model_config())
    values = make_batch(batch_size, length, 20 * length // 128)
    batch = {name: tf.constant(value) for name, value in values.items()}
    steps = {"optimizer": make_update(model), "whole": whole_step(model, values)}
    return make_parts(model, batch) | steps


def variables_of(layers: list[Any]) -> list[Any]:
    return [variable for layer in layers for variable in layer.trainable_variables]


def measure(rounds: int) -> Table:
    """Returns the median seconds of every part in every case; layers count L times."""
    calls = {(case, part): call for case in CASES for part, call in make_calls(*case).items()}
    seconds = {key: taken[0] for key, taken in in_turn(calls, rounds).items()}
    times = {"attention": L, "feed-forward": L}
    return {c: {p: times.get(p, 1) * seconds[c, p] for p in PARTS} for c in CASES}


def draw(path: str, table: Table) -> None:
    """Draws two stacked bar charts: over length with B * T fixed, and over batch with T fixed."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    charts = {
        "length (4,096 tokens a step)": [(f"{t}", (b, t)) for b, t in CASES if b * t == 4096],
        "batch (length 128)": [(f"{b}", (b, t)) for b, t in sorted(CASES) if t == 128],
    }
    figure, axes = pyplot.subplots(1, 2, figsize=(11, 4), layout="constrained", sharey=True)
    for axis, (title, cases) in zip(axes, charts.items(), strict=True):
        places, below = range(len(cases)), [0.0] * len(cases)
        for part in PARTS[:-1]:
            heights = [table[case][part] * 1e6 / (case[0] * case[1]) for _, case in cases]
            axis.bar(places, heights, bottom=below, label=part, width=0.6)
            below = [b + h for b, h in zip(below, heights, strict=True)]
        whole = [table[case]["whole"] * 1e6 / (case[0] * case[1]) for _, case in cases]
        axis.plot(places, whole, "k_", markersize=36, label="whole step")
        axis.set_xticks(places, [label for label, _ in cases])
        axis.set_xlabel(title)
    axes[0].set_ylabel("microseconds a token")
    axes[1].legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), markerscale=0.4)
    with atomic_write(path, "wb") as file:
        figure.savefig(file, format="png", dpi=120)


def main(_: list[str]) -> None:
    tf.get_logger().setLevel("ERROR")  # Each case is traced anew, and meant to be.
    table = measure(ROUNDS.value)
    print_table(
        ["batch", "length", *(f"{part}, ms" for part in PARTS), "tokens/s"],
        (
            [b, t, *(f"{1e3 * row[part]:.0f}" for part in PARTS), f"{b * t / row['whole']:,.0f}"]
            for (b, t), row in table.items()
        ),
    )
    if PLOT.value:
        draw(PLOT.value, table)


if __name__ == "__main__":
    app.run(main)
