"""Finds people, companies and places in sentences, and scores them as conlleval does.

    PYTHONPATH=. python examples/tag_entities.py --model=all-MiniLM-L6-v2 --data=train.conll

--model is a BERT in any form that bert_tf reads; without it, a tiny one starts at random. --data
has a word and its tag on each line and blank lines between sentences; without it, sentences are
made up. A tenth of them is held out. The results are tagger.keras and tagger_vocab.txt in the
current folder.
"""

import argparse
import itertools
import random
from collections.abc import Sequence

import keras
import numpy as np

from bert_tf.checkpoints.formats import read_checkpoint
from bert_tf.config import ModelConfig, OptimizerConfig
from bert_tf.metrics.entities import evaluate_entities, format_conlleval
from bert_tf.modeling.models import BertTokenClassifier
from bert_tf.optimization.optimizers import build_optimizer
from bert_tf.tasks.tagging_features import NOT_PREDICTED, gather_tags, make_tag_rows, row_labels
from bert_tf.tasks.tagging_files import TaggedSentence, read_tagged, tag_ids, tag_names
from bert_tf.text.packing import pad_batch
from bert_tf.text.vocab import Vocab
from bert_tf.text.vocab_training import count_words, train_vocab
from bert_tf.text.wordpiece import WordPiece

parser = argparse.ArgumentParser()
parser.add_argument("--model", default="", help="a checkpoint; none: a tiny random model")
parser.add_argument("--data", default="", help="words and tags; none: made up")
args = parser.parse_args()
keras.utils.set_random_seed(1)

# Sentences: words, and a tag for each. B- begins an entity, I- goes on with it, O is none.
sentences = []
if args.data:
    sentences = read_tagged(args.data)
else:
    names = {"PER": ("Ada Byron", "Kurt", "Emmy Noether", "Alan", "Leonhard Euler", "Grace")}
    names["LOC"] = ("Paris", "New Delhi", "Oslo", "Byron")
    names["ORG"] = ("Paris Motors", "Noether and Sons", "Delhi Telegraph", "Oslo Post", "Euler Inc")
    forms = ("PER left ORG .", "In LOC , PER met PER .", "ORG of LOC wrote to PER today .")
    for form in (*forms, "PER of ORG flew from LOC to LOC ."):
        for texts in itertools.product(*(names.get(word, [word]) for word in form.split())):
            words, tags = " ".join(texts).split(), []
            for kind, text in zip(form.split(), texts, strict=True):
                rest = len(text.split()) - 1
                tags += [f"B-{kind}", *[f"I-{kind}"] * rest] if kind in names else ["O"]
            sentences.append(TaggedSentence(tuple(words), tuple(tags), source="made up"))
labels = tag_names(sentences)
random.Random(1).shuffle(sentences)
held_out, train = sentences[: len(sentences) // 10], sentences[len(sentences) // 10 :]

# The model and its tokenizer.
if args.model:
    checkpoint = read_checkpoint(args.model)
    tokenizer = WordPiece(checkpoint.vocab, checkpoint.config.do_lower_case)
    tagger = BertTokenClassifier.from_checkpoint(checkpoint, ["cls/"], num_labels=len(labels))
    learning_rate, epochs = 5e-5, 4
else:
    texts = [" ".join(sentence.words) for sentence in sentences]
    tokenizer = WordPiece(Vocab(tuple(train_vocab(count_words(texts, False), 120))), False)
    tagger = BertTokenClassifier(ModelConfig(120, 64, 2, 4, 128), num_labels=len(labels))
    learning_rate, epochs = 2e-3, 8
tokenizer.vocab.write("tagger_vocab.txt")


def predict(model: keras.Model, sentences: Sequence[TaggedSentence]) -> list[list[str]]:
    """Returns a tag for each word of each sentence."""
    rows = make_tag_rows(sentences, tokenizer, max_seq_length=128)
    scores = model.predict(pad_batch([row.text for row in rows]), verbose=0)  # [B, T, C]
    tags = gather_tags(rows, scores.argmax(-1), sentences)
    return [[labels[tag] for tag in row] for row in tags]


# Rows: a sentence is one (or more, if it is long), and a word is labelled at its first piece.
rows = make_tag_rows(train, tokenizer, max_seq_length=128)
inputs = pad_batch([row.text for row in rows])
ids = tag_ids(train, labels)
pieces = np.full(inputs["input_mask"].shape, NOT_PREDICTED)
for index, row in enumerate(rows):
    pieces[index, : len(row.text.ids)] = row_labels(row, ids[row.sentence])
weights = (pieces != NOT_PREDICTED).astype(np.float32)  # 0 at padding and inside words

# Training, and the scores before and after it.
steps = epochs * -(-len(rows) // 32)
optimizer = build_optimizer(OptimizerConfig("adamw", learning_rate, steps, steps // 10))
loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
tagger.compile(optimizer, loss, weighted_metrics=["accuracy"], jit_compile=False)
true = [sentence.tags for sentence in held_out]
print(f"F1 before: {evaluate_entities(true, predict(tagger, held_out)).overall.f1:.1f}")
tagger.fit(inputs, np.maximum(pieces, 0), 32, epochs=epochs, sample_weight=weights, verbose=2)
report = evaluate_entities(true, predict(tagger, held_out))
print(f"F1 after: {report.overall.f1:.1f}\n{format_conlleval(report)}")

# Later, or in another program after `import bert_tf`: the model from its file, its vocabulary from
# the other.
tagger.save("tagger.keras")
model = keras.models.load_model("tagger.keras")
texts = ["Kurt of Noether and Sons met Grace .", "In Oslo , Oslo Post left Ada Byron ."]
typed = [TaggedSentence(tuple(text.split()), None, source="typed in") for text in texts]
for sentence, tags in zip(typed, predict(model, typed), strict=True):
    print(" ".join(f"{word}/{tag}" for word, tag in zip(sentence.words, tags, strict=True)))
