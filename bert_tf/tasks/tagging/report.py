"""The report of a tagger's evaluation: scores by tag, and the sentences with most errors."""

from collections.abc import Sequence

import numpy as np

from bert_tf.tasks.classification.report import class_report_text
from bert_tf.tasks.tagging.sentences import TaggedSentence

MAX_SENTENCES = 50


def tag_report_text(
    sentences: Sequence[TaggedSentence], tags: Sequence[Sequence[str]], labels: Sequence[str]
) -> str:
    """Returns the scores of each tag over all words, and a confusion matrix."""
    indices = {label: index for index, label in enumerate(labels)}
    true: list[int] = []
    for sentence in sentences:
        true.extend(indices[tag] for tag in sentence.tags or ())
    predicted: list[int] = []
    for row in tags:
        predicted.extend(indices[tag] for tag in row)
    return class_report_text(np.array(true), np.array(predicted), labels)


def worst_sentences_text(sentences: Sequence[TaggedSentence], tags: Sequence[Sequence[str]]) -> str:
    """Returns a table of the sentences with most wrong words, tab-separated with a header.

    Wrong words are written as word[true>predicted].
    """
    wrong = []  # wrong words of each sentence
    for sentence, row in zip(sentences, tags, strict=True):
        pairs = zip(row, sentence.tags or (), strict=True)
        wrong.append(sum(guess != tag for guess, tag in pairs))
    # Stable, so that equally wrong sentences stay in the order of the file.
    order = np.argsort(-np.array(wrong), kind="stable")[:MAX_SENTENCES]
    lines = ["wrong\tsource\tsentence\n"]
    for index in order:
        if not wrong[index]:
            break
        sentence = sentences[index]
        words = []
        tagged = zip(sentence.words, sentence.tags or (), tags[index], strict=True)
        for word, tag, guess in tagged:
            words.append(word if guess == tag else f"{word}[{tag}>{guess}]")
        lines.append(f"{wrong[index]}\t{sentence.source}\t{' '.join(words)}\n")
    return "".join(lines)
