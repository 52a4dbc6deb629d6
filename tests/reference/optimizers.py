"""NumPy twins of the optimizers, one variable at a time, in float64."""

import numpy as np


def clip_by_global_norm(gradients: list[np.ndarray], clip_norm: float) -> list[np.ndarray]:
    norm = np.sqrt(sum((gradient.astype(np.float64) ** 2).sum() for gradient in gradients))
    return [gradient * min(1.0, clip_norm / norm) for gradient in gradients]


def linear_schedule(peak: float, step: int, train_steps: int, warmup_steps: int) -> float:
    if step < warmup_steps:
        return peak * step / warmup_steps
    return peak * (1 - min(step, train_steps) / train_steps)


def schedule(
    kind: str,
    peak: float,
    step: int,
    train_steps: int,
    warmup_steps: int,
    end_learning_rate: float = 0.0,
    power: float = 1.0,
    num_cooldown_steps: int = 0,
) -> float:
    """The other schedules, as points of a curve that NumPy interpolates, or as their formula."""
    if step < warmup_steps:
        return np.interp(step, [0, warmup_steps], [0.0, peak])
    step = min(step, train_steps)
    if kind == "LinearWarmupTrapezoid":
        fall = train_steps - num_cooldown_steps
        ends = [peak, end_learning_rate if num_cooldown_steps else peak]
        return np.interp(step, [fall, train_steps], ends)
    if kind == "LinearWarmupCosineDecay":
        angle = np.interp(step, [warmup_steps, train_steps], [0.0, np.pi])
        return (peak + end_learning_rate) / 2 + (peak - end_learning_rate) / 2 * np.cos(angle)
    left = (train_steps - step) / train_steps
    return peak * left**power + end_learning_rate * (1 - left**power)


class Twin:
    """State of one variable; `step` applies one clipped gradient and returns the new value.

    `average` is the exponential moving average of the values after each step.
    """

    def __init__(self, kind: str, value: np.ndarray, decayed: bool, ema_decay: float = 0.0) -> None:
        self.kind, self.value, self.decayed = kind, value.astype(np.float64), decayed
        self.ema_decay, self.average = ema_decay, np.full(value.shape, np.nan)
        self.m, self.v, self.count = np.zeros(value.shape), np.zeros(value.shape), 0

    def step(self, gradient: np.ndarray, rate: float, decay: float = 0.01) -> np.ndarray:
        self.count += 1
        self.m = 0.9 * self.m + 0.1 * gradient
        self.v = 0.999 * self.v + 0.001 * gradient**2
        m, v = self.m, self.v
        if self.kind != "adam_weight_decay":
            m, v = m / (1 - 0.9**self.count), v / (1 - 0.999**self.count)
        update = m / (np.sqrt(v) + 1e-6)
        if self.decayed:
            update = update + decay * self.value
            if self.kind == "lamb":
                norms = np.linalg.norm(self.value), np.linalg.norm(update)
                update = update * (norms[0] / norms[1] if all(norms) else 1.0)
        self.value = self.value - rate * update
        self._take_average()
        return self.value

    def _take_average(self) -> None:
        """TF1's rule, min(decay, (1 + n) / (10 + n)), where n counts from the first value on."""
        n = self.count - 2
        kept = min(self.ema_decay, (1 + n) / (10 + n))
        new = self.value if n < 0 else (1 - kept) * self.value
        self.average = new if n < 0 else kept * self.average + new
