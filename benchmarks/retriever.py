"""Processor time of training and embedding, here and with sentence-transformers on torch.

    python -m benchmarks.retriever ours all-MiniLM-L6-v2 mined.jsonl
    python benchmarks/retriever.py theirs all-MiniLM-L6-v2 mined.jsonl

Both sides take the same rows of `bert_tf.mine_negatives` in the same batches: query, positive and
first negative, in-batch negatives, AdamW, dropout on; then they embed the positives. What is given
is time of the processor, which other processes on the machine hardly change. The second command is
for a Python with sentence-transformers; this file imports nothing of the project there.
"""

import argparse
import json
import pathlib
import time

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
    import numpy as np
    import tensorflow as tf

    from bert_tf.config import OptimizerConfig
    from bert_tf.modeling.embedder import BertEmbedder
    from bert_tf.modeling.embedding_losses import in_batch_negatives
    from bert_tf.optimization.optimizers import build_optimizer
    from bert_tf.tasks.embedding import EmbeddingTask, TextPacker, make_training_examples
    from bert_tf.tasks.embedding_examples import EmbeddingExample
    from bert_tf.training.cached_step import CachedStep

    model = BertEmbedder.from_pretrained(
        options.model, max_seq_length=options.max_seq_length, unpad=True
    )
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
    model.encode(texts[:8])
    begin = time.process_time()
    model.encode(texts, batch_size=32)
    print(f"embedded {len(texts) / (time.process_time() - begin):.1f} texts/s")


def theirs(options: argparse.Namespace, batches: list[list[tuple]], texts: list[str]) -> None:
    import torch
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.losses import MultipleNegativesRankingLoss

    torch.set_num_threads(1)
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
    model.encode(texts[:8])
    begin = time.process_time()
    model.encode(texts, batch_size=32)
    print(f"embedded {len(texts) / (time.process_time() - begin):.1f} texts/s")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("side", choices=("ours", "theirs"))
    parser.add_argument("model")
    parser.add_argument("train_file")
    parser.add_argument("--max_seq_length", type=int, default=128)
    parser.add_argument("--batch_size", type=int, default=16)
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--texts", type=int, default=128)
    options = parser.parse_args()
    rows = read_rows(options.train_file, max(options.texts, options.steps * options.batch_size))
    batches = [
        rows[i * options.batch_size : (i + 1) * options.batch_size] for i in range(options.steps)
    ]
    # Of mixed lengths: queries and documents.
    texts = [text for row in rows for text in row[:2]][: options.texts]
    (ours if options.side == "ours" else theirs)(options, batches, texts)


if __name__ == "__main__":
    main()
