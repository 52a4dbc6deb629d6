"""Ten everyday things with bert_tf, keras-hub and transformers: lines, seconds, wrong input.

    python -m benchmarks.first_ten_minutes --model=all-MiniLM-L6-v2 --mlm_model=bert-tiny \\
        --data=data --torch_python=venv/bin/python --output_dir=/tmp/ten

Each thing is a piece of code as its library's own guides write it. It runs in a process of its own;
counted are its lines, and the seconds from its first import to its end. Then it gets wrong input,
and the first line of what happens is kept. --torch_python is that of an environment with torch,
transformers, accelerate and datasets; keras-hub comes with bert_tf. What has no code there is left
to its user by the library: a head, a loop or a way to read answers of one's own.
"""

# ruff: noqa: E501  (code of others, whose lines are counted after it was formatted)

import json
import os
import pathlib
import subprocess
import sys
import time
from typing import Any

from absl import app, flags

from benchmarks import timing

MODEL = flags.DEFINE_string("model", None, "A BERT as Hugging Face stores it.", required=True)
MLM_MODEL = flags.DEFINE_string("mlm_model", None, "The same with its MLM head.", required=True)
DATA = flags.DEFINE_string("data", "data", "Folder with glue, ner and squad.")
OUTPUT_DIR = flags.DEFINE_string("output_dir", None, "Results and files.", required=True)
TORCH_PYTHON = flags.DEFINE_string("torch_python", sys.executable, "Python of the PyTorch peers.")
LIBRARIES = flags.DEFINE_list("libraries", ["bert_tf", "keras_hub", "transformers"], "Which.")
THINGS = flags.DEFINE_multi_string("things", [], "Which of the ten; empty: all.")

# What every process has before the clock starts: rows of real data, as lists.
PRELUDE = """
import json, os, sys, time
os.environ.update(TF_CPP_MIN_LOG_LEVEL="3", KERAS_BACKEND="tensorflow", TOKENIZERS_PARALLELISM="0")
MODEL, PRESET, MLM, MLM_PRESET, DATA, FOLDER = sys.argv[1:7]

def table(path, start=0):
    return [line.rstrip("\\n").split("\\t") for line in open(path, encoding="utf8")][start:]

def sst(split, count):
    rows = table(f"{DATA}/glue/SST-2/{split}.tsv", 1)[:count]
    return [row[0] for row in rows], [("bad", "good")[int(row[1])] for row in rows]

texts, labels = sst("train", 2000)
dev_texts, dev_labels = sst("dev", 872)
rte = table(f"{DATA}/glue/RTE/train.tsv", 1)[:300]
sts = table(f"{DATA}/glue/STS-B/sts-train.csv")[:500]
sentences = open(f"{DATA}/ner/wnut17/wnut17train.conll", encoding="utf8").read().split("\\n\\n")[:500]
pairs = [[line.split("\\t") for line in s.strip().split("\\n")] for s in sentences if s.strip()]
pairs = [s for s in pairs if all(len(p) == 2 and p[1] for p in s)]
words, tags = [[p[0] for p in s] for s in pairs], [[p[1] for p in s] for s in pairs]
tag_names = sorted({tag for row in tags for tag in row}, key=lambda tag: (tag != "O", tag))
squad = json.load(open(f"{DATA}/squad/v1.1-train36.json", encoding="utf8"))["data"]
asked = [(q, p["context"]) for a in squad for p in a["paragraphs"] for q in p["qas"]][:60]
questions, contexts = [q["question"] for q, _ in asked], [c for _, c in asked]
answers = [q["answers"][0] for q, _ in asked]
masked = ["The capital of France is [MASK]."]
"""

OURS = {
    "import": ("import bert_tf", "bert_tf.BertClasifier"),
    "label names for texts, 2,000 rows": (
        """
import bert_tf
model = bert_tf.BertClassifier.from_pretrained(MODEL, labels=["bad", "good"])
model.fit(texts, labels, validation_data=(dev_texts, dev_labels), epochs=1)
found = model.classify(dev_texts)
""",
        'model.fit(texts, ["god"] + labels[1:])',
    ),
    "pairs, 300 rows": (
        """
import bert_tf
model = bert_tf.BertClassifier.from_pretrained(MODEL, labels=["entailment", "not_entailment"])
model.fit(([r[1] for r in rte], [r[2] for r in rte]), [r[3] for r in rte], epochs=1)
""",
        "model.fit(([r[1] for r in rte], [r[2] for r in rte[1:]]), [r[3] for r in rte])",
    ),
    "numbers, 500 rows": (
        """
import bert_tf
model = bert_tf.BertClassifier.from_pretrained(MODEL, num_labels=1, new_head=True)
model.fit(([r[5] for r in sts], [r[6] for r in sts]), [float(r[4]) for r in sts], epochs=1)
scores = model.score((["A man sings."], ["A person sings."]))
""",
        'model.fit((["a"], ["b"]), [float("nan")])',
    ),
    "tags of words, 500 sentences": (
        """
import bert_tf
model = bert_tf.BertTokenClassifier.from_pretrained(MODEL, labels=tag_names)
model.fit(words, tags, epochs=1)
found = model.find_entities(["Ada Lovelace left Oslo."])
""",
        "model.fit(words, [tags[0][1:]] + tags[1:])",
    ),
    "answers, 60 questions": (
        """
import bert_tf
model = bert_tf.BertSpanLabeler.from_pretrained(MODEL, new_head=True)
model.fit((questions, contexts), answers, batch_size=8, epochs=1)
found = model.answer(questions[:5], contexts[:5])
""",
        'model.fit((["Who?"], ["Ada left."]), ["Grace"])',
    ),
    "a masked word": (
        """
import bert_tf
found = bert_tf.BertPretrainer.from_pretrained(MLM).fill_mask(masked)
""",
        'bert_tf.BertPretrainer.from_pretrained(MLM).fill_mask(["No mask."])',
    ),
    "embeddings of 872 texts": (
        """
import bert_tf
vectors = bert_tf.BertEmbedder.from_pretrained(MODEL, normalize=True).encode(dev_texts)
""",
        'bert_tf.BertEmbedder.from_pretrained(MODEL).encode("one text")',
    ),
    "save, load, predict 872 texts": (
        """
import bert_tf, keras
model = bert_tf.BertClassifier.from_pretrained(MODEL, labels=["bad", "good"])
model.save(f"{FOLDER}/mine.keras")
found = keras.models.load_model(f"{FOLDER}/mine.keras").classify(dev_texts)
""",
        "model.classify([None])",
    ),
    "an optimizer of one's own, 300 rows": (
        """
import bert_tf, keras
model = bert_tf.BertClassifier.from_pretrained(MODEL, labels=["bad", "good"])
model.compile(keras.optimizers.Adam(1e-4), metrics=["accuracy"])
model.fit(texts[:300], labels[:300])
""",
        "model.fit([[101, 2023, 102]], [0])",
    ),
}
HUB_CLASSIFIER = """
import keras, keras_hub, numpy as np
preprocessor = keras_hub.models.BertTextClassifierPreprocessor.from_preset(PRESET, sequence_length=64)
model = keras_hub.models.BertTextClassifier.from_preset(PRESET, num_classes={classes}, preprocessor=preprocessor)
"""
KERAS_HUB = {
    "import": ("import keras_hub", "keras_hub.models.BertClasifier"),
    "label names for texts, 2,000 rows": (
        HUB_CLASSIFIER.format(classes=2)
        + """
names = ["bad", "good"]
ids, dev_ids = ([names.index(label) for label in column] for column in (labels, dev_labels))
model.fit(np.array(texts), np.array(ids), batch_size=32, epochs=1)
found = [names[i] for i in model.predict(np.array(dev_texts)).argmax(-1)]
print("accuracy", np.mean([a == b for a, b in zip(found, dev_labels)]))
""",
        "model.fit(texts, ['god'] + labels[1:])",
    ),
    "pairs, 300 rows": (
        HUB_CLASSIFIER.format(classes=2)
        + """
ids = np.array([["entailment", "not_entailment"].index(r[3]) for r in rte])
model.fit((np.array([r[1] for r in rte]), np.array([r[2] for r in rte])), ids, batch_size=32)
""",
        "model.fit((np.array([r[1] for r in rte]), np.array([r[2] for r in rte[1:]])), ids)",
    ),
    "numbers, 500 rows": (
        HUB_CLASSIFIER.format(classes=1)
        + """
model.compile(keras.optimizers.Adam(5e-5), "mse")
x = (np.array([r[5] for r in sts]), np.array([r[6] for r in sts]))
model.fit(x, np.array([float(r[4]) for r in sts]), batch_size=32)
scores = model.predict((np.array(["A man sings."]), np.array(["A person sings."])))[:, 0]
""",
        'model.fit((np.array(["a"]), np.array(["b"])), np.array([float("nan")]))',
    ),
    "a masked word": (
        """
import keras_hub, numpy as np
preprocessor = keras_hub.models.BertMaskedLMPreprocessor.from_preset(MLM_PRESET, mask_selection_rate=0.0)
model = keras_hub.models.BertMaskedLM.from_preset(MLM_PRESET, preprocessor=None)
tokenizer = preprocessor.tokenizer
before, after = (list(map(int, tokenizer(part))) for part in masked[0].split("[MASK]"))
ids = [tokenizer.cls_token_id, *before, tokenizer.mask_token_id, *after, tokenizer.sep_token_id]
inputs = {"token_ids": np.array([ids]), "segment_ids": np.zeros((1, len(ids)), int)}
inputs |= {"padding_mask": np.ones((1, len(ids)), int), "mask_positions": np.array([[1 + len(before)]])}
scores = model.predict(inputs)[0, 0]
found = [tokenizer.id_to_token(int(i)) for i in scores.argsort()[::-1][:5]]
""",
        "model.predict(['No mask.'])",
    ),
    "embeddings of 872 texts": (
        """
import keras_hub, numpy as np
preprocessor = keras_hub.models.BertTextClassifierPreprocessor.from_preset(PRESET, sequence_length=64)
backbone = keras_hub.models.BertBackbone.from_preset(PRESET)
inputs = preprocessor(np.array(dev_texts))
sequence = backbone.predict(inputs)["sequence_output"]
mask = np.array(inputs["padding_mask"])[:, :, None]
vectors = (sequence * mask).sum(1) / mask.sum(1)
vectors /= np.linalg.norm(vectors, axis=-1, keepdims=True)
""",
        "backbone.predict(preprocessor('one text'))",
    ),
    "save, load, predict 872 texts": (
        HUB_CLASSIFIER.format(classes=2)
        + """
model.save(f"{FOLDER}/hub.keras")
scores = keras.models.load_model(f"{FOLDER}/hub.keras").predict(np.array(dev_texts))
found = [["bad", "good"][i] for i in scores.argmax(-1)]
""",
        "model.predict([None])",
    ),
    "an optimizer of one's own, 300 rows": (
        HUB_CLASSIFIER.format(classes=2)
        + """
loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
model.compile(keras.optimizers.Adam(1e-4), loss, metrics=["accuracy"])
model.fit(np.array(texts[:300]), np.array([["bad", "good"].index(y) for y in labels[:300]]))
""",
        "model.fit(np.array([[101, 2023, 102]]), np.array([0]))",
    ),
}
TORCH_START = """
from datasets import Dataset
from transformers import AutoTokenizer, {auto}, DataCollatorWithPadding, Trainer, TrainingArguments
tokenizer = AutoTokenizer.from_pretrained(MODEL)
"""
TORCH_TRAIN = """
options = TrainingArguments(FOLDER, num_train_epochs=1, per_device_train_batch_size={batch}, learning_rate=5e-5, report_to="none")
trainer = Trainer(model, options, train_dataset=data, data_collator={collator})
trainer.train()
"""
PADDING = TORCH_TRAIN.format(batch=32, collator="DataCollatorWithPadding(tokenizer)")
AUTO = "AutoModelForSequenceClassification"
TRANSFORMERS = {
    "import": ("import transformers", "transformers.AutoModelForSequenceClasification"),
    "label names for texts, 2,000 rows": (
        TORCH_START.format(auto=AUTO + ", pipeline")
        + """
names = ["bad", "good"]
model = AutoModelForSequenceClassification.from_pretrained(MODEL, num_labels=2, id2label=dict(enumerate(names)))
data = Dataset.from_dict({"text": texts, "label": [names.index(label) for label in labels]})
data = data.map(lambda row: tokenizer(row["text"], truncation=True, max_length=128))
"""
        + PADDING
        + """
found = pipeline("text-classification", model=model, tokenizer=tokenizer)(dev_texts)
print("accuracy", sum(a["label"] == b for a, b in zip(found, dev_labels)) / len(found))
""",
        """
data = Dataset.from_dict({"text": texts, "label": ["god"] + labels[1:]})
data = data.map(lambda row: tokenizer(row["text"], truncation=True, max_length=128))
Trainer(model, options, train_dataset=data, data_collator=DataCollatorWithPadding(tokenizer)).train()
""",
    ),
    "pairs, 300 rows": (
        TORCH_START.format(auto=AUTO)
        + """
names = ["entailment", "not_entailment"]
model = AutoModelForSequenceClassification.from_pretrained(MODEL, num_labels=2, id2label=dict(enumerate(names)))
data = Dataset.from_dict({"a": [r[1] for r in rte], "b": [r[2] for r in rte], "label": [names.index(r[3]) for r in rte]})
data = data.map(lambda row: tokenizer(row["a"], row["b"], truncation=True, max_length=128))
"""
        + PADDING,
        "Dataset.from_dict({'a': [r[1] for r in rte], 'b': [r[2] for r in rte[1:]]})",
    ),
    "numbers, 500 rows": (
        TORCH_START.format(auto=AUTO)
        + """
model = AutoModelForSequenceClassification.from_pretrained(MODEL, num_labels=1)
data = Dataset.from_dict({"a": [r[5] for r in sts], "b": [r[6] for r in sts], "label": [float(r[4]) for r in sts]})
data = data.map(lambda row: tokenizer(row["a"], row["b"], truncation=True, max_length=128))
"""
        + PADDING
        + """
scores = model(**tokenizer(["A man sings."], ["A person sings."], return_tensors="pt")).logits[:, 0]
""",
        """
data = Dataset.from_dict({"a": ["a"], "b": ["b"], "label": [float("nan")]})
data = data.map(lambda row: tokenizer(row["a"], row["b"]))
Trainer(model, options, train_dataset=data, data_collator=DataCollatorWithPadding(tokenizer)).train()
""",
    ),
    "tags of words, 500 sentences": (
        """
from datasets import Dataset
from transformers import AutoTokenizer, AutoModelForTokenClassification, DataCollatorForTokenClassification, Trainer, TrainingArguments, pipeline
tokenizer = AutoTokenizer.from_pretrained(MODEL)
model = AutoModelForTokenClassification.from_pretrained(MODEL, num_labels=len(tag_names), id2label=dict(enumerate(tag_names)))
def encode(row):
    made = tokenizer(row["words"], is_split_into_words=True, truncation=True, max_length=128)
    ids, before = [], None
    for word in made.word_ids():
        ids.append(-100 if word is None or word == before else tag_names.index(row["tags"][word]))
        before = word
    return {**made, "labels": ids}
data = Dataset.from_dict({"words": words, "tags": tags}).map(encode)
"""
        + TORCH_TRAIN.format(batch=32, collator="DataCollatorForTokenClassification(tokenizer)")
        + """
found = pipeline("token-classification", model=model, tokenizer=tokenizer, aggregation_strategy="first")(["Ada Lovelace left Oslo."])
""",
        'Dataset.from_dict({"words": words, "tags": [tags[0][1:]] + tags[1:]}).map(encode)',
    ),
    "answers, 60 questions": (
        """
from datasets import Dataset
from transformers import AutoTokenizer, AutoModelForQuestionAnswering, DefaultDataCollator, Trainer, TrainingArguments
import torch
tokenizer = AutoTokenizer.from_pretrained(MODEL)
model = AutoModelForQuestionAnswering.from_pretrained(MODEL)
def encode(rows):
    made = tokenizer(rows["q"], rows["c"], truncation="only_second", max_length=384, stride=128, return_overflowing_tokens=True, return_offsets_mapping=True, padding="max_length")
    starts, ends = [], []
    for i, owner in enumerate(made.pop("overflow_to_sample_mapping")):
        answer, kinds = rows["answer"][owner], made.sequence_ids(i)
        first, last = answer["answer_start"], answer["answer_start"] + len(answer["text"])
        inside = [t for t, (a, b) in enumerate(made["offset_mapping"][i]) if kinds[t] == 1 and a < last and b > first]
        context = [made["offset_mapping"][i][t] for t in range(len(kinds)) if kinds[t] == 1]
        whole = context[0][0] <= first and context[-1][1] >= last and inside
        starts.append(inside[0] if whole else 0)
        ends.append(inside[-1] if whole else 0)
    made.pop("offset_mapping")
    return {**made, "start_positions": starts, "end_positions": ends}
data = Dataset.from_dict({"q": questions, "c": contexts, "answer": answers})
data = data.map(encode, batched=True, remove_columns=data.column_names)
"""
        + TORCH_TRAIN.format(batch=8, collator="DefaultDataCollator()")
        + """
found = []
for question, context in zip(questions[:5], contexts[:5]):
    made = tokenizer(question, context, truncation="only_second", max_length=384, return_offsets_mapping=True, return_tensors="pt")
    places = made.pop("offset_mapping")[0]
    with torch.no_grad():
        outputs = model(**made)
    start, end = int(outputs.start_logits.argmax()), int(outputs.end_logits.argmax())
    found.append(context[places[start][0] : places[end][1]])
""",
        """
wrong = {"q": ["Who?"], "c": ["Ada left."], "answer": [{"text": "Grace", "answer_start": 4}]}
Dataset.from_dict(wrong).map(encode, batched=True, remove_columns=["q", "c", "answer"])
""",
    ),
    "a masked word": (
        """
from transformers import pipeline
found = pipeline("fill-mask", MLM)(masked)
""",
        'pipeline("fill-mask", MLM)(["No mask."])',
    ),
    "embeddings of 872 texts": (
        """
from sentence_transformers import SentenceTransformer, models
word = models.Transformer(MODEL, max_seq_length=128)
model = SentenceTransformer(modules=[word, models.Pooling(word.get_embedding_dimension(), "mean")])
vectors = model.encode(dev_texts, normalize_embeddings=True)
""",
        "model.encode([None])",
    ),
    "save, load, predict 872 texts": (
        """
from transformers import AutoTokenizer, AutoModelForSequenceClassification, pipeline
tokenizer = AutoTokenizer.from_pretrained(MODEL)
model = AutoModelForSequenceClassification.from_pretrained(MODEL, id2label={0: "bad", 1: "good"})
model.save_pretrained(f"{FOLDER}/mine")
tokenizer.save_pretrained(f"{FOLDER}/mine")
found = pipeline("text-classification", f"{FOLDER}/mine")(dev_texts)
""",
        'pipeline("text-classification", f"{FOLDER}/mine")([None])',
    ),
    "an optimizer of one's own, 300 rows": (
        TORCH_START.format(auto=AUTO)
        + """
import torch
model = AutoModelForSequenceClassification.from_pretrained(MODEL, num_labels=2)
data = Dataset.from_dict({"text": texts[:300], "label": [["bad", "good"].index(y) for y in labels[:300]]})
data = data.map(lambda row: tokenizer(row["text"], truncation=True, max_length=128))
options = TrainingArguments(FOLDER, num_train_epochs=1, per_device_train_batch_size=32, report_to="none")
optimizer = torch.optim.Adam(model.parameters(), 1e-4)
Trainer(model, options, train_dataset=data, data_collator=DataCollatorWithPadding(tokenizer), optimizers=(optimizer, None)).train()
""",
        "model([[101, 2023, 102]])",
    ),
}
CODE = {"bert_tf": OURS, "keras_hub": KERAS_HUB, "transformers": TRANSFORMERS}

AROUND = """
start = time.perf_counter()
{code}
result = {{"seconds": time.perf_counter() - start}}
try:
    start = time.perf_counter()
    exec(WRONG)
    result["wrong"] = "nothing: it goes on"
except BaseException as error:
    text = str(error).strip().split("\\n")
    result["wrong"] = f"{{type(error).__name__}}: {{text[0]}}"
result["wrong_seconds"] = time.perf_counter() - start
json.dump(result, open(sys.argv[7], "w"))
"""


def count_lines(code: str) -> int:
    """Returns the lines as a formatter writes them: at most 100 characters each."""
    command = [sys.executable, "-m", "ruff", "format", "--line-length=100", "-"]
    made = subprocess.run(command, input=code, capture_output=True, text=True, check=True).stdout
    return len([line for line in made.split("\n") if line.strip()])


def run(library: str, thing: str) -> dict[str, Any]:
    """Does one thing with one library in a process of its own."""
    folder = pathlib.Path(OUTPUT_DIR.value, f"{library}-{thing.replace(' ', '_')[:20]}")
    folder.mkdir(parents=True, exist_ok=True)
    code, wrong = CODE[library][thing]
    script, result = folder / "one_thing.py", folder / "result.json"
    around = AROUND.format(code=code.strip())
    script.write_text(f"{PRELUDE}\nWRONG = {wrong.strip()!r}\n{around}", encoding="utf8")
    python = TORCH_PYTHON.value if library == "transformers" else sys.executable
    presets = [presets_of(MODEL.value), presets_of(MLM_MODEL.value)]
    paths = [MODEL.value, presets[0], MLM_MODEL.value, presets[1], DATA.value, folder, result]
    used = timing.measure([python, script, *paths], folder / "log.txt")
    found = json.loads(result.read_text())
    return {"lines": count_lines(code), "processor_seconds": used.processor_seconds, **found}


def presets_of(model: str) -> pathlib.Path:
    """Returns the same weights as a preset of keras-hub."""
    path = pathlib.Path(OUTPUT_DIR.value, f"preset-{pathlib.Path(model).name}")
    if not path.exists():
        command = [sys.executable, "-m", "bert_tf.convert_checkpoint", f"--input={model}"]
        timing.measure([*command, "--to=keras_hub", f"--output={path}"])
    return path


def main(_: list[str]) -> None:
    folder = pathlib.Path(OUTPUT_DIR.value)
    folder.mkdir(parents=True, exist_ok=True)
    os.environ["PYTHONPATH"] = str(pathlib.Path(__file__).resolve().parents[1])
    kept = folder / "results.json"
    results = json.loads(kept.read_text()) if kept.exists() else {}
    for thing in THINGS.value or OURS:
        for library in LIBRARIES.value:
            key = f"{library}|{thing}"
            if thing in CODE[library] and key not in results:
                start = time.time()
                results[key] = run(library, thing)
                print(f"{key}: {results[key]} ({time.time() - start:.0f} s)", flush=True)
                kept.write_text(json.dumps(results, indent=1))
    rows = []
    for thing in OURS:
        cells = [thing]
        for library in CODE:
            found = results.get(f"{library}|{thing}")
            cells.append(f"{found['lines']}, {found['seconds']:.1f}" if found else "-")
        rows.append(cells)
    timing.print_table(["thing", *CODE], rows)
    for thing in OURS:
        for library in CODE:
            if found := results.get(f"{library}|{thing}"):
                print(f"{thing} | {library} | {found['wrong'][:160]}")


if __name__ == "__main__":
    app.run(main)
