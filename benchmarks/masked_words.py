"""What a masked language model knows: facts and phrases to fill in, grammar by pairs of words.

    python -m benchmarks.masked_words --input_file=wiki.valid.tokens runs/one_hour runs/other

Forty lines with one [MASK], fixed beforehand: a line counts if the likeliest piece is one of the
answers, and once more if one of the five likeliest is. Grammar: in sentences of text that no model
was trained on, a word like "is" is masked, and the model is right if it finds it likelier than its
counterpart "are"; beside it stands what always saying the commoner form would give.
"""

import itertools
import pathlib
import re
from collections import Counter

import numpy as np
from absl import app, flags

from benchmarks.timing import print_table
from bert_tf.corpus.corpus import list_parts, read_documents
from bert_tf.pretraining.masked_words.gap_filling import MaskedModel

INPUT = flags.DEFINE_string("input_file", "", "Text for the pairs; none: only the lines.")
SENTENCES = flags.DEFINE_integer("sentences", 300, "Most sentences of each pair of words.")
SHOW = flags.DEFINE_bool("show", False, "Print each line with the three likeliest pieces.")

LINES = {
    "The capital of France is [MASK].": "paris",
    "The capital of England is [MASK].": "london",
    "He was born in New [MASK] City.": "york",
    "He was elected president of the United [MASK].": "states",
    "The Second World [MASK] ended in 1945.": "war",
    "Berlin is the capital of [MASK].": "germany prussia",
    "The river flows into the [MASK].": "sea ocean river lake bay gulf atlantic pacific",
    "The film was directed by [MASK] Smith.": "john william james robert george david michael",
    "She opened the [MASK] and went into the room.": "door window gate curtains doors",
    "He sat down on the [MASK] and looked at the fire.": "bed chair sofa floor bench ground couch "
    "grass sand step seat edge steps",
    "The album was released in [MASK] 2005.": "january february march april may june july august "
    "september october november december early late",
    "He died in [MASK] at the age of seventy.": "london paris rome 1900 england office new office",
    "She is the mother of two [MASK].": "children sons daughters boys girls",
    "The king and the [MASK] sat on their thrones.": "queen prince king",
    "He took a long [MASK] of water from the glass.": "drink draught gulp glass",
    "Once upon a [MASK] there was a little girl.": "time",
    "I do not [MASK] what you mean.": "know understand see care",
    "The sun rises in the [MASK].": "east morning sky",
    "It rained all day and all [MASK].": "night day",
    "He was as white as a [MASK].": "sheet ghost sheep sheet snow",
    "The dog wagged its [MASK].": "tail",
    "A year has twelve [MASK].": "months",
    "There are seven days in a [MASK].": "week",
    "Water freezes at zero [MASK].": "degrees",
    "He plays for the national football [MASK].": "team league club",
    "She studied law at the [MASK] of Oxford.": "university college",
    "The town has a [MASK] of 5,000 people.": "population total",
    "The book was [MASK] in 1987 by Penguin.": "published released written",
    "It is located in the [MASK] of the country.": "north south east west centre center middle "
    "northwest northeast southwest southeast part",
    "The church was [MASK] in the 12th century.": "built founded established constructed rebuilt "
    "erected completed",
    "He won the gold [MASK] at the Olympic Games.": "medal medals",
    "The train arrived at the [MASK] at noon.": "station airport town house door",
    "The soldiers marched into the [MASK].": "city town battle field village woods forest camp "
    "house valley mountains fort castle",
    "He shook his [MASK] and said nothing.": "head",
    "She put her [MASK] around his neck.": "arms arm hands hand",
    "They were married and had three [MASK].": "children sons daughters kids",
    "The ship sank in the Atlantic [MASK].": "ocean",
    "The earth goes around the [MASK].": "sun world earth moon",
    "He could not help [MASK] at her.": "looking laughing smiling staring glancing",
    "Good [MASK], said the old man, and went to bed.": "night evening morning bye",
}
PAIRS = (
    *(("is", "are"), ("was", "were"), ("has", "have"), ("does", "do"), ("a", "an")),
    *(("this", "these"), ("he", "him"), ("they", "them"), ("himself", "herself")),
)


def fill(model: MaskedModel) -> tuple[int, int]:
    """Returns how many lines are filled right by the likeliest piece, and by one of five."""
    first = among = 0
    for line, words_of_line in LINES.items():
        ((answers,),) = model.fill_mask([line])
        pieces = [answer["piece"] for answer in answers]
        words = [piece.strip().lower() for piece in pieces]
        first += words[0] in words_of_line.split()
        among += not set(words).isdisjoint(words_of_line.split())
        if SHOW.value:
            print(f"    {line}  {', '.join(words[:3])}")
    return first, among


def sentences_with(words: tuple[str, str], sentences: list[str]) -> list[tuple[str, str]]:
    """Returns sentences that hold one of two words once, masked, and that word."""
    found = []
    for sentence in sentences:
        matches = [*re.finditer(rf"\b({'|'.join(words)})\b", sentence)]
        if len(matches) == 1:
            start, end = matches[0].span()
            found.append((f"{sentence[:start]}[MASK]{sentence[end:]}", matches[0].group()))
    return found[: SENTENCES.value]


def preferred(model: MaskedModel, words: tuple[str, str], masked: list[str]) -> list[str]:
    """Returns the likelier of two words at the mask of each sentence."""
    vocab, chosen = model.vocab, []
    ids = [model.tokenizer.encode(word)[0] for word in words]
    for sentence in masked:
        before, after = (model.tokenizer.encode(part) for part in sentence.split("[MASK]"))
        before, after = before[-40:], after[:40]
        row = [vocab.cls_id, *before, vocab.mask_id, *after, vocab.sep_id]
        ((logits,),) = model.compute_mask_logits([row], [[1 + len(before)]], 1)
        chosen.append(words[int(logits[ids[1]] > logits[ids[0]])])
    return chosen


def main(arguments: list[str]) -> None:
    sentences: list[str] = []
    if INPUT.value:
        for part in list_parts(INPUT.value):
            sentences += itertools.chain.from_iterable(read_documents(part))
    pairs = {words: sentences_with(words, sentences) for words in PAIRS}
    pairs = {words: found for words, found in pairs.items() if found}
    rows = []
    for path in arguments[1:]:
        model = MaskedModel.read(path)
        first, among = fill(model)
        shares = []
        for words, found in pairs.items():
            chosen = preferred(model, words, [masked for masked, _ in found])
            shares.append(np.mean([a == b for a, (_, b) in zip(chosen, found, strict=True)]))
        grammar = f"{np.mean(shares):.1%}" if shares else "-"
        rows.append((pathlib.Path(path).name, f"{first} of 40", f"{among} of 40", grammar))
    common = [max(Counter(w for _, w in found).values()) / len(found) for found in pairs.values()]
    if common:
        rows.append(("the commoner word", "-", "-", f"{np.mean(common):.1%}"))
    print_table(("model", "likeliest", "among five", "pairs of words"), rows)


if __name__ == "__main__":
    app.run(main)
