"""Trains SetFit on torch, to compare its accuracy and seconds with ours.

    python benchmarks/few_shot_peer.py all-MiniLM-L6-v2 examples.json answers.json --seed=1

For a Python with setfit; this file imports nothing of the project. The examples are those that
`benchmarks.few_shot` writes.
"""

import argparse
import json
import os
import pathlib
import tempfile
import time

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch
from datasets import Dataset
from setfit import SetFitModel, Trainer, TrainingArguments


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("examples")
    parser.add_argument("answers")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--pairs_per_example", type=int, default=40)
    options = parser.parse_args()

    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    data = json.loads(pathlib.Path(options.examples).read_text(encoding="utf8"))
    names = sorted(set(data["labels"]))
    ids = [names.index(label) for label in data["labels"]]
    model = SetFitModel.from_pretrained(options.model, labels=names, device="cpu")
    start, cpu_start = time.perf_counter(), time.process_time()
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            output_dir=folder,
            batch_size=16,
            num_epochs=1,
            num_iterations=options.pairs_per_example // 2 or None,
            seed=options.seed,
            report_to="none",
            save_strategy="no",
            show_progress_bar=False,
        )
        dataset = Dataset.from_dict({"text": data["texts"], "label": ids})
        trainer = Trainer(model=model, args=arguments, train_dataset=dataset)
        trainer.train()
    seconds, cpu_seconds = time.perf_counter() - start, time.process_time() - cpu_start
    answers = [str(answer) for answer in model.predict(data["test_texts"])]
    result = {"answers": answers, "seconds": seconds, "cpu_seconds": cpu_seconds}
    pathlib.Path(options.answers).write_text(json.dumps(result), encoding="utf8")


if __name__ == "__main__":
    main()
