"""Finds people, companies and places in sentences, and scores them as conlleval does.

    PYTHONPATH=. python examples/tag_entities.py --model=all-MiniLM-L6-v2 --data=train.conll

--model is a BERT in any form that bert_tf reads; without it, a tiny one starts at random. --data
has a word and its tag on each line and blank lines between sentences; without it, sentences are
made up. A tenth of them is held out.
"""

import argparse
import random

import keras

from bert_tf.checkpoints.formats import read_checkpoint
from bert_tf.config import ModelConfig
from bert_tf.modeling.models import BertTokenClassifier
from bert_tf.tasks import tagging_files
from bert_tf.tasks.tagging_files import TaggedSentence
from bert_tf.text.vocab import Vocab
from bert_tf.text.vocab_training import count_words, train_vocab
from bert_tf.text.wordpiece import WordPiece

parser = argparse.ArgumentParser()
parser.add_argument("--model", default="", help="a checkpoint; none: a tiny random model")
parser.add_argument("--data", default="", help="words and tags; none: made up")
args = parser.parse_args()
keras.utils.set_random_seed(1)
draw = random.Random(1)

# Sentences: words, and a tag for each. B- begins an entity, I- goes on with it, O is none.
if args.data:
    sentences = tagging_files.read_tagged(args.data)
else:
    names = {"PER": ("Ada Byron", "Kurt", "Emmy Noether", "Alan"), "LOC": ("Paris", "New Delhi")}
    names["ORG"] = ("Paris Motors", "Byron and Sons", "Delhi Telegraph")
    forms = ("PER left ORG .", "In LOC , PER met PER .", "ORG of LOC wrote to PER today .")
    sentences = []
    for number in range(600):
        pairs = []
        for word in draw.choice(forms).split():
            parts = draw.choice(names[word]).split() if word in names else [word]
            tags = [f"B-{word}"] + [f"I-{word}"] * (len(parts) - 1) if word in names else ["O"]
            pairs += zip(parts, tags, strict=True)
        sentences.append(TaggedSentence(*zip(*pairs, strict=True), source=f"sentence {number}"))
tags = tagging_files.tag_names(sentences)
draw.shuffle(sentences)
held_out, train = sentences[: len(sentences) // 10], sentences[len(sentences) // 10 :]

# The model and its tokenizer.
if args.model:
    checkpoint = read_checkpoint(args.model)
    tokenizer = WordPiece(checkpoint.vocab, checkpoint.config.do_lower_case)
    tagger = BertTokenClassifier.from_checkpoint(checkpoint, ["cls/"], num_labels=len(tags))
    learning_rate = 5e-5
else:
    text = [" ".join(sentence.words) for sentence in sentences]
    tokenizer = WordPiece(Vocab(tuple(train_vocab(count_words(text, False), 120))), False)
    tagger = BertTokenClassifier(ModelConfig(120, 64, 2, 4, 128), num_labels=len(tags))
    learning_rate = 1e-3
