# %% [markdown]
# # Search with embeddings
#
# Texts become vectors, and the texts that mean something like a question are those whose vectors
# point in its direction. Here the texts are the first sentences of the documentation of Python's
# standard library.
#
# With a network you need no training: a model made for search does better than the small one below.
#
# ```python
# embedder = TextEmbedder.from_pretrained(
#     "hf://sentence-transformers/all-MiniLM-L6-v2", "mean", normalize=True
# )
# ```

# %%
import ast
import collections
import pathlib
import sysconfig

import keras
import matplotlib.pyplot as plt
import numpy as np

import bert_tf
from bert_tf.modeling.text_model import TextEmbedder
from bert_tf.text.vocab_training import count_words, train_vocab

keras.utils.set_random_seed(1)

# %% [markdown]
# ## The texts

# %%
library = pathlib.Path(sysconfig.get_path("stdlib"))
packages = "email http asyncio json xml sqlite3 logging unittest multiprocessing tkinter".split()
found = {}
for package in packages:
    for file in sorted((library / package).rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                first = " ".join((ast.get_docstring(node) or "").split("\n\n")[0].split())
                if 20 < len(first) < 250:
                    found.setdefault(first, (package, node.name))
texts = list(found)
topics = [found[text][0] for text in texts]
print(len(texts), "texts:", dict(collections.Counter(topics)))

# %% [markdown]
# ## An encoder
#
# It learns to tell the packages apart; on the way texts about one subject come to lie together.

# %%
vocab = bert_tf.Vocab(tuple(train_vocab(count_words(texts, True), 2000)))
preprocessor = bert_tf.BertPreprocessor(vocab, do_lower_case=True, max_seq_length=64)
config = bert_tf.ModelConfig(len(vocab), 128, 2, 2, 512, classifier_pooling="mean")
model = bert_tf.BertClassifier(config, labels=packages, preprocessor=preprocessor)
history = model.fit(texts, topics, epochs=6, learning_rate=1e-3, verbose=2)

# %%
embedder = TextEmbedder(model.bert, model.tokenizer, "mean", normalize=True, max_seq_length=64)
vectors = embedder.embed(texts)  # [N, D], of length 1
print(vectors.shape)

# %% [markdown]
# ## Asking
#
# The product of two vectors of length 1 is the cosine of their angle: 1 for the same direction.

# %%


def search(question: str, count: int = 4) -> None:
    scores = vectors @ embedder.embed([question])[0]
    print(question)
    for index in np.argsort(-scores)[:count]:
        package, name = found[texts[index]]
        print(f"  {scores[index]:.2f}  {package}.{name}: {texts[index][:80]}")


search("send a mail with an attachment")
search("wait until a task is done")
search("draw a rectangle in a window")
search("parse a document of tags")

# %% [markdown]
# ## The map
#
# The two directions in which the vectors differ most. Each point is a text, each colour a package.

# %%
centred = vectors - vectors.mean(axis=0)
_, _, directions = np.linalg.svd(centred, full_matrices=False)
places = centred @ directions[:2].T
figure, axis = plt.subplots(figsize=(7, 5))
for index, package in enumerate(packages):
    chosen = np.array(topics) == package
    axis.scatter(*places[chosen].T, s=6, color=plt.cm.tab10(index), label=package)
axis.legend(markerscale=3, fontsize=8)
plt.show()
