"""Configuration of the training loop."""

import dataclasses
import functools

from bert_tf.config.fields import Config, changeable, option

BAD_LOSS_POLICIES = ("stop", "skip", "rewind")
STRATEGIES = ("one_device", "mirrored", "multi_worker", "tpu")
PRECISIONS = ("float32", "mixed_bfloat16", "mixed_float16", "auto")
# Fields that --training_options sets.
detail = functools.partial(changeable, within="training_options")


@dataclasses.dataclass(frozen=True)
class TrainingConfig(Config):
    """The training loop: actions, devices, and intervals of logs and checkpoints."""

    output_dir: str = changeable("", "Run directory.")
    init_checkpoint: str = option(
        "",
        "Initial weights, with their configuration and vocabulary: a run directory (its best "
        "checkpoint, or else the newest) or a checkpoint in it, a google-research/bert checkpoint "
        "(prefix, folder or .zip), a Hugging Face folder, a keras-hub preset or .weights.h5, a "
        "Model Garden encoder, a .keras file; or a name on a hub: hf://org/name[@revision], "
        "keras_hub://preset, kaggle://handle.",
    )
    keep_layers: str = option(
        "",
        "Layers of --init_checkpoint to use, counted from 0 and comma-separated: 0,2,5. Empty: all "
        "layers.",
        needs=("init_checkpoint",),
    )
    allow_missing: str = changeable(
        "",
        "Comma-separated prefixes of weight names that may be missing in --init_checkpoint; these "
        "weights are initialized at random.",
    )
    allow_unexpected: str = changeable(
        "", "Comma-separated prefixes of weight names in --init_checkpoint to ignore."
    )
    bert_config_file: str = changeable("", "bert_config.json; its values replace the shape flags.")
    do_train: bool = changeable(False, "Train.")
    do_eval: bool = changeable(
        False, "Evaluate at the end; for evaluations during training see eval_steps."
    )
    train_batch_size: int = option(32, "Examples per step, over all replicas.", lower=1)
    batch_ramp_start: int = option(
        0,
        "Size of the first batches, which doubles until train_batch_size; 0: no ramp.",
        lower=0,
        within="training_options",
    )
    batch_ramp_steps: int = option(
        0,
        "Steps of the batch ramp.",
        lower=0,
        within="training_options",
    )
    eval_batch_size: int = changeable(
        8, "Examples per evaluation step, over all replicas.", lower=1
    )
    max_eval_steps: int = changeable(100, "Maximum number of evaluation steps.", lower=1)
    eval_steps: int = changeable(
        0,
        "Steps between evaluations during training, and one at the end; 0: no evaluations.",
        lower=0,
    )
    early_stopping_evaluations: int = changeable(
        0, "Stop after this many evaluations in a row without improvement; 0: never.", lower=0
    )
    save_checkpoints_steps: int = changeable(
        1000,
        "Steps between checkpoints. A checkpoint is also written every two minutes, or every tenth "
        "of --train_for if that is less.",
        lower=1,
    )
    keep_checkpoint_max: int = changeable(
        3, "Number of newest checkpoints to keep; the best is always kept.", lower=1
    )
    iterations_per_loop: int = changeable(1000, "Maximum number of steps per graph call.", lower=1)
    log_steps: int = changeable(
        100,
        "Steps between logged lines; fewer in runs that would have fewer than 20 lines.",
        lower=1,
    )
    on_bad_loss: str = changeable(
        "stop",
        "Action if a loss or its gradients are not finite, or the loss jumps: stop; skip the "
        "update; rewind to the last checkpoint and skip the batches that led to the jump.",
        choices=BAD_LOSS_POLICIES,
    )
    spike_sigmas: float = detail(
        0.0,
        "A loss jumps if it is this many standard deviations above the mean of the last 100 steps; "
        "0: never.",
        lower=0.0,
    )
    max_bad_losses: int = detail(
        10,
        "The run stops after this many rewinds, or skipped steps in a row.",
        lower=1,
    )
    distribution: str = changeable(
        "one_device",
        "one_device; mirrored: all GPUs of this machine; multi_worker: the hosts in TF_CONFIG; "
        "tpu.",
        choices=STRATEGIES,
    )
    num_devices: int = detail(
        0,
        "Devices used by `mirrored`; 0: all.",
        lower=0,
    )
    precision: str = option(
        "float32",
        "Keras dtype policy; auto: mixed_bfloat16 if the hardware supports it and it is faster in "
        "a short test, otherwise float32.",
        choices=PRECISIONS,
    )
    jit_compile: bool = changeable(
        True,
        "Compile the step with XLA; in fine-tuning by default only with a GPU or TPU. The "
        "optimizer's update on one device is always compiled.",
    )
    pack_rows: bool = changeable(
        False,
        "Pack several short texts into one row: less padding, same losses.",
        # A TPU needs batches of one shape, but the number of rows changes from batch to batch.
        conflicts=("use_tpu", "distribution=tpu"),
    )
    gradient_accumulation_steps: int = changeable(
        0,
        "Micro-batches per step; must divide a replica's batch. 0: as many as memory requires.",
        lower=0,
    )
    recompute: bool = changeable(False, "Recompute layers in the backward pass to save memory.")
    attention: str = changeable(
        "auto",
        "How attention is computed. plain: in rows of tokens; by_heads: with the axes in an order "
        "without copies on TPUs; fused: by cuDNN's kernel for GPUs; auto: plain, on TPUs by_heads.",
        choices=("auto", "plain", "by_heads", "fused"),
    )
    use_tpu: bool = changeable(False, "google-research/bert's spelling of --distribution=tpu.")
    tpu_name: str = changeable("", "Name or address of the TPU; empty: the local TPU.")
    tpu_zone: str = changeable("", "Zone of the TPU.")
    gcp_project: str = changeable("", "Project of the TPU.")
    peak_flops: float = detail(
        0.0,
        "Peak FLOP/s of one device, to log the share of it; 0: known or measured.",
        lower=0.0,
    )
