"""Finds people, companies and places in sentences, and scores them as conlleval does.

    PYTHONPATH=. python examples/tag_entities.py --model=all-MiniLM-L6-v2 --data=train.conll

--model is a BERT in any format that bert_tf reads; without it, a tiny random model is used. --data
has a word and its tag on each line and blank lines between sentences; without it, sentences are
made up. A tenth of them is held out. The result is tagger.keras in the current folder.
"""

import argparse
import itertools
import random

import keras

import bert_tf
from bert_tf.metrics.entities import EntityReport, evaluate_entities, format_conlleval
from bert_tf.tasks.tagging.files import read_tagged
from bert_tf.text.vocab_training import count_words, train_vocab

parser = argparse.ArgumentParser()
parser.add_argument("--model", default="", help="a checkpoint; none: a tiny random model")
parser.add_argument("--data", default="", help="words and tags; none: made up")
args = parser.parse_args()
keras.utils.set_random_seed(1)

# Sentences: words, and a tag for each. B- begins an entity, I- goes on with it, O is none.
rows = []
if args.data:
    rows = [(list(sentence.words), list(sentence.tags)) for sentence in read_tagged(args.data)]
else:
    names = {"PER": ("Ada Byron", "Kurt", "Emmy Noether", "Alan", "Leonhard Euler", "Grace")}
    names["LOC"] = ("Paris", "New Delhi", "Oslo", "Byron")
    names["ORG"] = ("Paris Motors", "Noether and Sons", "Delhi Telegraph", "Oslo Post", "Euler Inc")
    forms = ("PER left ORG .", "In LOC , PER met PER .", "ORG of LOC wrote to PER today .")
    for form in (*forms, "PER of ORG flew from LOC to LOC ."):
        for parts in itertools.product(*(names.get(word, [word]) for word in form.split())):
            tags = []
            for kind, part in zip(form.split(), parts, strict=True):
                rest = len(part.split()) - 1
                tags += [f"B-{kind}", *[f"I-{kind}"] * rest] if kind in names else ["O"]
            rows.append((" ".join(parts).split(), tags))
random.Random(1).shuffle(rows)
sentences, tags, later = [row[0] for row in rows], [row[1] for row in rows], len(rows) // 10
labels = sorted({tag for row in tags for tag in row}, key=lambda tag: (tag != "O", tag))

# The model, with its tokenizer and the names of its tags.
if args.model:
    model = bert_tf.BertTokenClassifier.from_pretrained(args.model, labels=labels)
    options = {"epochs": 4, "learning_rate": 5e-5}
else:
    texts = [" ".join(words) for words in sentences]
    vocab = bert_tf.Vocab(tuple(train_vocab(count_words(texts, False), 120)))
    preprocessor = bert_tf.BertPreprocessor(vocab, do_lower_case=False)
    config = bert_tf.ModelConfig(len(vocab), 64, 2, 4, 128)
    model = bert_tf.BertTokenClassifier(config, labels=labels, preprocessor=preprocessor)
    options = {"epochs": 8, "learning_rate": 2e-3}


def score() -> EntityReport:
    found = [[word["label"] for word in row] for row in model.tag(sentences[:later])]
    return evaluate_entities(tags[:later], found)


# Training, and the scores before and after it.
print(f"F1 before: {score().overall.f1:.1f}")
model.fit(sentences[later:], tags[later:], verbose=2, **options)
report = score()
print(f"F1 after: {report.overall.f1:.1f}\n{format_conlleval(report)}")

# Later, or in another program after `import bert_tf`: one file holds all that is needed.
model.save("tagger.keras")
loaded = keras.models.load_model("tagger.keras")
for words in loaded.tag(
    ["Kurt of Noether and Sons met Grace.", "In Oslo, Oslo Post left Ada Byron."]
):
    print(" ".join(f"{word['word']}/{word['label']}" for word in words))
