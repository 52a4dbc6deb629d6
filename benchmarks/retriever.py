"""Processor time of training and embedding: here, sentence-transformers on torch, ONNX Runtime.

    python -m benchmarks.retriever ours all-MiniLM-L6-v2 mined.jsonl
    python benchmarks/retriever.py theirs all-MiniLM-L6-v2 mined.jsonl
    python benchmarks/retriever.py onnx all-MiniLM-L6-v2 mined.jsonl

All take the same rows of `bert_tf.mine_negatives` in the same batches: query, positive and first
negative, in-batch negatives, AdamW, dropout on; then they embed queries and positives. ONNX Runtime
only embeds, what torch exports, texts of similar length together as sentence-transformers does it.
Given is time of the processor, which other processes on the machine hardly change. The last two
commands are for a Python with sentence-transformers, onnx and onnxruntime; this file imports
nothing of the project there.
"""

import argparse
import json
import pathlib
import tempfile
import time
from collections.abc import Callable
from typing import Any

RATE = 2e-5


def read_rows(path: str, count: int) -> list[tuple[str, str, str]]:
    """Returns (query, positive, negative) of the first lines that have one of each."""
    rows = []
    for line in pathlib.Path(path).read_text(encoding="utf8").splitlines():
        row = json.loads(line)
        if row["negatives"]:
            rows.append((row["query"], row["positives"][0], row["negatives"][0]))
    return rows[:count]


def ours(options: argparse.Namespace, batches: list[list[tuple]], texts: list[str]) -> None:
    import keras
    import tensorflow as tf

    from bert_tf.tasks.embedding.model import BertEmbedder

    keras.config.set_dtype_policy(options.precision)
    tf.config.threading.set_intra_op_parallelism_threads(options.threads)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    model = BertEmbedder.from_pretrained(options.model, max_seq_length=options.max_seq_length)
    if batches:
        train(model, options, batches)
    embed(lambda part: model.encode(part, batch_size=32), texts)


def train(model: Any, options: argparse.Namespace, batches: list[list[tuple]]) -> None:
    import numpy as np
    import tensorflow as tf

    from bert_tf.config import OptimizerConfig
    from bert_tf.tasks.embedding.examples import EmbeddingExample
    from bert_tf.tasks.embedding.features import TextPacker, make_training_examples
    from bert_tf.tasks.embedding.losses import in_batch_negatives
    from bert_tf.tasks.embedding.task import EmbeddingTask
    from bert_tf.training.cached_step import CachedStep
    from bert_tf.training.optimizers import build_optimizer

    rows = [row for batch in batches for row in batch]
    examples = [EmbeddingExample(q, p, (n,), (), "") for q, p, n in rows]
    packer = TextPacker(model.tokenizer, model.embedding)
    groups = make_training_examples(packer, examples, 1, False).rows
    task = EmbeddingTask(model, groups, None, [options.max_seq_length], 0, loss=in_batch_negatives)
    optimizer = build_optimizer(
        OptimizerConfig("adamw", learning_rate=RATE, num_train_steps=10**6, num_warmup_steps=0)
    )
    optimizer.build(model.trainable_variables)
    step = CachedStep(
        task, optimizer, tf.distribute.get_strategy(), random_seed=0, jit_compile=False
    )

    made = []
    for number in range(len(batches)):
        places = np.arange(number * options.batch_size, (number + 1) * options.batch_size)
        made.append(groups.batch(places, 0, options.batch_size, groups.longest(places, 0)))
    shapes = {
        name: tf.TensorSpec([*value.shape[:-1], None] if "/" in name else value.shape, value.dtype)
        for name, value in made[0].items()
    }
    iterator = iter(tf.data.Dataset.from_generator(lambda: iter(made), output_signature=shapes))
    for number in range(len(batches)):
        begin = time.process_time()
        row = step(iterator, tf.constant(number), tf.constant(1)).numpy()[0]
        print(f"step {number} loss {row[0] / row[2]:.4f} {time.process_time() - begin:.2f} s")


def theirs(options: argparse.Namespace, batches: list[list[tuple]], texts: list[str]) -> None:
    import torch
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.losses import MultipleNegativesRankingLoss

    torch.set_num_threads(options.threads)
    model = SentenceTransformer(options.model, device="cpu")
    model.max_seq_length = options.max_seq_length
    loss = MultipleNegativesRankingLoss(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, eps=1e-6, weight_decay=0.01)
    model.train()
    for number, batch in enumerate(batches):
        begin = time.process_time()
        columns = [model.tokenize(list(column)) for column in zip(*batch, strict=True)]
        value = loss(columns, None)
        value.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        seconds = time.process_time() - begin
        print(f"step {number} loss {float(value):.4f} {seconds:.2f} s")
    model.eval()
    embed(lambda part: model.encode(part, batch_size=32), texts)


def onnx(options: argparse.Namespace, batches: list[list[tuple]], texts: list[str]) -> None:
    """Exports the encoder and embeds the mean of the pieces, normalized."""
    del batches
    import numpy as np
    import onnxruntime
    import torch
    import transformers

    tokenizer = transformers.AutoTokenizer.from_pretrained(options.model)
    model = transformers.AutoModel.from_pretrained(options.model, attn_implementation="eager")
    model.eval().requires_grad_(False)
    names = ("input_ids", "attention_mask", "token_type_ids")

    class Encoder(torch.nn.Module):
        def forward(self, ids: torch.Tensor, mask: torch.Tensor, types: torch.Tensor) -> Any:
            called = {"input_ids": ids, "attention_mask": mask, "token_type_ids": types}
            return model(**called).last_hidden_state

    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads = settings.inter_op_num_threads = options.threads
    with tempfile.TemporaryDirectory() as folder:
        torch.onnx.export(
            Encoder(),
            (torch.ones([2, 8], dtype=torch.int64),) * 3,
            f"{folder}/model.onnx",
            input_names=list(names),
            output_names=["sequence"],
            dynamic_axes={name: {0: "batch", 1: "length"} for name in names},
            dynamo=False,
        )
        session = onnxruntime.InferenceSession(
            f"{folder}/model.onnx", settings, ["CPUExecutionProvider"]
        )

    def encode(part: list[str]) -> np.ndarray:
        order = sorted(range(len(part)), key=lambda i: -len(part[i]))
        vectors = np.zeros([len(part), model.config.hidden_size], np.float32)
        for begin in range(0, len(part), 32):
            rows = order[begin : begin + 32]
            fed = tokenizer(
                [part[i] for i in rows],
                padding=True,
                truncation=True,
                max_length=options.max_seq_length,
                return_tensors="np",
            )
            fed = {name: fed[name].astype(np.int64) for name in names}
            mask = fed["attention_mask"][..., None].astype(np.float32)
            means = (session.run(["sequence"], fed)[0] * mask).sum(1) / mask.sum(1)
            vectors[rows] = means / np.linalg.norm(means, axis=1, keepdims=True)
        return vectors

    embed(encode, texts)


def embed(encode: Callable, texts: list[str]) -> None:
    """Prints texts a second, and the first similarity, in which the sides have to agree."""
    vectors = encode(texts)
    for _ in range(3):
        begin, begin_processor = time.perf_counter(), time.process_time()
        encode(texts)
        processor, wall = time.process_time() - begin_processor, time.perf_counter() - begin
        rates = (
            f"{len(texts) / processor:.1f} texts/s of processor, {len(texts) / wall:.1f} of time"
        )
        print(f"embedded {rates}; similarity {vectors[0] @ vectors[1]:.5f}")


SIDES = {"ours": ours, "theirs": theirs, "onnx": onnx}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("side", choices=SIDES)
    parser.add_argument("model")
    parser.add_argument("train_file")
    parser.add_argument("--max_seq_length", type=int, default=128)
    parser.add_argument("--batch_size", type=int, default=16)
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--texts", type=int, default=128)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--precision", default="float32", help="Of ours: also mixed_bfloat16.")
    options = parser.parse_args()
    rows = read_rows(options.train_file, max(options.texts, options.steps * options.batch_size))
    batches = [
        rows[i * options.batch_size : (i + 1) * options.batch_size] for i in range(options.steps)
    ]
    # Of mixed lengths: queries and documents.
    texts = [text for row in rows for text in row[:2]][: options.texts]
    SIDES[options.side](options, batches, texts)


if __name__ == "__main__":
    main()
