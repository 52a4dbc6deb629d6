"""Finds the pre-training recipe that makes most of a machine's minutes, by successive halving.

    python -m benchmarks.recipes --input_file='wiki/*.xz,books/*.xz' --output_dir=/tmp/recipes \\
        --minutes=5,15,60

Every recipe below gets the first number of minutes, the better half of them the next, and so on;
each run begins anew, since its schedule is one of its budget. What counts is the held-out loss of
masked pieces in bits a character, so that vocabularies of different sizes can be compared; all are
judged with 15 % of the pieces masked, whatever they were trained with. `run_pretraining` does the
work: a second call goes on where the first was stopped, and --only tries some recipes alone.
`minutes.png` in --output_dir shows the masked accuracy of all that was judged there.

A recipe is its flags on top of --recipe; write yours beside those of `made_recipes`. Two calls can
have a core each: taskset -c 0 and 1 with TF_NUM_INTRAOP_THREADS=1.
"""

import itertools
import json
import math
import pathlib
import subprocess
import sys

from absl import app, flags
from matplotlib.figure import Figure

from benchmarks.timing import print_table
from bert_tf.config.combined import read_options
from bert_tf.config.flagfiles import expanded
from bert_tf.corpus.corpus import list_parts, read_documents
from bert_tf.text.tokenization import AnyVocab, make_tokenizer, read_vocab

INPUT = flags.DEFINE_string("input_file", None, "Text; see run_pretraining.", required=True)
OUTPUT = flags.DEFINE_string("output_dir", "/tmp/recipes", "Folder of the runs.")
MINUTES = flags.DEFINE_list("minutes", ["5", "15"], "Minutes of each round.")
ONLY = flags.DEFINE_list("only", [], "Names of recipes to try; none: all.")
SEED = flags.DEFINE_integer("random_seed", 12345, "Seed of all runs.")
RECIPE = flags.DEFINE_string("recipe", "one_hour.flags", "Flagfile of what is called ours.")
VOCAB = flags.DEFINE_string("vocab_file", "", "None: learned from the text.")


def made_recipes(base: dict[str, str]) -> dict[str, str]:
    """Returns recipes by name as flags on top of a flagfile, whose values are given by name."""
    layers, hidden, wide, rate = (
        float(base[name])
        for name in ("num_hidden_layers", "hidden_size", "intermediate_size", "learning_rate")
    )
    whole = int(base["train_batch_size"])
    constant = "--training_options=batch_ramp_start=0,batch_ramp_steps=0"
    block = read_options(base.get("model_options", "")).get("block_type", "post_norm")
    other_block = "pre_norm" if block == "post_norm" else "post_norm"
    paper = f"{paper_options(base)} {constant}"
    return {
        "ours": "",
        "rate x 0.5": f"--learning_rate={rate / 2:g}",
        "rate x 2": f"--learning_rate={rate * 2:g}",
        "adamw": "--optimizer=adamw",
        "adamw at half the rate": f"--optimizer=adamw --learning_rate={rate / 2:g}",
        "15 % masks": masks(base, 0.15),
        "30 % masks": masks(base, 0.3),
        "40 % masks": masks(base, 0.4),
        "fewer masks to the end": f"{masks(base, 0.4)} --masked_lm_prob=0.4->0.15",
        "quarter batches": f"--train_batch_size={whole // 4} {constant}",
        "half batches": f"--train_batch_size={whole // 2} {constant}",
        "double batches": f"--train_batch_size={2 * whole} {constant}",
        "growing batches": f"--training_options=batch_ramp_start={whole // 4},batch_ramp_steps=800",
        "ALiBi": "--model_options=position_type=alibi",
        "learned positions": "--model_options=position_type=learned",
        other_block.replace("_", "-"): f"--model_options=block_type={other_block}",
        "no gate": f"--model_options=gated_feed_forward=false --intermediate_size={1.5 * wide:g}",
        "all biases": "--model_options=biases=all",
        "next sentences": "--pairs=next --model_options=type_vocab_size=2",
        "beta2 0.999": "--optimizer_options=adam_beta_2=0.999",
        "weight decay 0.1": "--weight_decay_rate=0.1",
        "one cycle": "--learning_rate_schedule=cosine --cooldown=0",
        "packed rows": "--pack_rows",
        "near duplicates out": "--deduplicate=near",
        "embeddings of half": f"--embedding_size={hidden / 2:g}",
        "dropout": "--hidden_dropout_prob=0.1 --attention_probs_dropout_prob=0.1",
        "8,192 pieces": "--vocab_size=8192 --vocab_file=",
        "16,384 pieces": "--vocab_size=16384 --vocab_file=",
        "half the layers": f"--num_hidden_layers={layers / 2:g}",
        "more layers": f"--num_hidden_layers={1.5 * layers:g}",
        "wider": f"--hidden_size={1.5 * hidden:g} --num_attention_heads="
        f"{1.5 * float(base['num_attention_heads']):g} --intermediate_size={1.5 * wide:g}",
        "paper 1e-4": f"{paper} --learning_rate=1e-4",
        "paper 5e-4": f"{paper} --learning_rate=5e-4",
        "paper 1e-3": f"{paper} --learning_rate=1e-3",
    }


def paper_options(base: dict[str, str]) -> str:
    """Returns the paper's recipe at the same size, without its learning rate.

    Post-norm, learned positions, NSP, dropout, 15 % masks, Google's Adam.
    """
    return (
        "--model_options=block_type=post_norm,position_type=learned,gated_feed_forward=false "
        "--model_options=biases=all,type_vocab_size=2,hidden_act=gelu_tanh,layer_norm_eps=1e-12 "
        f"--intermediate_size={4 * float(base['hidden_size']):g} --pairs=next "
        "--hidden_dropout_prob=0.1 --attention_probs_dropout_prob=0.1 "
        f"{masks(base, 0.15)} --optimizer=adam_weight_decay "
        "--optimizer_options=adam_beta_2=0.999 "
        "--learning_rate_schedule=linear --cooldown=0"
    )


def masks(base: dict[str, str], share: float) -> str:
    """Returns the flags that mask a share of the pieces."""
    predictions = math.ceil(share * float(base["max_seq_length"]))
    return f"--masked_lm_prob={share} --max_predictions_per_seq={predictions}"


def run(name: str, minutes: str, given: str, judged: str) -> dict[str, float]:
    """Trains and judges a recipe; returns the results, which a finished run has on disk."""
    folder = pathlib.Path(OUTPUT.value, f"{minutes}-minutes", name.replace(" ", "_"))
    path = folder / "judged.json"
    if not path.exists():
        trained = [
            *("-m", "bert_tf.run_pretraining", f"--flagfile={RECIPE.value}", "--do_eval=true"),
            *("--eval_steps=0", "--save_checkpoints_steps=500", "--show_masks="),
            *(f"--vocab_file={VOCAB.value}", f"--train_for={minutes}min", *given.split()),
            *(f"--input_file={INPUT.value}", f"--random_seed={SEED.value}"),
            *(f"--output_dir={folder}", f"--cache_dir={OUTPUT.value}/cache"),
        ]
        for options in ([], ["--do_train=false", *judged.split()]):
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


def draw(folder: pathlib.Path) -> None:
    """Draws masked accuracy against minutes, a line for each recipe."""
    points: dict[str, list[tuple[float, float]]] = {}
    for path in folder.glob("*-minutes/*/judged.json"):
        minutes = float(path.parts[-3].removesuffix("-minutes"))
        accuracy = 100 * json.loads(path.read_text())["masked_lm_accuracy"]
        points.setdefault(path.parts[-2].replace("_", " "), []).append((minutes, accuracy))
    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.subplots()
    for name, line in sorted(points.items()):
        axes.plot(*zip(*sorted(line), strict=True), marker="o", label=name)
    ticks = sorted({minutes for line in points.values() for minutes, _ in line})
    axes.set_xscale("log")
    axes.set_xticks(ticks, [f"{minutes:g}" for minutes in ticks])
    axes.minorticks_off()
    axes.set_xlabel("minutes")
    axes.set_ylabel("masked accuracy, %")
    axes.grid(alpha=0.3)
    axes.legend()
    figure.savefig(folder / "minutes.png", dpi=100)


def main(_: list[str]) -> None:
    lines = expanded(["", f"--flagfile={RECIPE.value}"])[1:]
    base = dict(line.lstrip("-").split("=", 1) for line in lines)
    recipes = made_recipes(base)
    names = ONLY.value or list(recipes)
    if unknown := sorted(set(names) - set(recipes)):
        raise ValueError(f"--only: {unknown} are no recipes; these are: {list(recipes)}.")
    for minutes in MINUTES.value:
        results = {name: run(name, minutes, recipes[name], masks(base, 0.15)) for name in names}
        names = sorted(names, key=lambda name: bits_a_character(results[name]))
        print(f"\n{minutes} minutes\n")
        heads = ("recipe", "bits a character", "loss", "masked accuracy", "steps", "flags")
        rows = []
        for name in names:
            r = results[name]
            cells = (f"{bits_a_character(r):.3f}", f"{r['masked_lm_loss']:.3f}")
            accuracy = f"{r['masked_lm_accuracy']:.1%}"
            rows.append((name, *cells, accuracy, f"{r['global_step']:.0f}", recipes[name]))
        print_table(heads, rows)
        draw(pathlib.Path(OUTPUT.value))
        if not ONLY.value:
            names = names[: -(-len(names) // 2)]


if __name__ == "__main__":
    app.run(main)
