"""Tells good reviews from bad ones: raw strings in, a saved Keras model of raw strings out.

    PYTHONPATH=. python examples/classify_reviews.py --model=all-MiniLM-L6-v2 --data=train.tsv

--model is a BERT in any form that bert_tf reads; without it, a tiny one starts at random. --data is
a .tsv, .csv or .jsonl with columns `sentence` and `label`, as SST-2's; without it, reviews are made
up. A tenth of the rows is held out. The result is reviews.keras in the current folder.
"""

import argparse
import itertools
import random

import keras
import tensorflow as tf

from bert_tf.config import ModelConfig, OptimizerConfig
from bert_tf.modeling.models import BertClassifier
from bert_tf.modeling.preprocessor import BertPreprocessor
from bert_tf.optimization.optimizers import build_optimizer
from bert_tf.tasks.text_examples import read_text_examples
from bert_tf.text.vocab import Vocab
from bert_tf.text.vocab_training import count_words, train_vocab

parser = argparse.ArgumentParser()
parser.add_argument("--model", default="", help="a checkpoint; none: a tiny random model")
parser.add_argument("--data", default="", help="a table of sentences and labels; none: made up")
args = parser.parse_args()
keras.utils.set_random_seed(1)

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
labels = sorted({label for _, label in rows})
random.Random(1).shuffle(rows)

# The model, and the layer that makes its inputs from strings.
if args.model:
    preprocessor = BertPreprocessor.from_pretrained(args.model, max_seq_length=64)
    classifier = BertClassifier.from_pretrained(args.model, ["cls/"], num_labels=len(labels))
    learning_rate = 5e-5
else:
    vocab = Vocab(tuple(train_vocab(count_words([text for text, _ in rows], True), 150)))
    preprocessor = BertPreprocessor(vocab, do_lower_case=True, max_seq_length=64)
    classifier = BertClassifier(ModelConfig(len(vocab), 64, 2, 4, 128), num_labels=len(labels))
    learning_rate = 1e-3


def batches(part: list[tuple[str, str]]) -> tf.data.Dataset:
    texts, ids = [text for text, _ in part], [labels.index(label) for _, label in part]
    data = tf.data.Dataset.from_tensor_slices((texts, ids)).shuffle(len(part), seed=1).batch(32)
    return data.map(lambda text, label: (preprocessor(text), label)).prefetch(2)


# Training; callbacks, class weights, replicas and all else of Keras work, too.
held_out, train = batches(rows[: len(rows) // 10]), batches(rows[len(rows) // 10 :])
steps = 3 * len(train)
optimizer = build_optimizer(OptimizerConfig("adamw", learning_rate, steps, steps // 10))
loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
# Without XLA, which would compile anew for every length of a batch.
classifier.compile(optimizer, loss, metrics=["accuracy"], jit_compile=False)
print(f"Accuracy before: {classifier.evaluate(held_out, verbose=0)[1]:.3f}")
classifier.fit(train, validation_data=held_out, epochs=3, shuffle=False, verbose=2)
print(f"Accuracy after: {classifier.evaluate(held_out, verbose=0)[1]:.3f}")

# One model from strings to scores, in one file. To load it in another program `import bert_tf`;
# nothing else is needed.
texts = keras.Input((), dtype="string")
keras.Model(texts, classifier(preprocessor(texts))).save("reviews.keras")
model = keras.models.load_model("reviews.keras")
sentences = ["The music was delightful, a wonderful evening.", "Clumsy and, I am afraid, boring."]
predictions = model.predict(tf.constant(sentences), verbose=0)  # [B, C]
for sentence, scores in zip(sentences, predictions, strict=True):
    print(f"{labels[scores.argmax()]}: {sentence}")
