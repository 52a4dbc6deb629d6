"""Pre-trains BERT with transformers or keras-hub, on our rows and for a number of minutes.

    python -m benchmarks.pretraining_peers --records=cache/train-KEY --rows=rows.npy \\
        --vocab_file=vocab.txt --peer=keras_hub --minutes=60 --output_dir=/tmp/peers

The size is that of configs/one_hour.flags; the rest is what the libraries' own examples do: BERT's
architecture with dropout, 15 % of the pieces masked by the library, AdamW with linear warm-up and
decay, here over the clock, and a rate that suits so short a run. Products are in bfloat16. Rows are
those that run_pretraining cached, in one random order. What is written is the library's own
format, which `run_pretraining --do_train=false`, `fine_tuned` and all programs read.

transformers needs no TensorFlow, only absl-py: first let a call without --peer write --rows, then
start it with its own Python, without --records.
"""

import pathlib
import shutil
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from absl import app, flags

RECORDS = flags.DEFINE_string("records", "", "Folder of unmasked records; writes --rows.")
ROWS = flags.DEFINE_string("rows", None, "NumPy file of rows, [N, T] int32.", required=True)
VOCAB = flags.DEFINE_string("vocab_file", None, "Their vocabulary, uncased.", required=True)
PEER = flags.DEFINE_enum("peer", None, ["transformers", "keras_hub"], "Which to train.")
MINUTES = flags.DEFINE_float("minutes", 60, "From the first step on.", lower_bound=0)
RATE = flags.DEFINE_float("learning_rate", 5e-4, "Peak.")
BATCH = flags.DEFINE_integer("train_batch_size", 64, "Rows a step.")
OUTPUT = flags.DEFINE_string("output_dir", "/tmp/peers", "Each peer gets a folder in it.")

SIZE, LAYERS, HEADS, INNER = 256, 4, 4, 1024
PREDICTED, WARMUP, DECAY = 0.15, 0.1, 0.01
MOST_PREDICTED = 20  # of 128 pieces, as in the paper


def write_rows() -> None:
    """Writes the pieces of all cached records."""
    import tensorflow as tf

    kind = {"input_ids": tf.io.RaggedFeature(tf.int64)}
    files = sorted(map(str, pathlib.Path(RECORDS.value).glob("*.tfrecord")))
    batches = tf.data.TFRecordDataset(files).batch(8192)
    rows = [tf.io.parse_example(batch, kind)["input_ids"].to_tensor().numpy() for batch in batches]
    np.save(ROWS.value, np.concatenate(rows).astype(np.int32))


def batches() -> Iterator[np.ndarray]:
    """Yields batches of rows in one random order, again and again."""
    rows = np.load(ROWS.value, mmap_mode="r")
    order = np.random.default_rng(1).permutation(len(rows))
    while True:
        for start in range(0, len(order) - BATCH.value + 1, BATCH.value):
            yield np.array(rows[np.sort(order[start : start + BATCH.value])])


def train(step: Callable[[np.ndarray, float], Any]) -> None:
    """Makes steps at the rate of the clock until the minutes have passed; prints the loss."""
    steps = batches()
    step(next(steps), 0.0)  # compiles
    start = shown = time.monotonic()
    count, part = 0, 0.0
    while part < 1:
        loss = step(next(steps), RATE.value * min(part / WARMUP, (1 - part) / (1 - WARMUP)))
        count += 1
        now = time.monotonic()
        part = (now - start) / (60 * MINUTES.value)
        if now - shown > 20 or part >= 1:
            rate = count * BATCH.value / (now - start)
            print(
                f"step {count}  {part:.1%}  loss {float(loss):.3f}  {rate:.1f} rows/s", flush=True
            )
            shown = now


def transformers(folder: pathlib.Path) -> None:
    """BertForMaskedLM with the library's collator, bfloat16 by autocast.

    The head sees masked positions alone. The library's own loss computes it at all positions, which
    costs most of the step.
    """
    import torch
    from transformers import (
        BertConfig,
        BertForMaskedLM,
        BertTokenizerFast,
        DataCollatorForLanguageModeling,
    )

    folder.mkdir(parents=True)
    shutil.copy(VOCAB.value, folder / "vocab.txt")
    torch.manual_seed(1)
    tokenizer = BertTokenizerFast.from_pretrained(folder, do_lower_case=True)
    collate = DataCollatorForLanguageModeling(tokenizer, mlm_probability=PREDICTED)
    config = BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=SIZE,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        intermediate_size=INNER,
    )
    model = BertForMaskedLM(config).train()
    decayed = [p for p in model.parameters() if p.ndim > 1]
    others = [p for p in model.parameters() if p.ndim <= 1]
    groups = [{"params": decayed, "weight_decay": DECAY}, {"params": others, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups)

    def step(rows: np.ndarray, rate: float) -> Any:
        batch = collate([{"input_ids": row.tolist()} for row in rows])
        batch["attention_mask"] = torch.from_numpy((rows > 0).astype(np.int64))
        for group in optimizer.param_groups:
            group["lr"] = rate
        with torch.autocast("cpu", torch.bfloat16):
            labels = batch.pop("labels")
            hidden = model.bert(**batch).last_hidden_state
            logits = model.cls(hidden[labels != -100])
            loss = torch.nn.functional.cross_entropy(logits, labels[labels != -100])
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return loss.detach()

    train(step)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def keras_hub(folder: pathlib.Path) -> None:
    """BertMaskedLM with the library's mask generator, mixed_bfloat16 without XLA, the faster."""
    import keras
    import keras_hub as hub

    keras.utils.set_random_seed(1)
    keras.mixed_precision.set_global_policy("mixed_bfloat16")
    tokenizer = hub.tokenizers.BertTokenizer(VOCAB.value, lowercase=True)
    backbone = hub.models.BertBackbone(
        vocabulary_size=tokenizer.vocabulary_size(),
        num_layers=LAYERS,
        num_heads=HEADS,
        hidden_dim=SIZE,
        intermediate_dim=INNER,
        dropout=0.1,
    )
    model = hub.models.BertMaskedLM(backbone=backbone, preprocessor=None)
    model.compile(
        optimizer=keras.optimizers.AdamW(RATE.value, weight_decay=DECAY, global_clipnorm=1.0),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        jit_compile=False,
    )
    special = [tokenizer.cls_token_id, tokenizer.sep_token_id, tokenizer.pad_token_id]
    generator = hub.layers.MaskedLMMaskGenerator(
        tokenizer.vocabulary_size(),
        PREDICTED,
        tokenizer.mask_token_id,
        MOST_PREDICTED,
        unselectable_token_ids=special,
    )

    def step(rows: np.ndarray, rate: float) -> Any:
        masked = generator(rows)
        model.optimizer.learning_rate = rate
        model.reset_metrics()
        inputs = {
            "token_ids": masked["token_ids"],
            "padding_mask": (rows > 0).astype(np.int32),
            "segment_ids": np.zeros_like(rows),
            "mask_positions": masked["mask_positions"],
        }
        losses = model.train_on_batch(inputs, masked["mask_ids"], masked["mask_weights"])
        return np.ravel(losses)[0]

    train(step)
    keras.mixed_precision.set_global_policy("float32")
    model.save_to_preset(str(folder))
    tokenizer.save_to_preset(str(folder))


def main(_: list[str]) -> None:
    if RECORDS.value:
        write_rows()
    if PEER.value:
        {"transformers": transformers, "keras_hub": keras_hub}[PEER.value](
            pathlib.Path(OUTPUT.value, PEER.value)
        )


if __name__ == "__main__":
    app.run(main)
