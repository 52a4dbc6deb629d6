# %% [markdown]
# # Serve a model
#
# From a table of texts and labels to three things that answer: a SavedModel for TensorFlow Serving,
# a LiteRT file for a phone, and a Python object; the same answers from each.

# %%
import csv
import itertools
import json
import pathlib
import random
import time

import matplotlib.pyplot as plt

import bert_tf
from bert_tf.text.vocab_training import count_words, train_vocab

# %% [markdown]
# ## A model
#
# Reviews that are made up, and a small classifier that starts at random; for a real one give
# `--init_checkpoint=hf://google-bert/bert-base-uncased`, or a folder, instead of `--vocab_file` and
# the sizes.

# %%
words = {"good": "wonderful moving funny brilliant charming superb clever delightful".split()}
words["bad"] = "dull boring awful clumsy stupid tedious lifeless dreadful".split()
forms = ("The {} is {} and {}.", "I found the {} rather {}, if not {}!", "Its {}: {}, even {}")
made = itertools.product(words, ("film", "story", "acting", "music", "ending"), forms)
rows = [
    (form.format(what, *pair), label)
    for label, what, form in made
    for pair in itertools.permutations(words[label], 2)
]
random.Random(1).shuffle(rows)
for name, part in (("train.csv", rows[160:]), ("dev.csv", rows[:160])):
    with open(name, "w", newline="", encoding="utf8") as file:  # noqa: PTH123
        csv.writer(file).writerows([("text", "label"), *part])
vocab = train_vocab(count_words([text for text, _ in rows], True), 150)
pathlib.Path("vocab.txt").write_text("\n".join(vocab) + "\n", encoding="utf8")

# %% language="bash"
# python -m bert_tf.run_classifier --do_train --do_eval --output_dir=run \
#     --train_file=train.csv --eval_file=dev.csv --vocab_file=vocab.txt --max_seq_length=64 \
#     --hidden_size=64 --num_hidden_layers=2 --num_attention_heads=4 --intermediate_size=128 \
#     --learning_rate=1e-3 --num_train_epochs=2 2>&1 | tail -3

# %%
predictor = bert_tf.load("run")
texts = ["The music was delightful, a wonderful evening.", "Clumsy and, I am afraid, boring."]
predictor.classify(texts)

# %% [markdown]
# ## A SavedModel
#
# Raw texts in, answers out, the tokenizer inside. `export.check` tries what a server does with it:
# it loads where only TensorFlow is, and answers as the model in Python.

# %% language="bash"
# python -m export.saved_model --model_dir=run --output_dir=serving/reviews 2>&1 | tail -2
# python -m export.check serving/reviews/1 2>&1 | tail -12

# %%
served = bert_tf.load("serving/reviews")
served.classify(texts)

# %% [markdown]
# TensorFlow Serving would take this request at `/v1/models/reviews:predict`; `export/README.md` has
# the commands for Docker, Compose and Kubernetes, and a client.

# %%
print(json.dumps({"inputs": {"text": texts}}, indent=1))

# %% [markdown]
# ## A file for a phone
#
# Weights of 8 bits. Before the file gets its name it is scored on the held-out rows beside the
# original.

# %% language="bash"
# python -m export.tflite --model_dir=run --output_file=reviews.tflite \
#     --quantize=dynamic 2>&1 | tail -2

# %%
lite = bert_tf.load("reviews.tflite")
lite.classify(texts)

# %% [markdown]
# ## How fast

# %%
text = "The film was wonderful. "
lengths = (1, 2, 4, 8)
figure, axis = plt.subplots(figsize=(5, 3))
for name, model in (("Python", predictor), ("SavedModel", served), ("LiteRT", lite)):
    times = []
    for length in lengths:
        model.classify([text * length])
        begin = time.perf_counter()
        for _ in range(20):
            model.classify([text * length])
        times.append((time.perf_counter() - begin) / 20 * 1000)
    axis.plot(lengths, times, marker="o", label=name)
axis.set(xlabel="sentences in a text", ylabel="milliseconds a text", ylim=0)
axis.legend()
plt.show()
