"""What the counts of a corpus mean: findings and plots."""

import math

import numpy as np

from bert_tf.diagnosis.charts import histogram
from bert_tf.diagnosis.corpus import LONG_WORDS, MAX_DETAILS, SHORT_WORDS, CorpusCounts, shorten
from bert_tf.diagnosis.findings import Diagnosis, Finding, Plot, judge, percent
from bert_tf.diagnosis.vocabulary_fit import VocabularyFit

REMEDIES = {
    "replacement_characters": "Find the conversion that lost them and decode the source anew; "
    "errors='replace' is the usual culprit.",
    "mojibake": "Decode the source as UTF-8, or repair it: text.encode('cp1252').decode('utf8').",
    "control_characters": "Replace them by blanks where they part words: tr '\\000-\\010' ' '.",
    "markup": "Take the text out of the markup (html.unescape, an extractor) before training.",
}
TITLES = {
    "replacement_characters": "Characters lost in decoding (U+FFFD)",
    "mojibake": "Wrongly decoded characters",
    "control_characters": "Control characters",
    "markup": "HTML in the text",
}


def diagnose_corpus(place: str, counts: CorpusCounts) -> Diagnosis:
    """Returns what the counts of a corpus say."""
    fit = counts.fit
    facts = {
        "read": f"{counts.scope}; {counts.seconds:.0f} s",
        "documents": f"{len(counts.words):,}",
        "lines": f"{counts.num_lines:,}",
        "characters": f"{counts.num_characters:,}",
    }
    if counts.words:
        facts["words a document"] = f"{np.median(counts.words):,.0f} (median)"
        facts["repeated lines"] = percent(counts.copied_characters / counts.num_characters)
    if fit:
        facts["pieces a word"] = f"{fit.pieces_per_word:.2f}"
        facts["[UNK]"] = percent(fit.unknown_share)
    findings = _problems(counts)
    if counts.words:
        findings += _copies(counts) + _sizes(counts) + _damage(counts)
        findings += _vocabulary(fit) if fit else []
    plots = [Plot("Words a document", histogram(counts.words, "words", is_log=True))]
    return Diagnosis(place, "corpus", facts, findings, plots if counts.words else [])


def _problems(counts: CorpusCounts) -> list[Finding]:
    return judge(
        "unreadable",
        len(counts.problems),
        "Input that cannot be read",
        f"{len(counts.problems)} parts: {counts.problems[0]}" if counts.problems else "",
        "Repair or leave out what is named; training stops there.",
        tuple(counts.problems[1:MAX_DETAILS]),
    )


def _copies(counts: CorpusCounts) -> list[Finding]:
    number = len(counts.words)
    documents = counts.copied_documents / number
    lines = counts.copied_characters / counts.num_characters
    found = judge(
        "duplicate_documents",
        documents,
        "Documents that stand in the corpus twice or oftener",
        f"{percent(documents)} ({counts.copied_documents:,} of {number:,})",
        "Pass --deduplicate=exact (or near): what is repeated is memorised, and held-out "
        "documents are known.",
    )
    shared = [(line, n) for line, n in counts.shared_lines if n > 1]
    details = tuple(f"{n:,} x {shorten(line)}" for line, n in shared)
    found += judge(
        "duplicate_lines",
        lines,
        "Lines that repeat earlier ones",
        f"{percent(lines)} of the characters",
        "Remove copied documents first, then the lines listed here.",
        details,
    )
    line, most = shared[0] if shared else ("", 0)
    if number >= 100:
        found += judge(
            "boilerplate",
            most / number,
            "Boilerplate",
            f"{percent(most / number)} of the documents hold {shorten(line, 60)!r}",
            "Remove such lines where they are headers, footers or notices; titles may stay.",
            details,
        )
    return found


def _sizes(counts: CorpusCounts) -> list[Finding]:
    number, words = len(counts.words), np.array(counts.words)
    short = float((words < SHORT_WORDS).mean())
    single = float((np.array(counts.sentences) == 1).mean())
    empty = counts.num_empty / counts.num_records if counts.num_records else math.nan
    longest = float(words.max() / max(1, words.sum()))
    found = judge(
        "empty_documents",
        empty,
        "Records without text",
        f"{percent(empty) if counts.num_records else ''} ({counts.num_empty:,} of "
        f"{counts.num_records:,})",
        "See whether --text_field names the field that holds the text.",
    )
    found += judge(
        "few_documents",
        math.nan if counts.is_sample else number,
        "Too few documents for next sentence prediction",
        f"{number:,} documents",
        "Part documents by blank lines, give more text, or pass --use_next_sentence=false.",
    )
    found += judge(
        "single_sentence",
        single,
        "Documents of one sentence",
        percent(single),
        "Put what belongs together in one document, or pass --use_next_sentence=false.",
    )
    found += judge(
        "short_documents",
        short,
        f"Documents below {SHORT_WORDS} words",
        f"{percent(short)}; the median has {np.median(words):,.0f} words",
        "Check where documents end: a line a document is JSONL, or needs --input_format=jsonl. If "
        "they are short, take a shorter --max_seq_length.",
    )
    long = int((words > LONG_WORDS).sum())
    if number >= 2 and not counts.is_sample:
        found += judge(
            "longest_document",
            longest,
            "A document that is most of the corpus",
            f"{percent(longest)} of the words ({words.max():,}); {long:,} documents have more than "
            f"{LONG_WORDS:,}",
            "Part it at its chapters, with blank lines or as records.",
        )
    return found


def _damage(counts: CorpusCounts) -> list[Finding]:
    found = []
    for kind, title in TITLES.items():
        share = counts.damage_counts[kind] / counts.num_lines
        found += judge(
            kind,
            share,
            title,
            f"{percent(share)} of the lines ({counts.damage_counts[kind]:,})",
            REMEDIES[kind],
            tuple(counts.damage.get(kind, ())),
        )
    return found


def _vocabulary(fit: VocabularyFit) -> list[Finding]:
    guilty = [
        f"{character!r} (U+{ord(character):04X}) in {n:,} unknown words"
        for character, n in fit.guilty.most_common(MAX_DETAILS)
    ]
    words = ", ".join(word for word, _ in fit.unknown_words.most_common(MAX_DETAILS))
    found = judge(
        "unknown_pieces",
        fit.unknown_share,
        "Pieces that the vocabulary does not know",
        f"{percent(fit.unknown_share)} of the pieces are [UNK]",
        "Take a vocabulary of this language (python -m bert_tf.build_vocab trains one), or add the "
        "words with --added_words_file.",
        (*guilty, f"unknown words: {shorten(words)}"),
    )
    found += judge(
        "pieces_per_word",
        fit.pieces_per_word,
        "A vocabulary that cuts words in small pieces",
        f"{fit.pieces_per_word:.2f} pieces a word",
        "Train a vocabulary on this text (python -m bert_tf.build_vocab), or enlarge it.",
    )
    conflict = fit.casing_conflict()
    found += judge(
        "casing",
        float(bool(conflict)),
        "Casing does not agree",
        conflict,
        "Set --do_lower_case as the vocabulary wants it: true for an uncased one.",
    )
    return found
