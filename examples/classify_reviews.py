"""Classifies reviews as good or bad: raw strings in, labels out, all in one saved file.

    PYTHONPATH=. python examples/classify_reviews.py --model=all-MiniLM-L6-v2 --data=train.tsv

--model is a BERT in any format that bert_tf reads; without it, a tiny random model is used. --data
is a .tsv, .csv or .jsonl with columns `sentence` and `label`, as in SST-2; without it, reviews are
made up. A tenth of the rows is held out. The result is reviews.keras in the current folder.
"""

import argparse
import itertools
import random

import keras

import bert_tf
from bert_tf.tasks.classification.examples import read_text_examples
from bert_tf.text.vocab_training import count_words, train_vocab

parser = argparse.ArgumentParser()
parser.add_argument("--model", default="", help="a checkpoint; none: a tiny random model")
parser.add_argument("--data", default="", help="a table of sentences and labels; none: made up")
args = parser.parse_args()
keras.utils.set_random_seed(2)

# Texts and labels.
if args.data:
    examples = read_text_examples(args.data, "sentence", label_column="label")
    rows = [(example.text_a, example.label) for example in examples]
else:
    words = {"good": "wonderful moving funny brilliant charming superb clever delightful".split()}
    words["bad"] = "dull boring awful clumsy stupid tedious lifeless dreadful".split()
    forms = ("The {} is {} and {}.", "I found the {} rather {}, if not {}!", "Its {}: {}, even {}")
    made = itertools.product(words, ("film", "story", "acting", "music", "ending"), forms)
    pairs = {label: list(itertools.permutations(words[label], 2)) for label in words}
    rows = [(form.format(what, *pair), name) for name, what, form in made for pair in pairs[name]]
random.Random(1).shuffle(rows)
texts, names = [text for text, _ in rows], [name for _, name in rows]
labels, later = sorted(set(names)), len(rows) // 10
held_out = (texts[:later], names[:later])

# The model, with its tokenizer and the names of its labels.
if args.model:
    model = bert_tf.BertClassifier.from_pretrained(args.model, labels=labels, max_seq_length=64)
    learning_rate = 5e-5
else:
    vocab = bert_tf.Vocab(tuple(train_vocab(count_words(texts, True), 150)))
    preprocessor = bert_tf.BertPreprocessor(vocab, do_lower_case=True, max_seq_length=64)
    config = bert_tf.ModelConfig(len(vocab), 64, 2, 4, 128)
    model = bert_tf.BertClassifier(config, labels=labels, preprocessor=preprocessor)
    learning_rate = 1e-3

# Training; `compile`, callbacks, class weights, replicas and all else of Keras work, too.
print(f"Accuracy before: {model.evaluate(*held_out, verbose=0)[1]:.3f}")
options = {"epochs": 3, "learning_rate": learning_rate, "verbose": 2}
model.fit(texts[later:], names[later:], validation_data=held_out, **options)
print(f"Accuracy after: {model.evaluate(*held_out, verbose=0)[1]:.3f}")

# Later, or in another program after `import bert_tf`: one file holds all that is needed.
model.save("reviews.keras")
loaded = keras.models.load_model("reviews.keras")
sentences = ["The music was delightful, a wonderful evening.", "Clumsy and, I am afraid, boring."]
for sentence, answer in zip(sentences, loaded.classify(sentences), strict=True):
    print(f"{answer['label']}: {sentence}")
