"""Zero-shot classification: a model of natural language inference chooses among candidate labels.

    text "I vote on Sunday.", candidate "politics"
      -> [CLS] i vote on sunday. [SEP] this example is politics. [SEP] -> logits of the pair

One label per text: the softmax of the entailment logits of all candidates. Several: for each
candidate alone, the softmax of its entailment and contradiction. Both classes are found by name;
transformers' pipeline, whose probabilities are otherwise the same, takes contradiction by position.
"""

import typing
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from bert_tf.metrics.classification import check_threshold, labels_above, sigmoid, softmax
from bert_tf.tasks.base.examples.columns import read_texts, text_column
from bert_tf.tasks.base.examples.rows import TokenizedDataset
from bert_tf.text.packing import add_special_tokens, text_room
from bert_tf.text.text_counts import count_text

if typing.TYPE_CHECKING:
    from bert_tf.tasks.classification.answers import ClassifierAnswers

TEMPLATE = "This example is {}."
SLOT = "{}"


class InferenceClasses(NamedTuple):
    """Indices of the classes of a model of natural language inference."""

    entailment: int
    contradiction: int | None  # None: no class has this name


def find_classes(labels: Sequence[str]) -> InferenceClasses:
    """Returns the classes for entailment and contradiction, by name in any case and order.

    If there are two classes, such as entailment and not_entailment, the other is the contradiction.
    """
    names = [str(label).strip().casefold() for label in labels]
    entailment = [index for index, name in enumerate(names) if name.startswith("entail")]
    contradiction = [index for index, name in enumerate(names) if name.startswith("contradict")]
    if len(entailment) != 1:
        raise ValueError(
            f"Zero-shot classification needs a model of natural language inference, with one class "
            f"whose name begins with 'entail'; the classes are {', '.join(map(str, labels)) or '-'}"
            ". If they only lack names, give these: labels=[...] to from_pretrained, or id2label "
            "in config.json."
        )
    if not contradiction and len(names) == 2:
        contradiction = [1 - entailment[0]]
    return InferenceClasses(entailment[0], contradiction[0] if len(contradiction) == 1 else None)


def check_template(template: str) -> None:
    """Raises ValueError unless a template has exactly one {} for the candidate."""
    if template.count(SLOT) != 1:
        raise ValueError(
            f"template is {template!r}, expected a sentence with one {SLOT} for the candidate, "
            f"such as {TEMPLATE!r}."
        )


def check_candidates(candidates: Any, several: bool) -> list[str]:
    """Returns the candidate labels as a list."""
    names = read_texts(candidates, "candidates")
    for index, name in enumerate(names):
        if not name.strip():
            raise ValueError(f"candidates[{index}] is empty; leave it out.")
        if name in names[:index]:
            raise ValueError(f"candidates has {name!r} twice; leave one out.")
    if len(names) == 1 and not several:
        raise ValueError(
            f"candidates has only {names[0]!r}, which would always be chosen; give more, or "
            "several=True for its own probability."
        )
    return names


def check_no_candidates(template: str | None, several: bool) -> None:
    """Raises ValueError for options of candidates without candidates."""
    if template is not None or several:
        raise ValueError("template and several need candidates=[...].")


def candidate_probabilities(
    model: "ClassifierAnswers",
    texts: Any,
    candidates: Any,
    template: str | None = None,
    several: bool = False,
    batch_size: int = 32,
) -> list[dict[str, float]]:
    """Returns for each text the probability of every candidate, by candidate.

    Raises:
      ValueError: if the arguments are wrong, or it is not a model of natural language inference.
    """
    if model.problem_type != "single_label":
        raise ValueError(
            "Zero-shot classification needs a model of natural language inference, which tells one "
            f"of several classes; this one has problem_type={model.problem_type!r}."
        )
    classes = find_classes(model.known_labels)
    if several and classes.contradiction is None:
        raise ValueError(
            "several=True needs a class whose name begins with 'contradict'; the classes are "
            f"{', '.join(model.known_labels)}."
        )
    # Entailment is compared between pairs: probabilities, which add up to 1 within a pair, would
    # hide the differences.
    if not several and not model.has_logits:
        raise ValueError(
            "This file computes probabilities; to choose among candidates it must be exported with "
            "--kind=zero_shot. several=True works with any file."
        )
    names = check_candidates(candidates, several)
    premises = text_column(texts)
    rows = hypothesis_rows(model, premises, names, template)
    if not premises:
        return []
    logits = np.stack(model.predict_rows(rows, batch_size))
    logits = logits.reshape(len(premises), len(names), -1)  # [E, K, C]
    probabilities = from_logits(logits, classes, several)
    return [dict(zip(names, row.tolist(), strict=True)) for row in probabilities]


def hypothesis_rows(
    model: "ClassifierAnswers", premises: Sequence[str], names: Sequence[str], template: str | None
) -> TokenizedDataset:
    """Returns the pairs of all premises with all hypotheses, [E * K]; only premises are cut."""
    template = TEMPLATE if template is None else template
    check_template(template)
    vocab = model.tokenizer.vocab
    room = text_room(model.max_seq_length, True, vocab.num_separators)
    hypotheses = []
    for name in names:
        hypothesis = model.tokenizer.encode(template.replace(SLOT, name))
        # At least one token of the text must fit.
        if len(hypothesis) >= room:
            raise ValueError(
                f"The candidate {name!r:.100} has {len(hypothesis)} tokens in its sentence, which "
                f"leaves no room for a text: max_seq_length is {model.max_seq_length}."
            )
        hypotheses.append(hypothesis)
    # Text by text, each with all candidates: the caller reshapes the logits to [E, K, C].
    packed = []
    for premise in premises:
        tokens = model.tokenizer.encode(premise)
        size = len(tokens) + max(map(len, hypotheses), default=0) + model.max_seq_length - room
        count_text(vocab, tokens, (), size, model.max_seq_length)
        for hypothesis in hypotheses:
            size = room - len(hypothesis)
            kept = tokens[-size:] if model.long_texts == "tail" else tokens[:size]
            packed.append(add_special_tokens(vocab, kept, hypothesis))
    return TokenizedDataset(packed, {}, pad_id=vocab.pad_id)


def from_logits(logits: np.ndarray, classes: InferenceClasses, several: bool) -> np.ndarray:
    """Returns the probabilities of candidates, float64 [E, K], from logits [E, K, C]."""
    entailment = logits[..., classes.entailment]  # [E, K]
    if not several:
        # Over the candidates of each text.
        return softmax(entailment)
    # The softmax of two logits is the sigmoid of their difference.
    return sigmoid(entailment - logits[..., classes.contradiction])


def candidate_labels(
    probabilities: Sequence[Mapping[str, float]], several: bool, threshold: float | None
) -> list[dict[str, Any]]:
    """Returns the answers of `classify` for the probabilities of candidates."""
    least = check_threshold(threshold, several)
    if several:
        return [labels_above(row, least) for row in probabilities]
    answers = []
    for row in probabilities:
        best = max(row, key=row.__getitem__)
        answers.append({"label": best, "score": row[best]})
    return answers
