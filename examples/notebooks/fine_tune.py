# %% [markdown]
# # Fine-tune a classifier, and look at its errors
#
# From texts with labels to a file that answers strings: train, see where the model is wrong and how
# sure it was, save, load. It runs in a minute or two on a laptop, without downloads: the texts are
# sentences of the documentation inside installed packages, and the question is which package a
# sentence comes from.
#
# With a network, begin with a model that knows English; everything else stays as it is:
#
# ```python
# start = "hf://google-bert/bert-base-uncased"
# model = bert_tf.BertClassifier.from_pretrained(start, labels=labels)
# ```

# %%
import ast
import importlib.util
import pathlib
import random
import re

import keras
import matplotlib.pyplot as plt
import numpy as np

import bert_tf
from bert_tf.text.vocab_training import count_words, train_vocab

keras.utils.set_random_seed(1)

# %% [markdown]
# ## The texts
#
# The first sentence of every docstring; names of the packages themselves are hidden, for they would
# give the answer away.

# %%
labels = ["keras", "matplotlib", "numpy"]


def sentences_of(package: str) -> list[str]:
    folder = pathlib.Path(importlib.util.find_spec(package).origin).parent
    found = set()
    for file in folder.rglob("*.py"):
        if "tests" in file.parts or file.name.endswith("_test.py"):
            continue
        for node in ast.walk(ast.parse(file.read_text(encoding="utf8"))):
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                first = (ast.get_docstring(node) or "").split("\n\n")[0].replace("\n", " ")
                first = re.sub("|".join([*labels, "np", "axes", "tf"]), "_", first, flags=re.I)
                if 30 < len(first) < 300:
                    found.add(first)
    return sorted(found)


rows = [(text, label) for label in labels for text in sentences_of(label)]
random.Random(1).shuffle(rows)
held_out, train = rows[: len(rows) // 5], rows[len(rows) // 5 :]
for label in labels:
    print(f"{label:12} {sum(name == label for _, name in train)} sentences to train on")
print(*train[0], sep="  <-  ")

# %% [markdown]
# ## Training
#
# A small BERT that starts at random, with a vocabulary of these texts. `fit` takes the strings and
# the names of the labels; rate, warm-up, decay and clipping are those of BERT's fine-tuning.

# %%
texts, names = zip(*train, strict=True)
dev_texts, dev_names = zip(*held_out, strict=True)
vocab = bert_tf.Vocab(tuple(train_vocab(count_words(texts, True), 2000)))
model = bert_tf.BertClassifier(
    bert_tf.ModelConfig(len(vocab), 128, 2, 2, 512),
    labels=labels,
    preprocessor=bert_tf.BertPreprocessor(vocab, do_lower_case=True, max_seq_length=64),
)
history = model.fit(
    list(texts),
    list(names),
    validation_data=(list(dev_texts), list(dev_names)),
    epochs=4,
    learning_rate=1e-3,
    verbose=2,
)

# %%
figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3))
for axis, name in ((left, "loss"), (right, "accuracy")):
    axis.plot(history.epoch, history.history[name], label="training")
    axis.plot(history.epoch, history.history[f"val_{name}"], label="held out")
    axis.set(xlabel="epoch", title=name)
left.legend()
plt.show()

# %% [markdown]
# ## Where it is wrong
#
# Rows are what is right, columns what the model says.

# %%
answers = model.classify(list(dev_texts))
found = [answer["label"] for answer in answers]
counts = np.zeros((3, 3), int)
for right_name, name in zip(dev_names, found, strict=True):
    counts[labels.index(right_name), labels.index(name)] += 1

figure, axis = plt.subplots(figsize=(3.6, 3.2))
axis.imshow(counts, cmap="Blues")
axis.set(xticks=range(3), yticks=range(3), xticklabels=labels, yticklabels=labels)
axis.set(xlabel="model", ylabel="right")
for (row, column), count in np.ndenumerate(counts):
    color = "white" if count > counts.max() / 2 else "black"
    axis.text(column, row, count, ha="center", va="center", color=color)
plt.show()
print(f"{np.trace(counts) / counts.sum():.1%} of {counts.sum()} are right.")

# %% [markdown]
# The errors of which the model was surest tell most: a wrong label in the data, a text that says
# too little, or something that the model has not understood.

# %%
wrong = [
    (answer["score"], name, answer["label"], text)
    for answer, name, text in zip(answers, dev_names, dev_texts, strict=True)
    if answer["label"] != name
]
for score, name, answer, text in sorted(wrong, reverse=True)[:8]:
    print(f"{score:.2f} {answer}, right is {name}: {text[:90]}")

# %% [markdown]
# Is a score of 0.9 right nine times of ten? Points on the line say yes; below it the model is surer
# than it should be.

# %%
scores = np.array([answer["score"] for answer in answers])
is_right = np.array([a == b for a, b in zip(found, dev_names, strict=True)])
edges = np.quantile(scores, np.linspace(0, 1, 7))
groups = np.clip(np.searchsorted(edges, scores, side="right") - 1, 0, 5)
figure, axis = plt.subplots(figsize=(3.6, 3.2))
axis.plot([0.3, 1], [0.3, 1], color="gray")
axis.scatter(
    [scores[groups == group].mean() for group in range(6)],
    [is_right[groups == group].mean() for group in range(6)],
)
axis.set(xlabel="score", ylabel="share of right answers")
plt.show()

# %% [markdown]
# ## Keep it
#
# One file with weights, tokenizer and labels. In another program `bert_tf.load` is all that is
# needed.

# %%
model.save("packages.keras")
predictor = bert_tf.load("packages.keras")
predictor.classify(["Draw a line between two points.", "Compute the inverse of a matrix."])
