"""Report of a tagger's evaluation: scores of each tag, the worst sentences."""

from collections.abc import Sequence

import numpy as np

from bert_tf.tasks.classification.report import class_report_text
from bert_tf.tasks.tagging.files import TaggedSentence

MAX_SENTENCES = 50


def tag_report_text(
    sentences: Sequence[TaggedSentence], tags: Sequence[Sequence[str]], labels: Sequence[str]
) -> str:
    """Returns scores of each tag over all words, and a table of confusions."""
    indices = {label: index for index, label in enumerate(labels)}
    true = [indices[tag] for sentence in sentences for tag in sentence.tags or ()]
    predicted = [indices[tag] for row in tags for tag in row]
    return class_report_text(np.array(true), np.array(predicted), labels)


def worst_sentences_text(sentences: Sequence[TaggedSentence], tags: Sequence[Sequence[str]]) -> str:
    """Returns a table of the sentences with most wrong words, tab-separated with a header.

    Wrong words are written as word[true>predicted].
    """
    wrong = [
        sum(guess != tag for guess, tag in zip(row, sentence.tags or (), strict=True))
        for sentence, row in zip(sentences, tags, strict=True)
    ]
    order = np.argsort(-np.array(wrong), kind="stable")[:MAX_SENTENCES]
    lines = ["wrong\tsource\tsentence\n"]
    for index in order:
        if not wrong[index]:
            break
        sentence = sentences[index]
        words = [
            word if guess == tag else f"{word}[{tag}>{guess}]"
            for word, tag, guess in zip(
                sentence.words, sentence.tags or (), tags[index], strict=True
            )
        ]
        lines.append(f"{wrong[index]}\t{sentence.source}\t{' '.join(words)}\n")
    return "".join(lines)
