"""Runs the programs as a user does, in processes of their own."""

import os
import subprocess
import sys

# Flags of pre-training a model of seconds.
SMALL_BERT = {
    "vocab_size": 200,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 64,
    "hidden_dropout_prob": 0,
    "attention_probs_dropout_prob": 0,
    "max_seq_length": 32,
    "max_predictions_per_seq": 5,
}


def start(program, *arguments, environment=(), **flags):
    """Starts a program; returns its process."""
    given = [f"--{name}={value}" for name, value in flags.items()]
    return subprocess.Popen(
        [sys.executable, "-m", f"bert_tf.{program}", *arguments, *given],
        env={**os.environ, **dict(environment)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def finish(process):
    """Returns what the program printed; its exit status must be 0."""
    printed = process.communicate(timeout=300)[0]
    assert process.returncode == 0, printed
    return printed


def fail(process):
    """Returns what the program printed; it must end with status 1 and one clear line."""
    printed = process.communicate(timeout=300)[0]
    assert process.returncode == 1, printed
    assert "Traceback" not in printed and "ERROR: " in printed
    return printed
