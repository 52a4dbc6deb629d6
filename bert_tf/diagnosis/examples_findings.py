"""What the numbers of pre-training examples mean: findings and plots."""

import math

import numpy as np

from bert_tf.config import MaskingConfig
from bert_tf.diagnosis.charts import bars, histogram
from bert_tf.diagnosis.examples import Examples, MaskShares
from bert_tf.diagnosis.findings import Diagnosis, Finding, Plot, judge, percent
from bert_tf.diagnosis.record_scan import Scan
from bert_tf.diagnosis.same_document import same_document_share
from bert_tf.text.vocab import Vocab

NOMINAL = (0.8, 0.1, 0.1)  # [MASK], kept, random
STANDARD_ERRORS = 4.0  # chance goes further once in 16,000
MAX_DETAILS = 10
AGAIN = "Make the records again with python -m bert_tf.create_pretraining_data."


def diagnose_examples(
    place: str, scan: Scan, vocab: Vocab | None, masking: MaskingConfig
) -> Diagnosis:
    """Returns what the examples read of some record files say."""
    examples = Examples(scan, vocab)
    kind = "masked" if examples.is_masked else "masked at reading"
    facts = {
        "examples": f"{scan.num_records:,}, {len(examples):,} of them read",
        "form": f"{examples.length} pieces, {kind}",
        "padding": percent(examples.padding_share()),
        "full": percent(float((examples.lengths == examples.length).mean())),
        "random pairs": percent(float(examples.is_random.mean())),
    }
    if vocab:
        facts["[UNK]"] = percent(examples.unknown_share())
    if examples.is_masked:
        facts["masked"] = percent(examples.masked_share())
    findings = _damage(scan) + _lengths(examples) + _masks(examples, masking)
    findings += _labels(examples) + _pieces(examples)
    plots = [Plot("Pieces an example", histogram(examples.lengths, "pieces"))]
    if examples.is_masked:
        shares = examples.mask_shares()
        measured = (shares.mask, shares.kept, shares.random)
        names = ("[MASK]", "kept", "random")
        plots.append(Plot("What predicted pieces became", bars(names, measured, NOMINAL)))
    return Diagnosis(place, "examples", facts, findings, plots)


def _damage(scan: Scan) -> list[Finding]:
    found = judge(
        "damaged_records",
        len(scan.damage),
        "Damaged records",
        f"{len(scan.damage)}: {scan.damage[0]}" if scan.damage else "",
        "Copy the file again, or make it again; the records before the damage are whole.",
        tuple(scan.damage[1:MAX_DETAILS]),
    )
    return found + judge(
        "other_form",
        len(scan.others),
        "Records of another form",
        f"{len(scan.others)}: {scan.others[0]}" if scan.others else "",
        "Leave their files out, or make all with the same flags of create_pretraining_data.",
        tuple(scan.others[1:MAX_DETAILS]),
    )


def _lengths(examples: Examples) -> list[Finding]:
    padding, short, cut = examples.padding_share(), examples.short_share(), examples.cut_share()
    found = judge(
        "padding",
        padding,
        "Padding",
        f"{percent(padding)} of all places",
        f"Take a shorter --max_seq_length (the median has {np.median(examples.lengths):.0f} "
        "pieces), a smaller --short_seq_prob, or longer documents.",
    )
    found += judge(
        "short_examples",
        short,
        f"Examples of less than {examples.length // 2} pieces",
        percent(short),
        "See how long the documents are (run the doctor on the corpus); lower --short_seq_prob.",
    )
    if not math.isnan(cut):
        found += judge(
            "cut_examples",
            cut,
            "Examples cut in mid-sentence",
            percent(cut),
            "Take a longer --max_seq_length if the text has long sentences.",
        )
    return found


def _masks(examples: Examples, masking: MaskingConfig) -> list[Finding]:
    lost = examples.lost_predictions(masking)
    slots = examples.num_slots or masking.max_predictions_per_seq
    needed = math.ceil(examples.length * masking.masked_lm_prob)
    found = judge(
        "lost_predictions",
        lost,
        "max_predictions_per_seq is too small",
        f"{percent(lost)} of the predictions have no room among {slots}",
        f"Pass --max_predictions_per_seq={needed} (max_seq_length x masked_lm_prob).",
    )
    if not examples.is_masked:
        return found
    share, nominal = examples.masked_share(), masking.masked_lm_prob
    found += judge(
        "masked_share",
        abs(share / nominal - 1.0),
        "Masked share is not the nominal one",
        f"{percent(share)} of the pieces are predicted",
        f"If another share was meant, pass it as --masked_lm_prob; else: {AGAIN}",
        expected=f"about {percent(nominal)}",
    )
    return found + _split(examples.mask_shares())


def _split(shares: MaskShares) -> list[Finding]:
    measured = (shares.mask, shares.kept, shares.random)
    beyond = [
        abs(value - nominal)
        - STANDARD_ERRORS * math.sqrt(nominal * (1 - nominal) / max(1, shares.num_predicted))
        for value, nominal in zip(measured, NOMINAL, strict=True)
    ]
    return judge(
        "mask_split",
        max(beyond),
        "Predicted pieces are not masked 80 / 10 / 10",
        f"{' / '.join(map(percent, measured))} are [MASK], kept, random",
        f"{AGAIN} Without kept and random pieces the model sees [MASK] alone, which no text has.",
        expected="80 % / 10 % / 10 %",
    )


def _labels(examples: Examples) -> list[Finding]:
    if not examples.is_pair.any():
        return []
    share = float(examples.is_random[examples.is_pair].mean())
    beyond = abs(share - 0.5) - STANDARD_ERRORS * 0.5 / math.sqrt(examples.is_pair.sum())
    found = judge(
        "label_balance",
        beyond,
        "Labels of next sentence prediction are out of balance",
        f"{percent(share)} of the pairs are random",
        "Documents of one sentence, or sentences longer than a segment, give random pairs only: "
        "part sentences, take a longer --max_seq_length, or pass --use_next_sentence=false.",
        expected="35 to 65 %",
    )
    same, numbers = same_document_share(examples)
    return found + judge(
        "same_document",
        same,
        "Pairs of one document that are labelled random",
        f"{percent(same) if numbers.size else 0} of the random pairs at least",
        f"The labels are wrong, or documents repeat each other. {AGAIN}",
        tuple(examples.scan.places[number] for number in numbers[:MAX_DETAILS]),
    )


def _pieces(examples: Examples) -> list[Finding]:
    unknown, copied = examples.unknown_share(), examples.copied_share()
    found = judge(
        "copied_examples",
        copied,
        "Examples that stand in the data twice",
        percent(copied),
        "Remove copies from the corpus, or files that were listed twice.",
    )
    if not math.isnan(unknown):
        found += judge(
            "unknown_pieces",
            unknown,
            "Pieces that are [UNK]",
            f"{percent(unknown)} of the pieces",
            "Run the doctor on the corpus with --vocab_file: it names the characters.",
        )
    faults = {name: rows for name, rows in examples.faults().items() if rows.any()}
    is_faulty = np.zeros(len(examples), bool)
    details = []
    for name, rows in faults.items():
        is_faulty |= rows
        first = examples.scan.places[int(rows.argmax())]
        details.append(f"{int(rows.sum()):,} examples: {name}; {first}")
    share = float(is_faulty.mean())
    return found + judge(
        "misplaced",
        share,
        "Special tokens out of place",
        f"{percent(share)} of the examples; {next(iter(faults), '')}",
        f"Give the --vocab_file that made them. If it is the one: {AGAIN}",
        tuple(details),
    )
