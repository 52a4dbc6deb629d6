# %% [markdown]
# # Search with embeddings
#
# Texts become vectors, and what a question asks for are the texts whose vectors point in its
# direction. From pairs of questions and answers to a search: train an embedder, see how often it
# finds the right text, ask it.
#
# With a network you need no training: a model made for search does better than the small one below,
# which starts at random and learns for a few minutes.
#
# ```python
# model = bert_tf.BertEmbedder.from_pretrained("hf://sentence-transformers/all-MiniLM-L6-v2")
# ```

# %%
import ast
import importlib.util
import json
import pathlib
import random
import re
import sysconfig

import matplotlib.pyplot as plt
import numpy as np

import bert_tf
from bert_tf.text.vocab_training import count_words, train_vocab

# %% [markdown]
# ## Pairs
#
# The names of functions are the questions, `get_content_type` say; the first sentences of their
# documentation are the answers: those of Python's standard library and of three packages.

# %%
library = pathlib.Path(sysconfig.get_path("stdlib"))
packages = [importlib.util.find_spec(name) for name in ("numpy", "matplotlib", "keras")]
folders = [library, *(pathlib.Path(spec.origin).parent for spec in packages)]
documents = {}
files = [(folder, file) for folder in folders for file in sorted(folder.rglob("*.py"))]
for folder, file in files:
    path = file.relative_to(folder)
    if {"test", "tests", "site-packages", "lib2to3", "idlelib"} & set(path.parts):
        continue
    module = path.parts[0].removesuffix(".py") if folder == library else folder.name
    for node in ast.walk(ast.parse(file.read_text(encoding="utf8", errors="replace"))):
        if isinstance(node, ast.FunctionDef) and (text := ast.get_docstring(node)):
            text = " ".join(text.split("\n\n")[0].split())
            words = re.sub("(?<=[a-z])(?=[A-Z])", " ", node.name).replace("_", " ").lower().strip()
            if 20 < len(text) < 250 and " " in words:
                documents.setdefault(text, (words, module))
texts = sorted(documents)
random.Random(1).shuffle(texts)
held_out, train = texts[:300], texts[300:]
with open("train.jsonl", "w", encoding="utf8") as file:  # noqa: PTH123
    for text in train:
        print(json.dumps({"query": documents[text][0], "positive": text}), file=file)
vocab = train_vocab(count_words([*train, *(documents[text][0] for text in train)], True), 4000)
pathlib.Path("vocab.txt").write_text("\n".join(vocab) + "\n", encoding="utf8")
print(len(texts), "texts, for instance:", documents[train[0]][0], "->", train[0])

# %% [markdown]
# ## Training
#
# Each query is to find its own text among all texts of the batch.

# %% language="bash"
# python -m bert_tf.run_retriever --do_train --train_file=train.jsonl --output_dir=run \
#     --vocab_file=vocab.txt --max_seq_length=48 --train_batch_size=64 --num_train_epochs=6 \
#     --learning_rate=1e-3 --hidden_size=128 --num_hidden_layers=2 --num_attention_heads=2 \
#     --intermediate_size=512 --hidden_dropout_prob=0.1 2>&1 | tail -4

# %%
model = bert_tf.BertEmbedder.from_pretrained("run")


def embed(texts: list[str]) -> np.ndarray:
    """Returns vectors of length 1: their products are the cosines of the angles between them."""
    vectors = model.encode(texts)  # float32 [N, D]
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


vectors = embed(texts)
print(vectors.shape)

# %% [markdown]
# ## How often it is right
#
# Of functions that it has not seen: the place of the right text among all texts. Guessing would
# find it at the very first place once in thousands of questions.

# %%
questions = [documents[text][0] for text in held_out]
scores = embed(questions) @ vectors.T  # [Q, N]
right = scores[np.arange(len(held_out)), np.arange(len(held_out))]  # They stand first in texts.
places = (scores > right[:, None]).sum(axis=1)
depths = np.arange(1, 101)
share = [np.mean(places < depth) for depth in depths]
figure, axis = plt.subplots(figsize=(5, 3))
axis.plot(depths, share)
axis.set(xscale="log", ylim=(0, 1), xlabel="texts looked at", ylabel="right one among them")
plt.show()
print(f"first: {share[0]:.0%}, among ten: {share[9]:.0%}, among a hundred: {share[99]:.0%}")

# %% [markdown]
# ## Asking
#
# A product of all vectors is enough for some hundred thousand texts; `bert_tf.search` keeps more,
# on the disk, and finds words as well.

# %%
asked = ["send a mail", "is the file a directory", "wait for a child process", "draw a rectangle"]
for question, row in zip(asked, embed(asked) @ vectors.T, strict=True):
    print(question)
    for index in np.argsort(-row)[:3]:
        print(f"  {row[index]:.2f}  {documents[texts[index]][1]}: {texts[index][:80]}")
