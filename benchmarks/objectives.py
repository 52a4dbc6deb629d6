"""Compares what an encoder learns from: the same minutes of each objective, then fine-tuned.

    python -m benchmarks.objectives --input_file='wiki/*.xz,books/*.xz' --vocab_file=vocab.txt \\
        --data=data --minutes=20 --seeds=3 --output_dir=/tmp/objectives

Encoder, rows, optimizer, rate and schedule are those of --recipe; an objective is its flags on top.
`--only=electra@1e-3` takes another rate. Each encoder is then fine-tuned on SST-2, MNLI and STS-B
as `fine_tuned` does it. A second call goes on where the first was stopped, and --only tries some
objectives alone, so that two calls can have a core each: taskset -c 0 and 1 with
TF_NUM_INTRAOP_THREADS=1.
"""

import json
import math
import pathlib
import subprocess
import sys

from absl import app, flags

from benchmarks.fine_tuned import OUTPUT, as_text, scores
from benchmarks.timing import print_table

INPUT = flags.DEFINE_string("input_file", None, "Text; see run_pretraining.", required=True)
VOCAB = flags.DEFINE_string("vocab_file", "", "None: learned from the text.")
MINUTES = flags.DEFINE_float("minutes", 20, "Of each objective.", lower_bound=0)
ONLY = flags.DEFINE_list("only", [], "Names of objectives to try, NAME or NAME@RATE; none: all.")
RECIPE = flags.DEFINE_string("recipe", "one_hour.flags", "Flagfile of encoder and optimizer.")
LENGTH = flags.DEFINE_integer("max_seq_length", 128, "Pieces of a row.", lower_bound=16)

# Share of the pieces that are masked, and the other flags.
OBJECTIVES = {
    "mlm-15": (0.15, ""),
    "mlm-30": (0.3, ""),
    "mlm-40": (0.4, ""),
    "words-30": (0.3, "--do_whole_word_mask"),
    "spans-30": (0.3, "--mask_unit=span:5"),
    "electra": (
        0.15,
        "--objective=replaced_tokens --masking_options=masked_share=0.85,random_share=0 "
        "--objective_options=generator_hidden_size=0.25",
    ),
}


def flags_of(name: str) -> list[str]:
    """Returns the flags of an objective, NAME or NAME@RATE, at the length of the rows."""
    name, _, rate = name.partition("@")
    share, others = OBJECTIVES[name]
    given = [f"--masked_lm_prob={share}", *others.split()]
    given.append(f"--max_predictions_per_seq={math.ceil(share * LENGTH.value)}")
    return [*given, f"--learning_rate={rate}"] if rate else given


def pretrain(name: str) -> pathlib.Path:
    """Trains an encoder; returns its folder. A finished run is not made again."""
    folder = pathlib.Path(OUTPUT.value, f"{MINUTES.value:g}-minutes", name)
    command = [
        *(sys.executable, "-m", "bert_tf.run_pretraining", f"--flagfile={RECIPE.value}"),
        *("--eval_steps=0", "--show_masks=", f"--max_seq_length={LENGTH.value}", *flags_of(name)),
        *(f"--input_file={INPUT.value}", f"--vocab_file={VOCAB.value}"),
        *(f"--train_for={MINUTES.value}min", f"--output_dir={folder}"),
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
    tasks = (as_text(scores(task, key, str(folder))) for task in ("sst2", "mnli", "stsb"))
    return [name, f"{last['step']}", *tasks, " ".join(flags_of(name))]


def main(_: list[str]) -> None:
    names = ONLY.value or list(OBJECTIVES)
    if unknown := sorted({name.partition("@")[0] for name in names} - set(OBJECTIVES)):
        raise ValueError(f"--only: {unknown} are no objectives; these are: {list(OBJECTIVES)}.")
    print_table(["objective", "steps", "sst2", "mnli", "stsb", "flags"], map(line, names))


if __name__ == "__main__":
    app.run(main)
