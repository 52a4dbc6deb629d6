"""Compares what an encoder learns from: the same minutes of each objective, then fine-tuned.

    python -m benchmarks.objectives --input_file='wiki/*.xz,books/*.xz' --vocab_file=vocab.txt \\
        --data=data --minutes=20 --seeds=3 --output_dir=/tmp/objectives

Encoder, text, rows, optimizer, rate and schedule are those of configs/one_hour.flags; an objective
is its flags on top. Each encoder is then fine-tuned on SST-2 and STS-B as `fine_tuned` does it. A
second call goes on where the first was stopped, and --only tries some objectives alone, so that two
calls can have a core each: taskset -c 0 and 1 with TF_NUM_INTRAOP_THREADS=1.
"""

import json
import pathlib
import subprocess
import sys

from absl import app, flags

from benchmarks.fine_tuned import OUTPUT, as_text, scores
from benchmarks.timing import print_table

INPUT = flags.DEFINE_string("input_file", None, "Text; see run_pretraining.", required=True)
VOCAB = flags.DEFINE_string("vocab_file", "", "None: learned from the text.")
MINUTES = flags.DEFINE_float("minutes", 20, "Of each objective.", lower_bound=0)
ONLY = flags.DEFINE_list("only", [], "Names of objectives to try; none: all.")

OBJECTIVES = {
    "mlm-15": "--masked_lm_prob=0.15 --max_predictions_per_seq=20",
    "mlm-30": "--masked_lm_prob=0.3 --max_predictions_per_seq=39",
    "mlm-40": "--masked_lm_prob=0.4 --max_predictions_per_seq=52",
    "words-30": "--masked_lm_prob=0.3 --max_predictions_per_seq=39 --do_whole_word_mask",
    "spans-30": "--masked_lm_prob=0.3 --max_predictions_per_seq=39 --span_length=5",
    "electra": (
        "--objective=replaced_tokens --masked_lm_prob=0.15 --max_predictions_per_seq=20 "
        "--masked_share=0.85 --random_share=0 --generator_hidden_size=0.25"
    ),
}


def pretrain(name: str) -> pathlib.Path:
    """Trains an encoder; returns its folder. A finished run is not made again."""
    folder = pathlib.Path(OUTPUT.value, f"{MINUTES.value:g}-minutes", name)
    command = [
        *(sys.executable, "-m", "bert_tf.run_pretraining", "--flagfile=one_hour.flags"),
        *OBJECTIVES[name].split(),
        *(f"--input_file={INPUT.value}", f"--vocab_file={VOCAB.value}"),
        *(f"--train_minutes={MINUTES.value}", f"--output_dir={folder}"),
        f"--cache_dir={OUTPUT.value}/cache",
    ]
    if not (folder / "eval_results.txt").exists():
        subprocess.run(command, check=True)
    return folder


def line(name: str) -> list[str]:
    """Returns an objective's name, steps, scores after fine-tuning, and flags."""
    folder = pretrain(name)
    last = [json.loads(text) for text in (folder / "metrics.jsonl").read_text().splitlines()][-1]
    key = f"{folder.parent.name}-{name}"
    tasks = (as_text(scores(task, key, str(folder))) for task in ("sst2", "stsb"))
    return [name, f"{last['step']}", *tasks, OBJECTIVES[name]]


def main(_: list[str]) -> None:
    names = ONLY.value or list(OBJECTIVES)
    if unknown := sorted(set(names) - set(OBJECTIVES)):
        raise ValueError(f"--only: {unknown} are no objectives; these are: {list(OBJECTIVES)}.")
    print_table(["objective", "steps", "sst2", "stsb", "flags"], map(line, names))


if __name__ == "__main__":
    app.run(main)
