"""Trains a bi-encoder with sentence-transformers on torch, to compare its score with ours.

    python benchmarks/retriever_peer.py all-MiniLM-L6-v2 mined.jsonl peers/seed-1 --seed=1
    python -m bert_tf.run_retriever --do_eval --init_checkpoint=peers/seed-1 --data_dir=scifact \\
        --max_seq_length=128 --output_dir=runs/peer-1

Rows, loss, batches, optimizer and schedule are those of the command in
docs/measurements/retrieval.md: each positive with its query and the query's first mined negative,
if it has one; no text twice in a batch; in-batch negatives; AdamW with a tenth of the steps as
warm-up. For a Python with sentence-transformers; this file imports nothing of the project.
"""

import argparse
import json
import pathlib
import random

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.losses import MultipleNegativesRankingLoss

WEIGHT_DECAY, WARMUP = 0.01, 0.1
Row = tuple[str, ...]


def read_rows(path: str) -> list[Row]:
    """Returns (query, positive) of every positive, and the query's first negative if it has one."""
    rows = []
    for line in pathlib.Path(path).read_text(encoding="utf8").splitlines():
        row = json.loads(line)
        rows += [(row["query"], text, *row["negatives"][:1]) for text in row["positives"]]
    return rows


def make_batches(rows: list[Row], size: int) -> list[list[Row]]:
    """Returns full batches; a row with a text that is there already waits for the next one."""
    batches, waiting = [], rows
    while len(waiting) >= size:
        batch, texts, rest = [], set(), []
        for row in waiting:
            if len(batch) < size and not texts & set(row):
                batch.append(row)
                texts |= set(row)
            else:
                rest.append(row)
        if len(batch) < size:
            break
        batches.append(batch)
        waiting = rest
    return batches


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("train_file")
    parser.add_argument("output_dir")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--learning_rate", type=float, default=4e-5)
    parser.add_argument("--batch_size", type=int, default=16)
    parser.add_argument("--max_seq_length", type=int, default=128)
    options = parser.parse_args()

    rows = read_rows(options.train_file)
    random.Random(options.seed).shuffle(rows)
    batches = make_batches(rows, options.batch_size)
    torch.manual_seed(options.seed)
    model = SentenceTransformer(options.model, device="cpu")
    model.max_seq_length = options.max_seq_length
    loss = MultipleNegativesRankingLoss(model)
    named = list(model.named_parameters())
    plain = [p for name, p in named if name.endswith("bias") or "LayerNorm" in name]
    decayed = [p for name, p in named if not (name.endswith("bias") or "LayerNorm" in name)]
    groups = [{"params": plain, "weight_decay": 0.0}, {"params": decayed}]
    optimizer = torch.optim.AdamW(groups, eps=1e-6, weight_decay=WEIGHT_DECAY)
    warmup = int(WARMUP * len(batches))
    model.train()
    for step, batch in enumerate(batches):
        share = step / warmup if step < warmup else 1 - step / len(batches)
        for group in optimizer.param_groups:
            group["lr"] = options.learning_rate * share
        texts = [[row[place] for row in batch if len(row) > place] for place in range(3)]
        columns = [model.tokenize(column) for column in texts if column]
        value = loss(columns, None)
        value.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        print(f"step {step + 1}/{len(batches)}  loss {float(value):.4f}", flush=True)
    model.save(options.output_dir)


if __name__ == "__main__":
    main()
