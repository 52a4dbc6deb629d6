"""Compares the answers of a SavedModel with those of the model in Python, for unusual texts."""

import re
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from bert_tf.inference.kinds import KINDS
from bert_tf.inference.serving_models import load
from bert_tf.pretraining.masked_words.serving import MASK_PREDICT, SCORE
from bert_tf.tasks.base.serving.model import IDS, Serving
from bert_tf.text.kinds import encode_with_masks
from bert_tf.text.packing import pack, pack_pair, pad_batch
from bert_tf.text.tokenization import make_tokenizer
from bert_tf.text.vocab import MASK
from export.checks.stored_model import Request, StoredModel

ODD_TEXTS = (
    "The film was better than I had thought.",
    "",
    "word " * 1000,  # longer than every model reads
    "I saw \U0001f600 and \U0001f469\u200d\U0001f4bb!",  # emoji, one of several code points
    "\u6211\u5728\u5317\u4eac\u4e0a\u5b66\u3002",  # Chinese: every character is a word
    "Ça, Ünal, e\u0301te\u0301, I\u0307stanbul, ΌΣΟΣ",  # accents, separate accents, cases
    "\x00a\x07b\u200b \ufeff\ufffd\t\r\n\u2028",  # control and formatting characters
    f"A {MASK} in a {MASK}.",
    "don't (well-known) ... $3.50?!",
    " \u3000\u00a0 ",  # white space alone
    "x" * 300,  # more characters than a word of WordPiece may have
)
NOT_UTF8 = b"caf\xe9"
WORDS = (("Ada", "Lovelace's", "", "\u5317\u4eac", "\x07", ""), ("", "", "", "", "", ""))
TOLERANCE = 1e-5  # of floats: relative for numbers above 1, absolute for others
BFLOAT16_TOLERANCE = 0.03  # Products are rounded to 8 bits, in another order in each runtime.
# Outputs by name, or the code and the message of an error.
Answer = dict[str, np.ndarray] | tuple[int, str]


def tolerance_of(stored: StoredModel) -> float:
    """Returns the allowed difference of floats between two runtimes."""
    precision = stored.card.get("options", {}).get("precision", "float32")
    if precision == "float32":
        return TOLERANCE
    return BFLOAT16_TOLERANCE


def make_requests(stored: StoredModel) -> list[Request]:
    """Returns a request of `ODD_TEXTS` for each signature, sorted by the signature's name."""
    columns = odd_texts(stored)
    texts = text_columns(stored)
    rows = pack_texts(stored, *columns.values())
    features = texts if stored.takes_texts else rows
    numbers = number_inputs(stored)
    # By the name of the first input, which tells the signatures apart.
    of_input = {
        **dict.fromkeys([*texts, *numbers], {**texts, **numbers}),
        **dict.fromkeys(IDS, rows),
        "words": {"words": np.stack(list(map(_strings, WORDS)))},
        "examples": {"examples": _examples(features)},
    }
    requests = []
    for name, signature in sorted(stored.signatures.items()):
        first_input = next(iter(signature.inputs))
        requests.append(Request(name, of_input[first_input]))
    return requests


def odd_texts(stored: StoredModel) -> dict[str, Sequence[str]]:
    """Returns the texts by name; the second texts of pairs are the first in reverse order."""
    # A model of single texts takes only the first column.
    return dict(zip(stored.card["inputs"], (ODD_TEXTS, ODD_TEXTS[::-1]), strict=False))


def text_columns(stored: StoredModel) -> dict[str, np.ndarray]:
    """Returns `odd_texts` as arrays of a request: object [B], or [B, 3] for lists of texts."""
    columns = {name: _strings(column) for name, column in odd_texts(stored).items()}
    for name in stored.card.get("lists", []):
        column = columns[name]
        # Lists of three different texts.
        columns[name] = np.stack([column, np.roll(column, 3), np.roll(column, 5)], axis=1)
    return columns


def pack_texts(stored: StoredModel, *texts: Sequence[str]) -> dict[str, np.ndarray]:
    """Packs texts as the Python programs do, with the mask token where a text has [MASK]."""
    tokenizer = make_tokenizer(stored.vocab, stored.card["do_lower_case"])
    columns = [[encode_with_masks(tokenizer, text) for text in column] for column in texts]
    length = stored.card["max_seq_length"]
    if len(columns) == 1:
        rows = [pack(stored.vocab, ids, None, length) for ids in columns[0]]
    else:
        pairs = zip(columns[0], columns[1], strict=True)
        make = pack_pair if stored.card["kind"] == "reranker" else pack
        rows = [make(stored.vocab, first, second, length) for first, second in pairs]
    return pad_batch(rows, stored.vocab.pad_id)


def broken_request(stored: StoredModel) -> Request:
    """Returns a request whose last text is not UTF-8."""
    texts = text_columns(stored)
    texts[stored.card["inputs"][-1]][-1] = NOT_UTF8
    return Request("serving_default", {**texts, **number_inputs(stored)})


def number_inputs(stored: StoredModel) -> dict[str, np.ndarray]:
    """Returns the numbers of a request, such as k of a search, int32 []."""
    numbers = stored.card.get("numbers", {})
    return {name: np.array(value, np.int32) for name, value in numbers.items()}


def _strings(texts: Sequence[str]) -> np.ndarray:
    return np.array([text.encode() for text in texts], object)


def _examples(features: dict[str, np.ndarray]) -> np.ndarray:
    """Returns columns of strings or ids as serialized tf.Examples, object [B]."""

    def feature(value: bytes | np.ndarray) -> tf.train.Feature:
        if isinstance(value, bytes) or value.dtype == object:
            return tf.train.Feature(bytes_list=tf.train.BytesList(value=np.atleast_1d(value)))
        return tf.train.Feature(int64_list=tf.train.Int64List(value=value))

    serialized = []
    for row in zip(*features.values(), strict=True):
        named = {name: feature(value) for name, value in zip(features, row, strict=True)}
        example = tf.train.Example(features=tf.train.Features(feature=named))
        serialized.append(example.SerializeToString())
    return np.array(serialized, object)


def load_source(stored: StoredModel, model_dir: str) -> Serving:
    """Loads the model that a SavedModel was made from, with the same kind, length and inputs."""
    card = stored.card
    options = dict(card.get("options", {}))
    if card["kind"] in KINDS and KINDS[card["kind"]].problem_type:
        options["texts"] = tuple(card["inputs"])
    try:
        return load(model_dir, card["kind"], card["max_seq_length"], **options)
    except TypeError as error:
        raise ValueError(
            f"{stored.folder}: {model_dir} cannot be loaded with the options {options} of "
            f"bert_tf.json ({error}); export the model again."
        ) from None


def python_answer(serving: Serving, stored: StoredModel, request: Request) -> dict[str, np.ndarray]:
    """Returns the outputs of the model in Python for a request of `make_requests`."""
    tensors = request.tensors()
    if "examples" in tensors:
        # The tf.Examples hold the texts or ids of this signature.
        name = "serving_default"
        tensors = next(r.tensors() for r in make_requests(stored) if r.signature == name)
    if request.signature == SCORE:
        outputs = serving.score_texts(*tensors.values())  # type: ignore[attr-defined]
    elif request.signature == MASK_PREDICT:
        takes_texts = set(tensors) == set(serving.texts)
        outputs = (
            serving.predict_texts(*tensors.values())  # type: ignore[attr-defined]
            if takes_texts
            else serving.predict_ids(tensors)  # type: ignore[attr-defined]
        )
    elif "words" in tensors:
        outputs = serving.from_words(tensors["words"])  # type: ignore[attr-defined]
    elif set(tensors) == set(IDS):
        outputs = serving.from_ids(tensors)
    else:
        outputs = serving.from_texts(
            *(tensors[name] for name in (*serving.texts, *serving.numbers))
        )
    return {name: value.numpy() for name, value in outputs.items()}


def compare(
    requests: Sequence[Request],
    expected: Sequence[Answer],
    found: Sequence[Answer],
    source: str,
    tolerance: float = TOLERANCE,
) -> float:
    """Compares answers to the same requests; returns the largest difference of a float.

    Args:
      expected, found: an answer to each request.
      tolerance: allowed difference of floats.

    Raises:
      ValueError: if they differ.
    """
    largest = 0.0
    for request, right, answer in zip(requests, expected, found, strict=True):
        # Of errors only the codes are compared: the messages of runtimes differ.
        if isinstance(right, tuple) or isinstance(answer, tuple):
            expected_code = right[0] if isinstance(right, tuple) else 0
            code = answer[0] if isinstance(answer, tuple) else 0
            if code != expected_code:
                raise ValueError(
                    f"{request.signature} ends with error {code}, expected {expected_code} of "
                    f"{source} (0: no error): {right if expected_code else answer}"
                )
            continue
        if set(right) != set(answer):
            raise ValueError(
                f"{request.signature} has the outputs {sorted(answer)}, expected those of "
                f"{source}, {sorted(right)}."
            )
        for name, values in right.items():
            if tolerance == BFLOAT16_TOLERANCE and values.dtype.kind != "f":
                continue  # Names follow the order of scores, which rounding may change.
            # The indices of a beam are in the order of their scores.
            scores = right.get(name.replace("_index", "_log_probs"))
            ignored = None if scores is None or scores is values else tied(scores, tolerance)
            label = f"{request.signature}: {name}"
            difference = check_equal(label, values, answer[name], source, tolerance, ignored)
            largest = max(largest, difference)
    return largest


def tied(scores: np.ndarray, tolerance: float) -> np.ndarray:
    """Returns where rounding may change the order of a beam, bool [..., K].

    These are scores that differ from the one before or after by no more than rounding may change
    both, and the last score, because the one after it is unknown.

    Args:
      scores: [..., K], in falling order.
      tolerance: allowed difference of floats.
    """
    is_near = np.abs(np.diff(scores)) <= 2 * tolerance * np.maximum(np.abs(scores[..., 1:]), 1)
    end = np.ones([*scores.shape[:-1], 1], bool)
    return np.concatenate([is_near, end], -1) | np.concatenate([~end, is_near], -1)


def check_equal(
    label: str,
    expected: np.ndarray,
    found: np.ndarray,
    source: str,
    tolerance: float,
    ignored: np.ndarray | None = None,
) -> float:
    """Compares one output; returns the largest difference of floats.

    Args:
      label: signature and name of the output, for messages.
      expected, found: values of the output.
      source: the model with the expected values, for messages.
      tolerance: allowed difference of floats.
      ignored: true for values that are not compared; None: all are compared.

    Raises:
      ValueError: if they differ.
    """
    if expected.shape != found.shape or expected.dtype != found.dtype:
        raise ValueError(
            f"{label} is {found.dtype} {list(found.shape)}, expected {expected.dtype} "
            f"{list(expected.shape)} of {source}."
        )
    differences = np.zeros(expected.shape)
    if expected.dtype.kind == "f":
        # Relative for numbers above 1, absolute for others.
        differences = np.abs(found - expected) / np.maximum(np.abs(expected), 1)
        is_wrong = ~(differences <= tolerance)  # Also true where one is NaN.
    else:
        is_wrong = np.asarray(found != expected, bool)
    if ignored is not None:
        is_wrong &= ~ignored
    if is_wrong.any():
        index = tuple(map(int, np.argwhere(is_wrong)[0]))
        raise ValueError(
            f"{label}{list(index)} is {found[index]!r}, expected {expected[index]!r} of {source} "
            f"(floats to {tolerance:g}); {is_wrong.mean():.0%} of them differ. Is it another "
            f"checkpoint, or was the model exported with other options?"
        )
    return float(differences.max(initial=0))


def check_finite(requests: Sequence[Request], answers: Sequence[Answer]) -> None:
    """Checks that no answer is an error, and that all numbers are finite.

    Raises:
      ValueError: naming the first answer that fails.
    """
    for request, answer in zip(requests, answers, strict=True):
        if isinstance(answer, tuple):
            raise ValueError(
                f"{request.signature} fails with error {answer[0]}: {first_line(answer[1])}"
            )
        for name, values in answer.items():
            if values.dtype.kind == "f" and not np.isfinite(values).all():
                raise ValueError(f"{request.signature}: {name} is not finite.")


def first_line(message: str) -> str:
    """Returns the first line of a TensorFlow error, without names of graph nodes."""
    lines = re.sub(r"\{\{.*?\}\}\s*", "", message).strip().splitlines()
    return lines[0] if lines else "no message"
