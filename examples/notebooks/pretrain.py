# %% [markdown]
# # Pre-train on your own text
#
# From plain text files to a BERT that fills in words of your field: vocabulary, training, curves,
# and a look at what it learned. Here the text is documentation that came with installed packages,
# and the model is small and trained for a minute or two; for your own text change `my_text`, for a
# real model take `configs/base.flags`, and let it run longer.

# %%
import pathlib

import matplotlib.pyplot as plt
from IPython.display import Image

import bert_tf
from bert_tf.corpus.builtin_corpus import gather_builtin_corpus

# %% [markdown]
# ## The text
#
# One sentence a line, a blank line between documents; plain prose, JSONL or compressed files do as
# well.

# %%
my_text = pathlib.Path("my_text.txt")
gather_builtin_corpus(my_text)
lines = my_text.read_text(encoding="utf8").splitlines()
my_text.write_text("\n".join(lines[:40_000]) + "\n", encoding="utf8")
print(f"{my_text.stat().st_size / 1e6:.1f} MB")
print(*lines[1000:1003], sep="\n")

# %% [markdown]
# ## Training
#
# One command makes the vocabulary and the examples and trains. If it is interrupted, the same
# command goes on where it stopped. It also scores a baseline that knows how frequent words are, and
# nothing else.

# %% language="bash"
# python -m bert_tf.run_pretraining --flagfile=configs/quickstart.flags \
#     --input_file=my_text.txt --output_dir=run --vocab_size=4096 \
#     --train_for=1.5min --eval_steps=100 --max_eval_steps=10 \
#     2>&1 | tail -5

# %%
Image("run/curves.png", width=700)

# %%
print(pathlib.Path("run/eval_results.txt").read_text())

# %% [markdown]
# `masked_lm_accuracy` beside `unigram_masked_lm_accuracy`: the share of hidden pieces that the
# model guesses, and the share that the baseline guesses.
#
# ## What it learned
#
# After so few steps: which words are frequent, and a little of what stands beside them. `make
# quickstart` trains for four minutes on more text; the paper's model took a million steps of 256
# longer rows.

# %%
predictor = bert_tf.load("run")
texts = [
    "Returns the number of [MASK] in the list.",
    "If the file does not [MASK], an error is raised.",
    "The default value is [MASK].",
]
figure, axes = plt.subplots(1, len(texts), figsize=(11, 2.4))
for axis, text, masks in zip(axes, texts, predictor.fill_mask(texts, top_k=6), strict=True):
    pieces = masks[0][::-1]
    axis.barh([p["piece"] for p in pieces], [p["score"] for p in pieces])
    axis.set_title(text, fontsize=8)
figure.tight_layout()
plt.show()

# %% [markdown]
# ## From here
#
# The run is a checkpoint like any other: fine-tune it with
# `bert_tf.BertClassifier.from_pretrained("run", labels=[...])`, or write it for others with
# `python -m bert_tf.convert_checkpoint --input=run --output=mine --to=huggingface`.
