"""Logistic regression on fixed vectors, the head of `few_shot`.

It minimises the objective of scikit-learn's LogisticRegression with its default C = 1,

    sum of the log losses + (squared length of the weights) / 2

where the bias is not penalised. The problem is convex, so that a few dozen steps of Newton's method
find its only minimum. Each step solves for its direction by conjugate gradients, because the
Hessian [(D + 1) C, (D + 1) C] of many classes does not fit in memory.
"""

from collections.abc import Callable

import numpy as np

MOST_STEPS = 100
MOST_INNER_STEPS = 200
TOLERANCE = 1e-6  # largest component of the gradient at the minimum

Matrix = np.ndarray


def fit_logistic(vectors: Matrix, labels: Matrix, problem_type: str, num_labels: int = 0) -> Matrix:
    """Returns the weights of the head, float64 [D + 1, C]; the last row is the bias.

    Args:
      vectors: float [N, D].
      labels: int [N] of `num_labels` classes, or 0 and 1 [N, C] of several labels.
    """
    # A column of ones is the input of the bias. [N, D + 1]
    inputs = np.concatenate([vectors, np.ones([len(vectors), 1])], axis=1).astype(np.float64)
    if problem_type == "multi_label":
        return _minimize(inputs, labels.astype(np.float64), _sigmoid)
    targets = np.eye(num_labels)[labels]  # [N, C]
    if num_labels > 2:
        return _minimize(inputs, targets, _softmax)
    # As in scikit-learn, two classes have one row of weights: that of their difference.
    weights = _minimize(inputs, targets[:, 1:], _sigmoid)
    return np.concatenate([-weights / 2, weights / 2], axis=1)


def _sigmoid(logits: Matrix) -> tuple[Matrix, Matrix, Callable[[Matrix], Matrix]]:
    """Returns log normalisers [N, C], probabilities [N, C], and the product with the Hessian."""
    # The logistic function, in a form that does not overflow.
    probabilities = 0.5 * (1.0 + np.tanh(0.5 * logits))
    variance = probabilities * (1.0 - probabilities)
    return np.logaddexp(0.0, logits), probabilities, lambda change: variance * change


def _softmax(logits: Matrix) -> tuple[Matrix, Matrix, Callable[[Matrix], Matrix]]:
    """Returns log normalisers [N, 1], probabilities [N, C], and the product with the Hessian."""
    highest = logits.max(axis=1, keepdims=True)
    sums = np.exp(logits - highest).sum(axis=1, keepdims=True)
    normalizers = highest + np.log(sums)
    probabilities = np.exp(logits - normalizers)

    # The Hessian of a row is diag(p) - p p^T.
    def multiply(change: Matrix) -> Matrix:
        mean = (probabilities * change).sum(axis=1, keepdims=True)
        return probabilities * (change - mean)

    return normalizers, probabilities, multiply


def _minimize(
    inputs: Matrix,
    targets: Matrix,
    link: Callable[[Matrix], tuple[Matrix, Matrix, Callable[[Matrix], Matrix]]],
) -> Matrix:
    """Returns the weights [D + 1, C] with the smallest loss, by Newton's method."""
    weights = np.zeros([inputs.shape[1], targets.shape[1]])
    penalty = np.ones([inputs.shape[1], 1])
    penalty[-1] = 0.0  # the bias

    def loss_of(trial: Matrix) -> float:
        logits = inputs @ trial
        fit = link(logits)[0].sum() - (targets * logits).sum()
        return float(fit + 0.5 * (penalty * trial**2).sum())

    for _ in range(MOST_STEPS):
        _, probabilities, multiply = link(inputs @ weights)  # [N, C]
        gradient = inputs.T @ (probabilities - targets) + penalty * weights  # [D + 1, C]
        if np.abs(gradient).max() < TOLERANCE:
            break

        def times_hessian(change: Matrix, multiply: Callable = multiply) -> Matrix:
            return inputs.T @ multiply(inputs @ change) + penalty * change

        step = _solve(times_hessian, -gradient)
        # Far from the minimum a full step may overshoot: it is halved until the loss decreases
        # enough (Armijo's rule).
        loss_before = loss_of(weights)
        slope = float((gradient * step).sum())
        scale = 1.0
        while loss_of(weights + scale * step) > loss_before + 1e-4 * scale * slope and scale > 1e-6:
            scale /= 2
        weights = weights + scale * step
    return weights


def _solve(times_matrix: Callable[[Matrix], Matrix], target: Matrix) -> Matrix:
    """Returns an approximate solution of matrix * x = target by conjugate gradients."""
    solution = np.zeros_like(target)
    residual = target.copy()
    direction = residual.copy()
    length = float((residual**2).sum())  # squared
    # The closer to the minimum, the more exact the solution must be for Newton's method.
    tolerance = min(0.25, np.sqrt(np.sqrt(length))) ** 2 * length
    for _ in range(MOST_INNER_STEPS):
        if length <= tolerance:
            break
        product = times_matrix(direction)
        curvature = float((direction * product).sum())
        # 0 if all classes' biases change equally; negative only by rounding.
        if curvature <= 0.0:
            break
        factor = length / curvature
        solution += factor * direction
        residual -= factor * product
        length_before = length
        length = float((residual**2).sum())
        direction = residual + (length / length_before) * direction
    return solution
