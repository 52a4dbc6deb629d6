"""Times BERT-Base's pre-training step on a GPU beside PyTorch's, as a share of the GPU's peak.

  python -m benchmarks.accelerator_step --torch_python=TORCH_ENV/bin/python

Rows of 128 and of 512 pieces without padding, 15 % of them predicted, dropout 0.1, MLM and NSP,
bfloat16: forward, backward, clipping, AdamW. bert_tf compiles its step with XLA; PyTorch takes
transformers' BertForPreTraining with autocast, scaled_dot_product_attention and torch.compile, its
head at the predicted positions alone, as ours, and its fused AdamW. Every contestant is a process
of its own; all of them make their steps in turn, and medians count. The peak is the best plain
bfloat16 product of either library in the same run.

--batch_sizes, --hidden_size, --num_layers and --matrix make it small enough for a CPU, to see that
it runs.
"""

import argparse
import os
import sys
from collections.abc import Callable
from typing import Any

from benchmarks.timing import print_table
from benchmarks.training_step import V, compete, make_batch, step_flops, whole_step, work

MATRIX = 8192  # the plain product is [8192, 8192] x [8192, 8192]
PREDICTED = {128: 20, 512: 77}


def sizes(flags: argparse.Namespace, length: int) -> tuple[int, int, int]:
    """Returns batch size, length and predictions."""
    batches = dict(zip(PREDICTED, map(int, flags.batch_sizes.split(",")), strict=True))
    return batches[length], length, PREDICTED[length]


def bert_tf_step(flags: argparse.Namespace, length: int) -> Callable[[], Any]:
    import keras

    from bert_tf.config import ModelConfig
    from bert_tf.pretraining.masked_words.model import BertPretrainer

    keras.mixed_precision.set_global_policy("mixed_bfloat16")
    d = flags.hidden_size
    config = ModelConfig(
        hidden_size=d,
        num_hidden_layers=flags.num_layers,
        num_attention_heads=d // 64,
        intermediate_size=4 * d,
    )
    return whole_step(BertPretrainer(config), make_batch(*sizes(flags, length)))


def torch_step(flags: argparse.Namespace, length: int) -> Callable[[], Any]:
    import torch
    from transformers import BertConfig, BertForPreTraining

    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.set_float32_matmul_precision("high")
    d = flags.hidden_size
    config = BertConfig(
        vocab_size=V,
        hidden_size=d,
        num_hidden_layers=flags.num_layers,
        num_attention_heads=d // 64,
        intermediate_size=4 * d,
        attn_implementation="sdpa",
    )
    model = BertForPreTraining(config).to(device).train()
    optimizer = torch.optim.AdamW(model.parameters(), 1e-4, weight_decay=0.01, fused=True)
    batch = {
        name: torch.tensor(value, device=device)
        for name, value in make_batch(*sizes(flags, length)).items()
    }
    cross_entropy = torch.nn.functional.cross_entropy

    @torch.compile
    def losses() -> Any:
        hidden, pooled = model.bert(
            batch["input_word_ids"], token_type_ids=batch["input_type_ids"], return_dict=False
        )
        places = batch["masked_lm_positions"].long()[..., None].expand(-1, -1, d)
        logits = model.cls.predictions(hidden.gather(1, places))
        following = model.cls.seq_relationship(pooled)
        return cross_entropy(
            logits.float().flatten(0, 1), batch["masked_lm_ids"].long().flatten()
        ) + cross_entropy(following.float(), batch["next_sentence_labels"].long())

    def step() -> float:
        with torch.autocast(device, torch.bfloat16):
            loss = losses()
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return float(loss)

    return step


def tensorflow_product(flags: argparse.Namespace, _: int) -> Callable[[], Any]:
    import tensorflow as tf

    matrix = tf.cast(tf.random.normal([flags.matrix, flags.matrix]), tf.bfloat16)
    return lambda: float(tf.matmul(matrix, matrix)[0, 0])


def torch_product(flags: argparse.Namespace, _: int) -> Callable[[], Any]:
    import torch

    device = "cuda" if torch.cuda.is_available() else "cpu"
    matrix = torch.randn(flags.matrix, flags.matrix, dtype=torch.bfloat16, device=device)
    return lambda: float((matrix @ matrix)[0, 0])


STEPS = {"bert_tf": bert_tf_step, "torch": torch_step}
PRODUCTS = {"tensorflow product": tensorflow_product, "torch product": torch_product}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=20, help="Steps of each contestant.")
    parser.add_argument("--torch_python", default=sys.executable, help="Has torch, transformers.")
    parser.add_argument("--batch_sizes", default="256,64", help="Rows of 128, rows of 512.")
    parser.add_argument("--hidden_size", type=int, default=768)
    parser.add_argument("--num_layers", type=int, default=12)
    parser.add_argument("--matrix", type=int, default=MATRIX, help="Size of the plain product.")
    parser.add_argument("--worker", default="", help="Used by this program itself.")
    flags = parser.parse_args()
    if flags.worker:
        name, length = flags.worker.rsplit(" ", 1)
        work(lambda: {**STEPS, **PRODUCTS}[name](flags, int(length)))
        return
    # TensorFlow would take all memory of a GPU.
    os.environ["TF_FORCE_GPU_ALLOW_GROWTH"] = "true"
    rows = []
    for length in PREDICTED:
        commands = {}
        for name in (*PRODUCTS, *STEPS):
            python = flags.torch_python if name.startswith("torch") else sys.executable
            commands[f"{name} {length}"] = [python, __file__, *sys.argv[1:]]
        medians = compete(commands, flags.rounds)
        products = [medians[name] for name in medians if "product" in name]
        peak = 2 * flags.matrix**3 / min(products)
        b, t, p = sizes(flags, length)
        d = flags.hidden_size
        flops = step_flops(b, t, p, d, 4 * d, flags.num_layers)
        for name in STEPS:
            if seconds := medians.get(f"{name} {length}"):
                speed = (f"{1e3 * seconds:.1f}", f"{b * t / seconds:,.0f}")
                share = (f"{flops / seconds / 1e12:.2f}", f"{flops / seconds / peak:.0%}")
                rows.append((name, t, b, *speed, *share))
    print_table(
        ("", "length", "batch", "ms/step", "tokens/s", "TFLOP/s", "of the plain product"), rows
    )


if __name__ == "__main__":
    main()
