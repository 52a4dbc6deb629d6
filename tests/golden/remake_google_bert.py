"""Computes Google's golden files again with google-research/bert's own code.

    git clone https://github.com/google-research/bert /tmp/bert
    python tests/golden/remake_google_bert.py --repository=/tmp/bert

Prints the largest difference of each golden file from the value computed now, relative to the
file's largest value, and exits with status 1 if one is above 1e-5. `--write` replaces the files.

The original needs TensorFlow 1. It runs here under TensorFlow 2's v1 interface; only
`tf.layers.dense` and `tf.contrib.layers.layer_norm`, which TensorFlow 2 lacks, are replaced.
"""

import argparse
import importlib
import json
import lzma
import os
import pathlib
import runpy
import subprocess
import sys
import tempfile
import types
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import tensorflow.compat.v1 as tf
from archives import SUFFIX, edited, unpacked

FOLDER = pathlib.Path(__file__).resolve().parent
VOCABULARIES = FOLDER / f"vocab{SUFFIX}"
TOLERANCE = 1e-5
# The flags of each file of examples; all others keep the original's defaults.
RECORDS = {
    "default_128_dupe10": [],
    "wwm_64_dupe3": [
        "--do_whole_word_mask=True",
        "--max_seq_length=64",
        "--max_predictions_per_seq=10",
        "--dupe_factor=3",
        "--random_seed=7",
    ],
    "long_512_dupe2": [
        "--max_seq_length=512",
        "--max_predictions_per_seq=76",
        "--dupe_factor=2",
        "--short_seq_prob=0.1",
    ],
    "short_32_p30": [
        "--max_seq_length=32",
        "--max_predictions_per_seq=5",
        "--masked_lm_prob=0.3",
        "--short_seq_prob=0.5",
        "--dupe_factor=4",
        "--random_seed=99",
    ],
}


def dense(
    inputs: Any,
    units: int,
    activation: Any = None,
    name: str = "dense",
    kernel_initializer: Any = None,
) -> Any:
    """Replaces `tf.layers.dense` with the same variable names and layout."""
    with tf.variable_scope(name):
        shape = [inputs.shape[-1], units]
        kernel = tf.get_variable("kernel", shape, initializer=kernel_initializer)
        bias = tf.get_variable("bias", [units], initializer=tf.zeros_initializer())
    outputs = tf.tensordot(inputs, kernel, 1) + bias
    return activation(outputs) if activation else outputs


def layer_norm(inputs: Any, begin_norm_axis: int, begin_params_axis: int, scope: str) -> Any:
    """Replaces `tf.contrib.layers.layer_norm`, whose epsilon is 1e-12."""
    del begin_norm_axis, begin_params_axis  # The original only uses the last axis.
    with tf.variable_scope(scope or "LayerNorm"):
        beta = tf.get_variable("beta", [inputs.shape[-1]], initializer=tf.zeros_initializer())
        gamma = tf.get_variable("gamma", [inputs.shape[-1]], initializer=tf.ones_initializer())
    mean, variance = tf.nn.moments(inputs, [-1], keepdims=True)
    return tf.nn.batch_normalization(inputs, mean, variance, beta, gamma, 1e-12)


def import_original(repository: pathlib.Path) -> None:
    """Makes the original's modules importable, with TensorFlow's v1 interface as `tensorflow`."""
    stand_in = types.ModuleType("tensorflow")
    stand_in.__dict__.update(tf.__dict__)
    stand_in.layers = types.SimpleNamespace(dense=dense)
    layers = types.SimpleNamespace(layer_norm=layer_norm)
    stand_in.contrib = types.SimpleNamespace(layers=layers)
    sys.modules["tensorflow"] = stand_in
    sys.path.insert(0, str(repository))


class Comparison:
    """Compares values with those of a golden file, and replaces the file if asked to."""

    def __init__(self, write: bool) -> None:
        self.write = write
        self.failed = False

    def report(self, path: pathlib.Path, difference: float) -> None:
        verdict = "equal" if difference == 0 else f"largest difference {difference:.1e}"
        print(f"{path.parent.name}/{path.name}: {verdict}", flush=True)
        self.failed |= not difference <= TOLERANCE

    def arrays(self, path: pathlib.Path, computed: dict[str, np.ndarray]) -> None:
        """Compares the arrays of an .npz file, each relative to its largest value."""
        golden = dict(np.load(path))
        largest = 0.0
        for name, value in computed.items():
            expected = golden[name]
            if name.endswith("key/bias"):
                continue  # The true gradient is 0; what remains is rounding.
            scale = max(np.abs(expected).max(), 1e-6)
            largest = max(largest, float(np.abs(value - expected).max() / scale))
        self.report(path, largest)
        if self.write:
            np.savez_compressed(path, **{**golden, **computed})


def make_outputs(folder: pathlib.Path, batch: dict[str, np.ndarray]) -> dict[str, tf.Tensor]:
    """Builds model, heads and losses in the graph; returns their outputs by their names."""
    modeling = importlib.import_module("modeling")
    pretraining = importlib.import_module("run_pretraining")
    config = modeling.BertConfig.from_json_file(str(folder / "bert_config.json"))
    model = modeling.BertModel(
        config=config,
        is_training=False,
        input_ids=tf.constant(batch["input_ids"]),
        input_mask=tf.constant(batch["input_mask"]),
        token_type_ids=tf.constant(batch["segment_ids"]),
    )
    masked_lm = pretraining.get_masked_lm_output(
        config,
        model.get_sequence_output(),
        model.get_embedding_table(),
        tf.constant(batch["masked_lm_positions"]),
        tf.constant(batch["masked_lm_ids"]),
        tf.constant(batch["masked_lm_weights"]),
    )
    next_sentence = pretraining.get_next_sentence_output(
        config, model.get_pooled_output(), tf.constant(batch["next_sentence_labels"])
    )
    outputs = {
        "out_embedding_output": model.get_embedding_output(),
        "out_sequence_output": model.get_sequence_output(),
        "out_pooled_output": model.get_pooled_output(),
        "out_loss": masked_lm[0] + next_sentence[0],
    }
    for index, layer in enumerate(model.get_all_encoder_layers()):
        outputs[f"out_encoder_layer_{index}"] = layer
    for objective, (loss, example_loss, log_probs) in (
        ("masked_lm", masked_lm),
        ("next_sentence", next_sentence),
    ):
        outputs[f"out_{objective}_loss"] = loss
        outputs[f"out_{objective}_example_loss"] = example_loss
        outputs[f"out_{objective}_log_probs"] = log_probs
    return outputs


def compute_forward(folder: pathlib.Path, comparison: Comparison) -> None:
    """Runs model, heads, losses, gradients and the optimizer on the recorded batch."""
    optimization = importlib.import_module("optimization")
    golden = dict(np.load(folder / "golden_forward.npz"))
    recipe = json.loads((folder / "golden_training.json").read_text(encoding="utf8"))
    batch = {name[3:]: golden[name] for name in golden if name.startswith("in_")}

    with tf.Graph().as_default(), tf.Session() as session:
        outputs = make_outputs(folder, batch)
        variables = tf.trainable_variables()
        names = [variable.op.name for variable in variables]
        gradients = tf.gradients(outputs["out_loss"], variables)
        dense_gradients = [tf.convert_to_tensor(gradient) for gradient in gradients]
        train = optimization.create_optimizer(
            outputs["out_loss"],
            recipe["init_lr"],
            recipe["num_train_steps"],
            recipe["num_warmup_steps"],
            use_tpu=False,
        )
        session.run(tf.global_variables_initializer())
        tf.train.Saver(variables).restore(session, str(folder / "bert_model.ckpt"))

        comparison.arrays(folder / "golden_forward.npz", session.run(outputs))
        computed = session.run(dense_gradients)
        comparison.arrays(folder / "golden_gradients.npz", dict(zip(names, computed, strict=True)))
        losses = []
        for _ in range(recipe["steps_run"]):
            losses.append(float(session.run(outputs["out_loss"])))
            session.run(train)
        expected = np.array(recipe["loss_before_each_step"])
        # The order in which the step counter is read and raised within a step is not fixed in
        # TensorFlow 1, so that the rate of a single step may be that of the step before.
        difference = float(np.abs(losses - expected).max() / expected.max())
        print(f"losses of ten steps: largest difference {difference:.1e} (the order is not fixed)")


def compute_records(repository: pathlib.Path, folder: pathlib.Path, comparison: Comparison) -> None:
    """Writes pre-training examples with the original program and compares each feature."""
    for name, flags in RECORDS.items():
        path = folder / f"{name}.jsonl.xz"
        with tempfile.TemporaryDirectory() as temporary:
            records = pathlib.Path(temporary, "records")
            # In a process of its own: two programs of the original define the same flags.
            command = [
                sys.executable,
                __file__,
                f"--repository={repository}",
                "--create_examples",
                f"--input_file={FOLDER / 'google-bert-sample_text.txt'}",
                f"--vocab_file={unpacked(VOCABULARIES) / 'bert-base-uncased-vocab.txt'}",
                f"--output_file={records}",
                *flags,
            ]
            subprocess.run(command, check=True, stderr=subprocess.DEVNULL)
            computed = [parse_example(record) for record in tf.io.tf_record_iterator(str(records))]
        with lzma.open(path, "rt", encoding="utf8") as file:
            expected = [json.loads(line) for line in file]
        # As JSON: a float32 of 1 and an integer 1 differ.
        lines = [json.dumps(example) for example in computed]
        is_equal = lines == [json.dumps(example) for example in expected]
        comparison.report(path, 0.0 if is_equal else float("inf"))
        if comparison.write:
            with lzma.open(path, "wt", encoding="utf8") as file:
                file.writelines(f"{line}\n" for line in lines)


def parse_example(record: bytes) -> dict[str, list[float]]:
    """Returns the features of a serialized tf.train.Example as lists of numbers."""
    features = tf.train.Example.FromString(record).features.feature
    parsed = {}
    for name, feature in sorted(features.items()):
        values = feature.int64_list.value or feature.float_list.value
        parsed[name] = list(values)
    return parsed


def compute_tokens(comparison: Comparison) -> None:
    """Tokenizes the recorded texts with the original's tokenization.py."""
    tokenization = importlib.import_module("tokenization")
    for casing in ("uncased", "cased"):
        path = FOLDER / f"tokenization-golden-{casing}.jsonl.xz"
        vocabulary = unpacked(VOCABULARIES) / f"bert-base-{casing}-vocab.txt"
        tokenizer = tokenization.FullTokenizer(str(vocabulary), do_lower_case=casing == "uncased")
        with lzma.open(path, "rt", encoding="utf8") as file:
            rows = [json.loads(line) for line in file]
        wrong = 0
        for row in rows:
            wrong += tokenizer.tokenize(row["text"]) != row["tokens"]
        comparison.report(path, float(wrong))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--repository", type=pathlib.Path, required=True)
    parser.add_argument("--write", action="store_true", help="replace the golden files")
    parser.add_argument("--create_examples", action="store_true", help=argparse.SUPPRESS)
    arguments, flags = parser.parse_known_args()
    repository = arguments.repository.resolve()
    if not (repository / "modeling.py").is_file():
        sys.exit(f"ERROR: {repository} has no modeling.py; clone google-research/bert there.")
    tf.disable_v2_behavior()
    import_original(repository)
    if arguments.create_examples:
        sys.argv = ["create_pretraining_data.py", *flags]
        runpy.run_path(str(repository / "create_pretraining_data.py"), run_name="__main__")
    comparison = Comparison(arguments.write)
    with edited(FOLDER / f"google-tf1-checkpoint{SUFFIX}", arguments.write) as folder:
        compute_forward(folder, comparison)
    compute_tokens(comparison)
    compute_records(repository, FOLDER / "google-pretraining-records", comparison)
    sys.exit(int(comparison.failed))


if __name__ == "__main__":
    main()
