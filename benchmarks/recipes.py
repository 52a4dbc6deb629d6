"""Finds the pre-training recipe that makes most of a machine's minutes, by successive halving.

    python -m benchmarks.recipes --input_file='wiki/*.xz,books/*.xz' --output_dir=/tmp/recipes \\
        --minutes=5,15,60

Every recipe below gets the first number of minutes, the better half of them the next, and so on;
each run begins anew, since its schedule is one of its budget. What counts is the held-out loss of
masked pieces in bits a character, so that vocabularies of different sizes can be compared; all are
judged with 15 % of the pieces masked, whatever they were trained with. `run_pretraining` does the
work: a second call goes on where the first was stopped, and --only tries some recipes alone.

A recipe is its flags on top of `BASE`; write yours beside them.
"""

import itertools
import json
import math
import pathlib
import subprocess
import sys

from absl import app, flags

from benchmarks.timing import print_table
from bert_tf.data.corpus import list_parts, read_documents
from bert_tf.text.tokenization import AnyVocab, make_tokenizer, read_vocab

INPUT = flags.DEFINE_string("input_file", None, "Text; see run_pretraining.", required=True)
OUTPUT = flags.DEFINE_string("output_dir", "/tmp/recipes", "Folder of the runs.")
MINUTES = flags.DEFINE_list("minutes", ["5", "15"], "Minutes of each round.")
ONLY = flags.DEFINE_list("only", [], "Names of recipes to try; none: all.")
SEED = flags.DEFINE_integer("random_seed", 12345, "Seed of all runs.")

BASE = "--flagfile=one_hour.flags --do_eval=true --eval_steps=0 --save_checkpoints_steps=500"
# The paper's recipe at the same size: post-norm, learned positions, NSP, dropout, 15 % masks.
PAPER = (
    "--block_type=post_norm --position_type=learned --gated_feed_forward=false --biases=all "
    "--intermediate_size=1024 --hidden_act=gelu_tanh --use_next_sentence=true "
    "--hidden_dropout_prob=0.1 --attention_probs_dropout_prob=0.1 --masked_lm_prob=0.15 "
    "--max_predictions_per_seq=20 --optimizer=adam_weight_decay --adam_beta_2=0.999 "
    "--learning_rate_schedule=linear --cooldown_proportion=0 --layer_norm_eps=1e-12"
)
RECIPES = {
    "ours": "",
    "rate x 0.5": "--learning_rate=1e-3",
    "rate x 2": "--learning_rate=4e-3",
    "adamw": "--optimizer=adamw",
    "15 % masks": "--masked_lm_prob=0.15 --max_predictions_per_seq=20",
    "40 % masks": "--masked_lm_prob=0.4 --max_predictions_per_seq=52",
    "batch 32": "--train_batch_size=32",
    "batch 128": "--train_batch_size=128",
    "ALiBi": "--position_type=alibi",
    "learned positions": "--position_type=learned",
    "post-norm": "--block_type=post_norm",
    "no gate": "--gated_feed_forward=false --intermediate_size=1056",
    "beta2 0.999": "--adam_beta_2=0.999",
    "weight decay 0.1": "--weight_decay_rate=0.1",
    "one cycle": "--learning_rate_schedule=cosine --cooldown_proportion=0",
    "growing batches": "--batch_ramp_start=16 --batch_ramp_steps=200",
    "packed rows": "--pack_rows",
    "near duplicates out": "--deduplicate=near",
    "embeddings of 128": "--embedding_size=128",
    "dropout": "--hidden_dropout_prob=0.1 --attention_probs_dropout_prob=0.1",
    "8,192 pieces": "--vocab_size=8192",
    "16,384 pieces": "--vocab_size=16384",
    "6 x 256": "--num_hidden_layers=6",
    "4 x 384": "--hidden_size=384 --num_attention_heads=6 --intermediate_size=1024",
    "2 x 256": "--num_hidden_layers=2",
    "paper 1e-4": f"{PAPER} --learning_rate=1e-4",
    "paper 5e-4": f"{PAPER} --learning_rate=5e-4",
    "paper 1e-3": f"{PAPER} --learning_rate=1e-3",
}


def run(name: str, minutes: str) -> dict[str, float]:
    """Trains and judges a recipe; returns the results, which a finished run has on disk."""
    folder = pathlib.Path(OUTPUT.value, f"{minutes}-minutes", name.replace(" ", "_"))
    path = folder / "judged.json"
    if not path.exists():
        trained = [
            *("-m", "bert_tf.run_pretraining", *BASE.split(), *RECIPES[name].split()),
            *(f"--train_minutes={minutes}", f"--input_file={INPUT.value}"),
            *(f"--output_dir={folder}", f"--random_seed={SEED.value}"),
            f"--cache_dir={OUTPUT.value}/cache",
        ]
        judged = ["--do_train=false", "--masked_lm_prob=0.15", "--max_predictions_per_seq=20"]
        for options in ([], judged):
            subprocess.run([sys.executable, *trained, *options], check=True)
        lines = (folder / "eval_results.txt").read_text().splitlines()
        results = {key: float(value) for key, value in (line.split(" = ") for line in lines)}
        vocab = next(folder.glob("vocab.txt"), folder / "tokenizer.json")
        results["characters_a_piece"] = characters_a_piece(read_vocab(vocab))
        path.write_text(json.dumps(results, indent=1))
    return json.loads(path.read_text())


def characters_a_piece(vocab: AnyVocab) -> float:
    """Returns how many characters of the input a piece stands for."""
    tokenizer = make_tokenizer(vocab, do_lower_case=True)
    characters = pieces = 0
    for part in list_parts(INPUT.value)[:1]:
        for document in itertools.islice(read_documents(part), 300):
            text = " ".join(document)
            characters += len(text)
            pieces += len(tokenizer.encode(text))
    return characters / pieces


def bits_a_character(results: dict[str, float]) -> float:
    return results["masked_lm_loss"] / math.log(2) / results["characters_a_piece"]


def main(_: list[str]) -> None:
    names = ONLY.value or list(RECIPES)
    if unknown := sorted(set(names) - set(RECIPES)):
        raise ValueError(f"--only: {unknown} are no recipes; these are: {list(RECIPES)}.")
    for minutes in MINUTES.value:
        results = {name: run(name, minutes) for name in names}
        names = sorted(names, key=lambda name: bits_a_character(results[name]))
        print(f"\n{minutes} minutes\n")
        heads = ("recipe", "bits a character", "loss", "masked accuracy", "steps", "flags")
        rows = []
        for name in names:
            r = results[name]
            cells = (f"{bits_a_character(r):.3f}", f"{r['masked_lm_loss']:.3f}")
            accuracy = f"{r['masked_lm_accuracy']:.1%}"
            rows.append((name, *cells, accuracy, f"{r['global_step']:.0f}", RECIPES[name]))
        print_table(heads, rows)
        if not ONLY.value:
            names = names[: -(-len(names) // 2)]


if __name__ == "__main__":
    app.run(main)
