"""Configuration of the optimizer and of the learning-rate schedule."""

import dataclasses
import functools

from bert_tf.config.fields import Config, option, share

OPTIMIZERS = ("adam_weight_decay", "adamw", "lamb", "muon")
SCHEDULES = ("linear", "polynomial", "cosine", "trapezoid")
# Fields that --optimizer_options sets.
detail = functools.partial(option, within="optimizer_options")
detail_share = functools.partial(share, within="optimizer_options")


@dataclasses.dataclass(frozen=True)
class OptimizerConfig(Config):
    """Optimizer and learning-rate schedule."""

    optimizer: str = option(
        "adam_weight_decay",
        "adam_weight_decay: google-research/bert's (no bias correction); adamw: with bias "
        "correction, the default in fine-tuning; lamb: You et al. 2020; muon: adamw with "
        "orthogonalized steps for the matrices of the layers.",
        choices=OPTIMIZERS,
        from_run=True,  # A checkpoint has the slots of its optimizer.
    )
    learning_rate: float = option(5e-5, "Peak learning rate.", lower=0.0)
    num_train_steps: int = option(
        100000, "Optimizer steps; 0: as many as fit into train_minutes.", lower=0
    )
    num_warmup_steps: int = option(10000, "Steps of linear warm-up.", lower=0)
    train_minutes: float = option(
        0.0,
        "Minutes for training, including compilation, evaluations and saves; the schedule follows "
        "the time instead of num_train_steps. 0: no time limit.",
        lower=0.0,
        within="train_for",
    )
    warmup_proportion: float = share(
        0.1,
        "Share of the run in which the learning rate rises, if num_warmup_steps is not given. "
        "Pre-training for a number of steps uses it only if it is given; otherwise the warm-up is "
        "10,000 steps.",
        within="warmup",
    )
    cooldown_proportion: float = share(
        0.0,
        "Share of the run, at its end, in which the rate of a trapezoid falls, if "
        "num_cooldown_steps is not given.",
        needs=("learning_rate_schedule", "trapezoid"),
        within="cooldown",
    )
    learning_rate_schedule: str = option(
        "linear",
        "After the warm-up: linear to 0 (google-research/bert's); polynomial (NVIDIA's and "
        "MLPerf's); cosine; trapezoid: constant, then linear decay over num_cooldown_steps.",
        choices=SCHEDULES,
    )
    end_learning_rate: float = detail(
        0.0,
        "Rate at the end of a polynomial, cosine or trapezoid schedule.",
        lower=0.0,
        needs=("learning_rate_schedule", "polynomial", "cosine", "trapezoid"),
    )
    decay_power: float = detail(
        1.0,
        "Power of the polynomial schedule.",
        lower=0.0,
        needs=("learning_rate_schedule", "polynomial"),
    )
    num_cooldown_steps: int = option(
        0,
        "Steps at the end of the trapezoid in which the rate falls; 0: constant rate.",
        lower=0,
        needs=("learning_rate_schedule", "trapezoid"),
        within="cooldown",
    )
    weight_decay_rate: float = option(
        0.01, "Weight decay; LayerNorm and biases are never decayed.", lower=0.0
    )
    adam_beta_1: float = detail_share(
        0.9,
        "Decay of the first moment.",
    )
    adam_beta_2: float = detail_share(
        0.999,
        "Decay of the second moment.",
    )
    adam_epsilon: float = detail(
        1e-6,
        "Added to the square root of the second moment.",
        lower=0.0,
    )
    clip_norm: float = option(1.0, "Largest global gradient norm; 0: no clipping.", lower=0.0)
    clip_where: str = detail(
        "after",
        "Clip after the sum over replicas, or each replica's gradient before it (Google's TPU "
        "code, MLPerf).",
        choices=("after", "before"),
    )
    ema_decay: float = share(
        0.0,
        "Decay of an exponential moving average of the weights, which evaluations and readers of "
        "the checkpoint use instead of the weights; 0: no average.",
        from_run=True,
    )
    layerwise_lr_decay: float = share(
        1.0, "Factor by which the learning rate falls from each layer to the one below."
    )
    electra_layer_rates: bool = detail(
        False,
        "With layerwise_lr_decay: the exponents of google-research/electra, which start at 2 for "
        "the top layer instead of 1.",
        needs=("layerwise_lr_decay",),
    )

    def check(self) -> None:
        self.check_needs(self.names())
        if not self.num_train_steps and not self.train_minutes:
            raise ValueError(
                "num_train_steps is 0; give a number of steps, or minutes: --train_for=15min."
            )
        if self.end_learning_rate > self.learning_rate:
            raise ValueError(
                f"end_learning_rate {self.end_learning_rate:g} is above learning_rate "
                f"{self.learning_rate:g}, the peak; give a smaller one."
            )

    def check_lengths(self) -> None:
        """Raises ValueError if warm-up and cooldown do not fit into the run.

        It is not part of `check`, because flags may still replace default lengths.
        """
        if self.train_minutes:
            names = ("warmup_proportion", "cooldown_proportion")
            limit: float = 1
            unit = ""
        else:
            names = ("num_warmup_steps", "num_cooldown_steps")
            limit = self.num_train_steps
            unit = " steps"
        warmup, cooldown = (getattr(self, name) for name in names)
        if cooldown and warmup + cooldown > limit:
            raise ValueError(
                f"{names[0]} {warmup:g} and {names[1]} {cooldown:g} add up to more than "
                f"{limit}{unit}; shorten one of them."
            )
