"""Fine-tunes a Hugging Face checkpoint with plain PyTorch, as an ordinary user would.

    python -m benchmarks.finetuning_torch --model=<folder> --data=data --task=rte \\
        --seed=1 --output=scores.json

The model's own class with a head, its fast tokenizer, `torch.optim.AdamW` with weight decay 0.01 on
all weights, linear schedule with 10 % warm-up, batch 32, gradients clipped to norm 1, float32,
dropout as in the checkpoint, batches padded to their longest row. All rows are tokenized first,
the rows of an epoch come in an order drawn from the seed, a last smaller batch is trained on too.

Which rows: `finetuning_tasks.py`. It needs `pip install -r benchmarks/requirements.txt`.

--output gets the scores as JSON: fractions, SQuAD's are percent.
"""

from __future__ import annotations  # Types may name PyTorch's where it is not installed.

import collections
import contextlib
import itertools
import json
import os
import pathlib
import shutil
from collections.abc import Iterator
from typing import Any

import numpy as np
from absl import app, flags

from benchmarks.finetuning_tasks import RECIPES, Recipe, Row, choose, find_names
from bert_tf.corpus.example_order import order_examples
from bert_tf.metrics.squad import evaluate_v1, evaluate_v2

with contextlib.suppress(ImportError):  # --help needs none of them.
    import seqeval.metrics
    import torch
    import transformers
    from scipy import stats
    from sklearn import metrics as sklearn_metrics

MODEL = flags.DEFINE_string("model", "", "Folder of a Hugging Face checkpoint.")
DATA = flags.DEFINE_string("data", "data", "Folder of the data sets.")
TASK = flags.DEFINE_string("task", "sst2", "Name in RECIPES.")
SEED = flags.DEFINE_integer("seed", 1, "Seed of the head, of dropout and of the rows' order.")
SAME_ORDER = flags.DEFINE_bool(
    "same_order", False, "Take the rows as bert_tf does: in its order, in whole batches alone."
)
SAVE_START = flags.DEFINE_string("save_start", "", "Write the model with its new head and stop.")
OUTPUT = flags.DEFINE_string("output", "scores.json", "File for the scores.")

BATCH_SIZE, WEIGHT_DECAY, WARM_UP, MAX_NORM = 32, 0.01, 0.1, 1.0
# As in run_qa.py; the first is its doc_stride: pieces a window shares with the one before it.
DOC_OVERLAP, N_BEST, MAX_ANSWER_LENGTH = 96, 20, 30

Tokenized = tuple[list[Row], list[Row]]  # what the model gets; what scoring needs besides
Scores = dict[str, float]


def tokenize_texts(recipe: Recipe, rows: list[Row], names: list[str], tokenizer: Any) -> Tokenized:
    pairs = None if rows[0]["pair"] is None else [row["pair"] for row in rows]
    texts, length = [row["text"] for row in rows], recipe.max_length
    encoded = tokenizer(texts, pairs, truncation="longest_first", max_length=length)
    number = float if recipe.score == "correlation" else names.index
    labels = [number(row["label"]) for row in rows]
    return [{**split(encoded, i), "labels": label} for i, label in enumerate(labels)], rows


def tokenize_words(recipe: Recipe, rows: list[Row], names: list[str], tokenizer: Any) -> Tokenized:
    """Labels the first piece of each word; other positions are -100, which the loss leaves out."""
    words, length = [row["words"] for row in rows], recipe.max_length
    encoded = tokenizer(words, is_split_into_words=True, truncation=True, max_length=length)
    features, places = [], []
    for i, row in enumerate(rows):
        firsts = {}  # word: position of its first piece
        for at, word in enumerate(encoded.word_ids(i)):
            if word is not None:
                firsts.setdefault(word, at)
        feature = {**split(encoded, i), "labels": [-100] * len(encoded["input_ids"][i])}
        for word, at in firsts.items():
            feature["labels"][at] = names.index(row["labels"][word])
        features.append(feature)
        places.append({"tags": row["labels"], "firsts": firsts})
    return features, places


def split(encoded: Any, row: int) -> Row:
    names = ("input_ids", "token_type_ids", "attention_mask")
    return {name: encoded[name][row] for name in names}


def tokenize_squad(recipe: Recipe, rows: list[Row], names: list[str], tokenizer: Any) -> Tokenized:
    """Makes windows as run_qa.py does; offsets are None off the context."""
    questions = [row["question"].lstrip() for row in rows]
    contexts = [row["context"] for row in rows]
    options = {"return_overflowing_tokens": True, "return_offsets_mapping": True}
    options |= {"truncation": "only_second", "stride": DOC_OVERLAP}
    encoded = tokenizer(questions, contexts, max_length=recipe.max_length, **options)
    features, places = [], []
    for i, number in enumerate(encoded["overflow_to_sample_mapping"]):
        sides = zip(encoded["offset_mapping"][i], encoded.sequence_ids(i), strict=True)
        offsets = [offset if side == 1 else None for offset, side in sides]
        start, end = find_answer(rows[number], offsets)
        features.append({**split(encoded, i), "start_positions": start, "end_positions": end})
        places.append({"question": rows[number], "offsets": offsets})
    return features, places


def find_answer(row: Row, offsets: list[tuple[int, int] | None]) -> tuple[int, int]:
    """Returns the first answer's first and last piece, (0, 0) if the window lacks any."""
    if not row["answers"] or row.get("is_impossible"):
        return 0, 0
    first = row["answers"][0]["answer_start"]
    last = first + len(row["answers"][0]["text"])
    pieces = [at for at, offset in enumerate(offsets) if offset]
    if not pieces or offsets[pieces[0]][0] > first or offsets[pieces[-1]][1] < last:
        return 0, 0
    start = max(at for at in pieces if offsets[at][0] <= first)
    return start, min(at for at in pieces if offsets[at][1] >= last)


def make_loader(features: list[Row], collate: Any, epochs: int) -> torch.utils.data.DataLoader:
    """Returns the batches of an epoch; in bert_tf's order those of the whole run."""
    if SAME_ORDER.value:
        steps = len(features) * epochs // BATCH_SIZE
        places = np.arange(steps * BATCH_SIZE)
        rows = order_examples(places, len(features), SEED.value)[0].reshape(steps, BATCH_SIZE)
        return torch.utils.data.DataLoader(
            features, batch_sampler=rows.tolist(), collate_fn=collate
        )
    order = torch.Generator().manual_seed(SEED.value)
    return torch.utils.data.DataLoader(
        features, BATCH_SIZE, shuffle=True, collate_fn=collate, generator=order
    )


def train(model: torch.nn.Module, recipe: Recipe, features: list[Row], collate: Any) -> None:
    loader = make_loader(features, collate, recipe.epochs)
    epochs = 1 if SAME_ORDER.value else recipe.epochs
    total = len(loader) * epochs
    rate = recipe.learning_rate
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate, weight_decay=WEIGHT_DECAY)
    schedule = transformers.get_linear_schedule_with_warmup(optimizer, int(WARM_UP * total), total)
    model.train()
    losses: list[float] = []
    for batch in itertools.chain.from_iterable(itertools.repeat(loader, epochs)):
        loss = model(**batch).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), MAX_NORM)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        losses.append(loss.item())
        if len(losses) % 50 == 0:
            print(f"step {len(losses)}/{total} loss {np.mean(losses[-50:]):.4f}", flush=True)


def predict(model: torch.nn.Module, features: list[Row], collate: Any) -> Iterator[dict]:
    """Yields the outputs of each row, NumPy, by name."""
    model.eval()
    for at in range(0, len(features), BATCH_SIZE):
        with torch.no_grad():
            outputs = model(**collate(features[at : at + BATCH_SIZE]))
        logits = {key: outputs[key].numpy() for key in outputs if key.endswith("logits")}
        for values in zip(*logits.values(), strict=True):
            yield dict(zip(logits, values, strict=True))


def score_texts(recipe: Recipe, rows: list[Row], names: list[str], outputs: list) -> Scores:
    logits = np.stack([output["logits"] for output in outputs])
    if recipe.score == "correlation":
        labels = [float(row["label"]) for row in rows]
        return {"spearman": float(stats.spearmanr(labels, logits[:, 0]).statistic)}
    labels = [names.index(row["label"]) for row in rows]
    predictions = logits.argmax(axis=1)
    if recipe.score == "matthews":
        return {"matthews": float(sklearn_metrics.matthews_corrcoef(labels, predictions))}
    return {"accuracy": float(sklearn_metrics.accuracy_score(labels, predictions))}


def score_words(recipe: Recipe, places: list[Row], names: list[str], outputs: list) -> Scores:
    """Scores words; one without a piece, or cut off, is O, which no part of speech is."""
    true, found = [place["tags"] for place in places], []
    for place, output in zip(places, outputs, strict=True):
        best = output["logits"].argmax(axis=-1)
        tags = {word: names[best[at]] for word, at in place["firsts"].items()}
        found.append([tags.get(word, "O") for word in range(len(place["tags"]))])
    if recipe.score == "words":
        return {"accuracy": float(np.mean(np.concatenate(true) == np.concatenate(found)))}
    return {"f1": float(seqeval.metrics.f1_score(true, found))}


def score_squad(recipe: Recipe, places: list[Row], names: list[str], outputs: list) -> Scores:
    """Chooses answers as run_qa.py does and scores them with the official formulas."""
    windows = collections.defaultdict(list)
    for place, output in zip(places, outputs, strict=True):
        windows[place["question"]["id"]].append((place["offsets"], output))
    questions = {place["question"]["id"]: place["question"] for place in places}
    answers, odds = {}, {}
    for key, found in windows.items():
        null = min(float(o["start_logits"][0] + o["end_logits"][0]) for _, o in found)
        spans = [span for window in found for span in best_spans(*window)]
        score, start, end = max(spans, key=lambda span: span[0], default=(-1e9, 0, 0))
        answers[key], odds[key] = questions[key]["context"][start:end], null - score
    dataset = {"data": [{"paragraphs": [{"qas": list(questions.values())}]}]}
    if recipe.score == "squad1":
        return evaluate_v1(dataset, answers)
    return evaluate_v2(dataset, answers, odds, threshold=0.0)


def best_spans(offsets: list, output: dict) -> Iterator[tuple[float, int, int]]:
    """Yields (score, first character, one after the last) of a window's best spans."""
    names = ("start_logits", "end_logits")
    starts, ends = (np.argsort(output[name])[::-1][:N_BEST] for name in names)
    for start, end in itertools.product(starts, ends):
        is_span = start <= end < min(start + MAX_ANSWER_LENGTH, len(offsets))
        if is_span and offsets[start] and offsets[end]:
            score = float(output["start_logits"][start] + output["end_logits"][end])
            yield score, offsets[start][0], offsets[end][1]


def parts_of(recipe: Recipe) -> tuple[Any, ...]:
    """Returns what tokenizes, what scores, what makes batches, and the model's class."""
    pad = transformers.DataCollatorWithPadding
    if recipe.score in ("entities", "words"):
        pad = transformers.DataCollatorForTokenClassification
        return tokenize_words, score_words, pad, transformers.AutoModelForTokenClassification
    if recipe.score in ("squad1", "squad2"):
        return tokenize_squad, score_squad, pad, transformers.AutoModelForQuestionAnswering
    return tokenize_texts, score_texts, pad, transformers.AutoModelForSequenceClassification


def make_model(model_class: Any, recipe: Recipe, names: list[str]) -> torch.nn.Module:
    transformers.set_seed(SEED.value)
    size = 2 if recipe.score in ("squad1", "squad2") else len(names) or 1
    return model_class.from_pretrained(MODEL.value, dtype=torch.float32, num_labels=size)


def main(_: list[str]) -> None:
    recipe = RECIPES[TASK.value]
    tokenize, score, make_collate, model_class = parts_of(recipe)
    path = f"{DATA.value}/{recipe.files}"
    all_rows = recipe.read(path.replace("*", recipe.train))
    names = find_names(recipe, all_rows)
    if SAVE_START.value:
        shutil.copytree(MODEL.value, SAVE_START.value)
        make_model(model_class, recipe, names).save_pretrained(SAVE_START.value)
        return
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    tokenizer = transformers.AutoTokenizer.from_pretrained(MODEL.value)
    collate = make_collate(tokenizer)
    features, _ = tokenize(recipe, choose(recipe, all_rows), names, tokenizer)
    eval_rows = recipe.read(path.replace("*", recipe.evaluation))
    eval_features, places = tokenize(recipe, eval_rows, names, tokenizer)
    model = make_model(model_class, recipe, names)
    train(model, recipe, features, collate)
    metrics = score(recipe, places, names, list(predict(model, eval_features, collate)))
    pathlib.Path(OUTPUT.value).write_text(json.dumps(metrics), encoding="utf8")


if __name__ == "__main__":
    app.run(main)
