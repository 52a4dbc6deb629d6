"""Pre-trains BERT: text in, a trained model out.

    python -m bert_tf.run_pretraining --flagfile=configs/base.flags --input_file='my_text/*.txt'

The run directory is self-contained, and the same command resumes a run that was stopped.
"""

import dataclasses
import math
import pathlib
from typing import Any

from absl import logging

from bert_tf.checkpoints.run_identity import check_files, rewritten_files
from bert_tf.checkpoints.run_record import check_same_run, has_checkpoints, recorded, shared_values
from bert_tf.config import (
    MaskingConfig,
    ModelConfig,
    OptimizerConfig,
    PretrainingConfigs,
    TrainingConfig,
    config_flags,
    with_causal_share,
)
from bert_tf.config.flag_rules import MODEL_RULES
from bert_tf.config.rules import check_rules
from bert_tf.corpus.abbreviations import abbreviations_of
from bert_tf.system.files import cache_folder
from bert_tf.text.kinds import check_kind, find_vocabulary, with_vocabulary
from bert_tf.text.tokenization import read_vocab
from bert_tf.text.vocab import WORDPIECE
from bert_tf.training.stopping import stoppable
from bert_tf.training.worker_group import joined_workers

IN_STEPS = {  # and what to give with minutes instead
    "num_train_steps": "leave one of them out",
    "num_warmup_steps": "give --warmup=SHARE",
    "num_cooldown_steps": "give --cooldown=SHARE",
}
ELECTRA_SHARES = (0.85, 0.0)  # [MASK] and random tokens, as in ELECTRA's pretrain_helpers.py

config_flags.define_flags(*PretrainingConfigs.__annotations__.values())


def main(_: list[str]) -> int:
    return stoppable(run)


def run() -> int:
    """Runs the program with the parsed flags; returns the exit status."""
    configs = read_configs()
    start = None
    folder = pathlib.Path(configs.training.output_dir)
    if has_checkpoints(folder):
        check_files(folder, without=rewritten_files(configs.training))
    is_foreign = folder.is_dir() and not (folder / "run.flags").exists()
    # TensorFlow takes seconds to load, so it is loaded after --help and wrong flags are handled.
    if configs.training.init_checkpoint or is_foreign:
        from bert_tf.pretraining.prepare import read_initial_checkpoint

        configs, start = read_initial_checkpoint(configs)
    if configs.training.do_train:
        check_same_run(configs.training.output_dir, *configs)
    else:  # An evaluation may use other data and batches, but the model must be the same.
        check_same_run(configs.training.output_dir, configs.model)
    check_rules(MODEL_RULES, configs)
    with joined_workers(configs.training.distribution, shared_values(*configs)):
        from bert_tf.pretraining import run as pretraining

        return pretraining.run(configs, start)


def read_configs() -> PretrainingConfigs:
    """Creates the configuration from the flags.

    Raises:
      ValueError: if flags contradict each other.
    """
    configs = PretrainingConfigs(
        *map(config_flags.from_flags, PretrainingConfigs.__annotations__.values())
    )
    configs = configs._replace(
        optimizer=with_length(configs.optimizer, configs.training.output_dir)
    )
    data = configs.data
    abbreviations_of(data.sentence_language)
    training = configs.training
    steps = configs.optimizer.num_train_steps
    warmup = configs.optimizer.num_warmup_steps
    if training.do_train and 0 < steps <= warmup:
        logging.warning(
            "--num_warmup_steps=%d is not below --num_train_steps=%d: the learning rate never "
            "reaches its peak; lower it, or give --warmup=0.1.",
            warmup,
            steps,
        )
    if configs.objective.objective == "replaced_tokens":
        configs = configs._replace(masking=with_electra_shares(configs.masking, training))
    configs.check()
    if training.bert_config_file and not training.init_checkpoint:
        model = config_flags.read_model(training.bert_config_file, configs.model)
        configs = configs._replace(model=model)
    configs = configs._replace(model=with_causal_share(configs.model, configs.masking))
    if configs.objective.objective == "masked_diffusion":
        masking = configs.masking.any_share(configs.data.max_seq_length)
        configs = configs._replace(masking=masking)
    check_share(configs)
    if not data.cache_dir:
        cache_dir = str(cache_folder(training.output_dir))
        configs = configs._replace(data=dataclasses.replace(data, cache_dir=cache_dir))
    if training.init_checkpoint:
        return configs
    return fit_to_vocabulary(configs)


def with_electra_shares(masking: MaskingConfig, training: TrainingConfig) -> MaskingConfig:
    """Returns ELECTRA's 85 % [MASK] and no random tokens, unless a share is given or recorded."""
    names = ("masked_share", "random_share")
    if masking.masking != "dynamic" or set(names) & set(config_flags.given(MaskingConfig)):
        return masking
    # A resumed run keeps the shares that it started with.
    before = [recorded(training.output_dir, name) for name in names]
    masked_share, random_share = map(float, before if all(before) else ELECTRA_SHARES)
    return dataclasses.replace(masking, masked_share=masked_share, random_share=random_share)


def check_share(configs: PretrainingConfigs) -> None:
    """Checks that the masked share fits into the predictions.

    Raises:
      ValueError: if not. In an existing run, too few predictions only cause a warning.
    """
    masking = configs.masking
    length = configs.data.max_seq_length
    needed = masking.largest_share * length
    # Google's recipes also round down: 76 of 512 * 0.15. Masked records have a share already.
    if masking.masking == "static" or int(needed) <= masking.max_predictions_per_seq:
        return
    message = (
        f"{masking.largest_share:g} of {length} tokens are {needed:.4g} predictions, above "
        f"--max_predictions_per_seq={masking.max_predictions_per_seq}: give "
        f"--max_predictions_per_seq={math.ceil(needed)}, or --masking=static for masked records."
    )
    if not pathlib.Path(configs.training.output_dir, "run.flags").exists():
        raise ValueError(message)
    logging.warning("%s", message)


def with_length(optimization: OptimizerConfig, output_dir: str) -> OptimizerConfig:
    """Replaces numbers of steps by a number of minutes, or shares of the run by numbers of steps.

    Raises:
      ValueError: if both are given, or warm-up and cooldown are longer than the run.
    """
    given = config_flags.given(OptimizerConfig)
    changed: dict[str, Any] = {}
    if optimization.train_minutes:
        for name, remedy in IN_STEPS.items():
            if given.get(name):
                raise ValueError(
                    f"--train_for={optimization.train_minutes:g}min with --{name}={given[name]}: "
                    f"{remedy}; to cancel a value from a flagfile, give --{name}=0, or a number of "
                    "steps as --train_for."
                )
            changed[name] = 0
    else:
        for part in ("warmup", "cooldown"):
            share = f"{part}_proportion"
            steps = f"num_{part}_steps"
            if share in given and steps not in given:
                count = getattr(optimization, share) * optimization.num_train_steps
                # A resumed run keeps its number of steps.
                changed[steps] = int(recorded(output_dir, steps) or count)
    optimization = dataclasses.replace(optimization, **changed)
    optimization.check_lengths()
    return optimization


def fit_to_vocabulary(configs: PretrainingConfigs) -> PretrainingConfigs:
    """Adapts the model's configuration to the given vocabulary, or to that of the run.

    Raises:
      ValueError: if the vocabulary is of another kind than --tokenizer.
    """
    given = configs.data.vocab_file
    path = find_vocabulary(configs.training.output_dir)
    if given:
        path = pathlib.Path(given).expanduser()
    if path and path.is_file():
        vocab = read_vocab(path)
        check_kind(vocab, config_flags.given(ModelConfig), path)
        return configs._replace(model=with_vocabulary(configs.model, vocab))
    if configs.model.tokenizer != WORDPIECE:  # The vocabulary will be trained.
        return configs._replace(model=dataclasses.replace(configs.model, do_lower_case=False))
    return configs


if __name__ == "__main__":
    config_flags.run(main)
