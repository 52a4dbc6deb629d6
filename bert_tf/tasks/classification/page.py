"""The report of a run as one HTML page, which loads no other files and runs no script."""

import base64
import html
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

STYLE = """
:root { color-scheme: light; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 62rem; margin: 0 auto; padding: 1rem; }
h1 { font-size: 1.4rem; } h2 { font-size: 1.15rem; } h1, p { overflow-wrap: anywhere; }
table { border-collapse: collapse; } td, th { padding: .15rem .8rem .15rem 0; text-align: left; }
pre { font: .8rem/1.4 ui-monospace, monospace; overflow-x: auto; }
article { border-top: 1px solid #ccc; padding: .5rem 0; } article p { margin: .2rem 0; }
.tokens { line-height: 1.9; } .tokens span { border-radius: .2rem; padding: .1rem .15rem; }
img { max-width: 100%; }
"""
# Colors of tokens that raise and lower the score; the opacity is relative to the strongest token.
FOR = "46,125,50"
AGAINST = "198,40,40"


class ShownError(NamedTuple):
    """A wrong answer."""

    loss: float  # of the example
    # label, answer: names, several separated by |.
    label: str
    answer: str
    explained: str  # the label whose score the contributions are of
    source: str  # file and line
    tokens: Sequence[str]  # T tokens that the model reads
    contributions: Sequence[float]  # T numbers, of `token_contributions`


def run_page(
    title: str,
    results: Mapping[str, float],
    plots: Mapping[str, pathlib.Path],
    report: str,
    errors: Sequence[ShownError],
) -> str:
    """Returns the page; plots are PNGs by title, of which those that do not exist are left out."""
    escape = html.escape
    parts = [f"<h1>{escape(title)}</h1>"]
    lines = [f"<tr><td>{escape(n)}</td><td>{v:.4f}</td></tr>" for n, v in results.items()]
    parts.append(f"<table>{''.join(lines)}</table>")
    for name, path in plots.items():
        if path.is_file():
            image = base64.b64encode(path.read_bytes()).decode()
            parts.append(
                f"<h2>{escape(name)}</h2>\n"
                f'<img alt="{escape(name)}" src="data:image/png;base64,{image}">'
            )
    if report:
        parts.append(f"<h2>Classes and confusions</h2>\n<pre>{escape(report)}</pre>")
    if errors:
        parts.append(
            "<h2>Worst errors</h2>\n<p>Green tokens raise the score of the answer, red ones lower "
            "it (gradient times input).</p>"
        )
    parts += map(_error_part, errors)
    body = "\n".join(parts)
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n"
        f"{body}\n</body>\n</html>\n"
    )


def _error_part(error: ShownError) -> str:
    escape = html.escape
    # 1 if all contributions are 0, so that nothing is divided by 0.
    largest = max(map(abs, error.contributions), default=0.0) or 1.0
    shown = []
    for token, value in zip(error.tokens, error.contributions, strict=True):
        color = FOR if value > 0 else AGAINST
        shown.append(
            f'<span title="{value:+.3f}" style="background:rgba({color},'
            f'{abs(value) / largest * 0.6:.2f})">{escape(token)}</span>'
        )
    explained = "" if error.explained == error.answer else f" Score of {escape(error.explained)}."
    return (
        f"<article><p><b>{escape(error.label)}</b> taken for <b>{escape(error.answer) or '-'}</b>, "
        f"loss {error.loss:.3f}, {escape(error.source)}.{explained}</p>\n"
        f'<p class="tokens">{" ".join(shown)}</p></article>'
    )


BATCH_SIZE = 8


def token_contributions(
    model: Any, batch: dict[str, np.ndarray], columns: np.ndarray
) -> np.ndarray:
    """Returns the derivative of a score by a factor of each token's embedding, at the factor 1.

    This is the dot product of the embedding and the gradient of the score by the embedding. It is
    positive if the token raises the score; 0 at padding, float32 [B, T].

    Args:
      batch: the encoder's inputs, int32 [B, T].
      columns: int [B] in [0, C), the class whose score is explained, for each row.

    Reference: Shrikumar et al. 2016, "Not Just a Black Box"; Atanasova et al. 2020.
    """
    parts = []
    # A few rows at a time: a gradient needs the activations of all layers.
    for start in range(0, len(columns), BATCH_SIZE):
        rows = {name: values[start : start + BATCH_SIZE] for name, values in batch.items()}
        chosen = tf.constant(columns[start : start + BATCH_SIZE], tf.int32)
        # The encoder multiplies the embedding of each token by its factor.
        factors = tf.ones(rows["input_mask"].shape, tf.float32)  # [B, T]
        with tf.GradientTape() as tape:
            tape.watch(factors)
            scores = model({**rows, "token_factors": factors}, training=False)  # [B, C]
            scores = tf.gather(scores, chosen, batch_dims=1)  # [B]
        parts.append(tape.gradient(scores, factors).numpy() * rows["input_mask"])
    return np.concatenate(parts)
