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
    ORDERED_OBJECTIVES,
    MaskingConfig,
    ModelConfig,
    OptimizerConfig,
    PretrainingConfigs,
    TrainingConfig,
    config_flags,
    with_causal_share,
)
from bert_tf.corpus.abbreviations import abbreviations_of
from bert_tf.system.files import cache_folder
from bert_tf.text.kinds import check_kind, find_vocabulary, with_vocabulary
from bert_tf.text.tokenization import read_vocab
from bert_tf.text.vocab import WORDPIECE
from bert_tf.training.stopping import stoppable
from bert_tf.training.worker_group import joined_workers

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
    check_length(configs)
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
    if not training.output_dir:
        raise ValueError("--output_dir is empty; name the run directory, for example runs/my_bert.")
    if not (training.do_train or training.do_eval):
        raise ValueError("At least one of --do_train and --do_eval must be true.")
    if training.bert_config_file and not training.init_checkpoint:
        model = config_flags.read_model(training.bert_config_file, configs.model)
        configs = configs._replace(model=model)
    patience = training.early_stopping_evaluations
    if patience and not training.eval_steps:
        raise ValueError(
            f"--early_stopping_evaluations={patience} needs evaluations: give --eval_steps."
        )
    if configs.objective.objective == "replaced_tokens":
        configs = configs._replace(masking=with_electra_shares(configs.masking, training))
    check_objective(configs)
    configs = configs._replace(model=with_causal_share(configs.model, configs.masking))
    if configs.objective.objective == "masked_diffusion":
        masking = configs.masking.any_share(configs.data.max_seq_length)
        configs = configs._replace(masking=masking)
    check_share(configs)
    if data.added_words_file and not training.init_checkpoint:
        raise ValueError(
            "--added_words_file adds to the vocabulary of a checkpoint; give --init_checkpoint."
        )
    if not data.cache_dir:
        cache_dir = str(cache_folder(training.output_dir))
        configs = configs._replace(data=dataclasses.replace(data, cache_dir=cache_dir))
    return configs if training.init_checkpoint else fit_to_vocabulary(configs)


def with_electra_shares(masking: MaskingConfig, training: TrainingConfig) -> MaskingConfig:
    """Returns ELECTRA's 85 % [MASK] and no random tokens, unless a share is given or recorded."""
    names = ("masked_share", "random_share")
    if masking.masking != "dynamic" or set(names) & set(config_flags.given(MaskingConfig)):
        return masking
    # A resumed run keeps the shares that it started with.
    before = [recorded(training.output_dir, name) for name in names]
    masked_share, random_share = map(float, before if all(before) else ELECTRA_SHARES)
    return dataclasses.replace(masking, masked_share=masked_share, random_share=random_share)


def check_objective(configs: PretrainingConfigs) -> None:
    """Raises ValueError if the objective contradicts other flags."""
    masking = configs.masking
    objective = configs.objective.objective
    if objective == "masked_diffusion":
        check_single_tokens("--objective=masked_diffusion", masking)
    if objective in ORDERED_OBJECTIVES:
        check_order(f"--objective={objective}", configs)
        if configs.training.pack_rows:
            raise ValueError(
                f"--objective={objective} needs rows of one text, but --pack_rows puts several "
                "into a row; leave it out."
            )
    if masking.rank_special_tokens and objective != "permuted_lm":
        raise ValueError(
            f"--masking_options=rank_special_tokens has no effect with --objective={objective}; "
            "leave it out, or give --objective=permuted_lm."
        )
    if masking.causal_share:
        check_causal_share(configs)
    is_reference = configs.objective.electra_reference_sampling
    if is_reference:
        check_single_tokens("--objective_options=electra_reference_sampling", masking)
    if is_reference and masking.random_share:
        raise ValueError(
            "--objective_options=electra_reference_sampling masks as google-research/electra does, "
            "without random tokens; give --masking_options=random_share=0 as well."
        )
    if objective != "replaced_tokens":
        return
    others = {
        "--pairs": (configs.data.use_next_sentence, "--pairs=none"),
        "--init_checkpoint": (configs.training.init_checkpoint, "no --init_checkpoint"),
        "--show_masks": (configs.data.show_masks, "no --show_masks"),
        "--teacher": (configs.objective.teacher, "no --teacher"),
        "--masking": (masking.masking != "dynamic", "--masking=dynamic"),
        "--pack_rows": (configs.training.pack_rows, "--pack_rows=false"),
    }
    for name, (is_wrong, remedy) in others.items():
        if is_wrong:
            raise ValueError(
                f"--objective=replaced_tokens trains both models from scratch with dynamic masks, "
                f"without sentence pairs or packed rows; it does not work with {name}: give "
                f"{remedy}."
            )


def check_order(flag: str, configs: PretrainingConfigs) -> None:
    """Raises ValueError if other flags contradict one that draws an order of the tokens."""
    if configs.masking.masking != "dynamic":
        raise ValueError(
            f"{flag} draws other tokens in each epoch, but --masking={configs.masking.masking}; "
            "give --masking=dynamic."
        )
    if configs.objective.teacher:
        raise ValueError(f"{flag} does not work with --teacher, which sees all tokens; leave one.")


def check_causal_share(configs: PretrainingConfigs) -> None:
    """Raises ValueError if causal_share contradicts other flags."""
    check_order("--masking_options=causal_share", configs)
    if configs.objective.objective != "masked_lm":
        raise ValueError(
            f"--masking_options=causal_share works with --objective=masked_lm, not "
            f"{configs.objective.objective}; leave one of them out."
        )
    if configs.data.use_next_sentence:
        raise ValueError(
            "--masking_options=causal_share hides a pair of texts from its first token, by which "
            "the next sentence is predicted; give --pairs=none as well."
        )


def check_single_tokens(flag: str, masking: MaskingConfig) -> None:
    """Raises ValueError if other flags contradict one that selects single tokens at random."""
    others = {
        "--mask_unit=word": masking.do_whole_word_mask,
        "--mask_unit=span": masking.span_length,
        "--mask_unit=ngram": masking.ngram_length,
        "--masked_lm_prob=START->END": masking.masked_lm_prob_end,
        f"--masking={masking.masking}": masking.masking != "dynamic",
    }
    for name, is_given in others.items():
        if is_given:
            raise ValueError(
                f"{flag} draws single tokens in each epoch, which contradicts {name}; leave one of "
                "them out."
            )


def check_share(configs: PretrainingConfigs) -> None:
    """Checks that the masked share fits into the predictions, and that its end is known.

    Raises:
      ValueError: if not. In an existing run, too few predictions only cause a warning.
    """
    masking = configs.masking
    length = configs.data.max_seq_length
    others = {
        "--train_for=MINUTESmin": configs.optimizer.train_minutes,
        "--training_options=batch_ramp_steps": configs.training.batch_ramp_steps,
    }
    for name, is_given in others.items():
        if masking.masked_lm_prob_end and is_given:
            raise ValueError(
                f"--masked_lm_prob={masking.masked_lm_prob:g}->{masking.masked_lm_prob_end:g} "
                f"counts the steps of the run, which {name} changes; leave one of them out."
            )
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
    if not optimization.train_minutes:
        for part in ("warmup", "cooldown"):
            share = f"{part}_proportion"
            steps = f"num_{part}_steps"
            if share in given and steps not in given:
                count = int(getattr(optimization, share) * optimization.num_train_steps)
                if before := recorded(output_dir, steps):
                    count = int(before)  # A resumed run keeps its number of steps.
                changed: dict[str, Any] = {steps: count}
                optimization = dataclasses.replace(optimization, **changed)
        optimization.check_lengths()
        return optimization
    in_steps = {
        "num_train_steps": "leave one of them out",
        "num_warmup_steps": "give --warmup=SHARE",
        "num_cooldown_steps": "give --cooldown=SHARE",
    }
    for name, remedy in in_steps.items():
        if given.get(name):
            minutes = optimization.train_minutes
            raise ValueError(
                f"--train_for={minutes:g}min with --{name}={given[name]}: {remedy}; to cancel a "
                f"value from a flagfile, give --{name}=0, or a number of steps as --train_for."
            )
    optimization.check_lengths()
    return dataclasses.replace(
        optimization, num_train_steps=0, num_warmup_steps=0, num_cooldown_steps=0
    )


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


def check_length(configs: PretrainingConfigs) -> None:
    """Raises ValueError if sequences are longer than the position table."""
    length = configs.data.max_seq_length
    limit = configs.model.longest_row
    if length > limit:
        raise ValueError(
            f"--max_seq_length={length} is above the model's max_position_embeddings {limit}; with "
            f"an --init_checkpoint, --max_position_embeddings={length} enlarges its table."
        )


if __name__ == "__main__":
    config_flags.run(main)
