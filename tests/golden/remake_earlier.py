"""Makes `earlier/`: runs, .keras files and exports that later releases must still read.

    git worktree add /tmp/old 40efbbc
    cp tests/golden/remake_earlier.py /tmp/old/tests/golden/
    cd /tmp/old && python -m tests.golden.remake_earlier /earlier

It runs at that commit, with the code and the test helpers of that time: the files are of value
because no later code has touched them. It writes `runs.tar.xz`, `keras.tar.xz`, `exports.tar.xz`
and `expected.json.xz`, which holds what each of them answered then.
"""

import json
import lzma
import os
import pathlib
import re
import shutil
import sys
import tarfile

os.environ["TF_NUM_INTRAOP_THREADS"] = "1"
os.environ["TF_NUM_INTEROP_THREADS"] = "2"

import keras
import numpy as np
import tensorflow as tf
from bert_tf.modeling.electra import generator_config
from bert_tf.modeling.models import BertJointSpanLabeler
from bert_tf.modeling.splade import BertSplade

import bert_tf
from bert_tf.search.reranker import Reranker
from bert_tf.search.searcher import Searcher
from tests import (
    programs,
    run_multiple_choice_test,
    run_reranker_test,
    run_squad_test,
    run_tagger_test,
)
from tests.conftest import CORPUS
from tests.fine_tune import write_table
from tests.tiny_model import write_tiny_model

WORDS = tuple(
    "the film was good bad fine very but ##ly boat house on water floats sinks burns falls slowly "
    "paris rome oslo lima we went by and saw of king in rain greater where what does eat eats "
    "grass mice honey cat dog mill anna ben stone walks sleeps".split()
)
SHAPE = {"hidden_size": 16, "num_attention_heads": 2, "intermediate_size": 32}
TUNE = {
    "optimizer": "adam_weight_decay",
    "train_batch_size": 8,
    "learning_rate": 5e-3,
    "num_train_steps": 30,
    "log_steps": 10,
    "jit_compile": "false",
    "do_train": "true",
    "do_eval": "true",
    "do_predict": "true",
}
PRETRAIN = {
    "do_train": "true",
    "do_eval": "true",
    "vocab_size": 120,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "max_seq_length": 32,
    "max_predictions_per_seq": 5,
    "train_batch_size": 8,
    "eval_batch_size": 8,
    "max_eval_steps": 2,
    "optimizer": "adamw",
    "learning_rate": 1e-2,
    "num_warmup_steps": 3,
    "num_train_steps": 12,
    "save_checkpoints_steps": 6,
    "keep_checkpoint_max": 5,
    "log_steps": 1,
    "num_workers": 1,
    "jit_compile": "false",
}
ELECTRA = {
    "hidden_act": "gelu_exact",
    "pooler_act": "gelu_exact",
    "embedding_size": 16,
    "objective": "replaced_tokens",
    "generator_hidden_size": 0.5,
    "use_next_sentence": "false",
}
TEXTS = ["the film was very good", "The king of Paris was bad, but the boat floats.", "fine"]
LONG = "the film was good " * 12
PAIRS = [("the film was good", "it was bad"), ("where", "in the house of the king")]
CONTEXTS = [
    "we went by boat and saw Rome in the rain",
    "the house of the king in Oslo, and the water of the river " * 2,
]
QUESTIONS = ["Where?", "where was the king"]
CHOICES = [["floats", "sinks", "burns"], ["the cat eats grass", "the dog eats mice", "rain"]]
MASKED = ["the [MASK] was good", "the [MASK] of the [MASK]"]
DOCUMENTS = ["the cat eats mice", "the dog eats grass", "we went by boat", "rain on the mill"]
SENTENCES = [["Anna", "Stone", "walks", "in", "Oslo"], ["the", "house"]]

PROGRAMS = (
    *("build_index", "build_vocab", "convert_checkpoint", "create_pretraining_data", "doctor"),
    *("embed_texts", "extract_features", "fill_mask", "launch", "mine_negatives", "run_classifier"),
    *("run_multiple_choice", "run_pretraining", "run_reranker", "run_retriever", "run_squad"),
    *("run_tagger", "score_text", "search", "show_examples"),
    *("export.ask", "export.check", "export.demo", "export.saved_model", "export.tflite"),
)
INPUTS = {
    "texts": TEXTS,
    "long": LONG,
    "pairs": PAIRS,
    "questions": QUESTIONS,
    "contexts": CONTEXTS,
    "choices": CHOICES,
    "masked": MASKED,
    "sentences": SENTENCES,
}


def main() -> None:
    """Makes everything in a folder, and packs it there."""
    folder = pathlib.Path(sys.argv[1]).resolve()
    folder.mkdir(parents=True)
    write_tiny_model(folder / "model", *WORDS, num_hidden_layers=2, **SHAPE)
    write_data(folder / "data")
    expected = {"inputs": INPUTS, "losses": {}}
    for name, changes in {"bert": {}, "electra": ELECTRA}.items():
        expected["losses"][name] = pretrain(folder, name, changes)
    for name, program, changes in RUNS:
        files = {"init_checkpoint": folder / "model", "output_dir": folder / "runs" / name}
        values = {
            key: folder / value if isinstance(value, str) and value.startswith("data/") else value
            for key, value in changes.items()
        }
        programs.finish(programs.run(program, **{**TUNE, **files, **values}))
    expected["runs"] = {name: answers_of_run(folder / "runs" / name) for name in ANSWERS}
    expected["keras"] = make_keras_files(folder)
    expected["exports"] = make_exports(folder)
    expected["index"] = make_index(folder)
    expected["flags"] = flags_of_programs()
    for name in ("runs", "keras", "exports"):
        pack(folder, name, ("data", "model", "index") if name == "runs" else ())
    with lzma.open(folder / "expected.json.xz", "wt", encoding="utf8") as file:
        json.dump(expected, file, indent=1)


def write_data(folder: pathlib.Path) -> None:
    """Writes the examples that are learned and predicted."""
    folder.mkdir()
    (folder / "corpus.txt").write_text(CORPUS + "\n", encoding="utf8")
    labels = {"good": "pos", "bad": "neg", "fine": "so-so"}
    rows = []
    for number in range(24):
        word = list(labels)[number % 3]
        rows.append({"text": f"the film was {'very ' * (number % 5)}{word}", "label": labels[word]})
    write_table(folder / "class.csv", rows)
    numbers = [{"text": row["text"], "label": number % 3 * 1.25} for number, row in enumerate(rows)]
    write_table(folder / "number.csv", numbers)
    several = [
        {
            "text": row["text"],
            "label": [row["label"], *(["strong"] if "very" in row["text"] else [])],
        }
        for row in rows
    ]
    write_table(folder / "several.jsonl", several)
    pairs = [{"text": "the film was", "text_b": row["text"], "label": row["label"]} for row in rows]
    write_table(folder / "pairs.tsv", pairs)
    long = [
        {"text": f"{'very ' * (number % 30)}{row['text']}", "label": row["label"]}
        for number, row in enumerate(rows)
    ]
    write_table(folder / "long.csv", long)
    tagged = run_tagger_test.as_conll(run_tagger_test.make_sentences(1, 30))
    (folder / "tagged.txt").write_text(tagged, encoding="utf8")
    for name, version_2 in (("squad.json", False), ("squad2.json", True)):
        content = run_squad_test.make_data(2, 30, version_2=version_2)
        (folder / name).write_text(json.dumps(content), encoding="utf8")
    write_table(folder / "choice.csv", run_multiple_choice_test.make_rows(1, 24))
    write_table(folder / "lists.jsonl", run_reranker_test.make_rows(1, 24))
    triplets = [
        {
            "query": f"what does the {animal} eat",
            "positive": f"the {animal} eats {food}",
            "negative": f"the {animal} was {food}",
        }
        for animal in ("cat", "dog", "king", "mill")
        for food in ("grass", "mice", "honey", "rain")
    ]
    write_table(folder / "triplets.csv", triplets)


def files_of(name: str) -> dict[str, str]:
    """Returns the flags that learn, judge and predict one file."""
    return dict.fromkeys(("train_file", "eval_file", "predict_file"), f"data/{name}")


def squad_files(name: str) -> dict[str, str]:
    return dict.fromkeys(("train_file", "predict_file"), f"data/{name}")


SQUAD = {"max_seq_length": 28, "doc_stride": 10, "max_query_length": 10}
VERSION_2 = {**squad_files("squad2.json"), **SQUAD, "version_2_with_negative": "true"}
RUNS = [
    ("class", "run_classifier", {**files_of("class.csv"), "max_seq_length": 16}),
    (
        "several",
        "run_classifier",
        {**files_of("several.jsonl"), "max_seq_length": 16, "label_kind": "several"},
    ),
    (
        "number",
        "run_classifier",
        {**files_of("number.csv"), "max_seq_length": 16, "label_kind": "number"},
    ),
    (
        "pairs",
        "run_classifier",
        {**files_of("pairs.tsv"), "max_seq_length": 24, "text_b_column": "text_b"},
    ),
    (
        "windows",
        "run_classifier",
        {**files_of("long.csv"), "max_seq_length": 16, "long_texts": "windows"},
    ),
    ("tags", "run_tagger", {**files_of("tagged.txt"), "max_seq_length": 20}),
    ("squad", "run_squad", {**squad_files("squad.json"), **SQUAD}),
    ("squad2", "run_squad", VERSION_2),
    ("joint", "run_squad", {**VERSION_2, "span_head": "joint", "beam_size": 4}),
    ("choice", "run_multiple_choice", {**files_of("choice.csv"), "max_seq_length": 24}),
    (
        "retriever",
        "run_retriever",
        {
            "train_file": "data/triplets.csv",
            "max_seq_length": 16,
            "do_eval": "false",
            "do_predict": "false",
        },
    ),
    ("reranker", "run_reranker", {**files_of("lists.jsonl"), "max_seq_length": 16}),
]


def pretrain(folder: pathlib.Path, name: str, changes: dict) -> list[dict]:
    """Trains 12 steps; keeps the run as if it had been killed after step 8; returns all losses."""
    whole = folder / f"whole_{name}"
    values = {**PRETRAIN, **changes, "input_file": folder / "data/corpus.txt"}
    path = folder / "runs" / name
    programs.finish(programs.run("run_pretraining", **values, output_dir=path))
    shutil.copytree(path, whole)
    lines = (path / "metrics.jsonl").read_text().splitlines(keepends=True)
    (path / "metrics.jsonl").write_text("".join(lines[:8]))
    for old in [*path.glob("model.ckpt-12*"), path / "eval_results.txt", path / "curves.png"]:
        old.unlink(missing_ok=True)
    for log in ("eval_metrics.jsonl", "best_checkpoint.json"):
        (path / log).unlink(missing_ok=True)
    names = ("model_checkpoint_path", "all_model_checkpoint_paths")
    (path / "checkpoint").write_text("".join(f'{name}: "model.ckpt-6"\n' for name in names))
    return [json.loads(line) for line in lines]


def answers_of(model, kind: str) -> object:
    """Returns the answers of what `bert_tf.load` returns."""
    if kind == "class":
        return {"probabilities": model.probabilities(TEXTS), "classify": model.classify(TEXTS)}
    if kind == "windows":
        texts = [*TEXTS, LONG]
        return {"probabilities": model.probabilities(texts), "classify": model.classify(texts)}
    if kind == "pairs":
        return {"probabilities": model.probabilities(PAIRS), "classify": model.classify(PAIRS)}
    if kind == "number":
        return {"score": model.score(TEXTS)}
    if kind == "tags":
        return {
            "tag": model.tag(TEXTS),
            "words": model.tag(SENTENCES),
            "find_entities": model.find_entities(TEXTS),
        }
    if kind == "squad":
        return {"answer": model.answer(QUESTIONS, CONTEXTS)}
    if kind == "choice":
        return {"choose": model.choose(TEXTS[:2], CHOICES)}
    if kind == "embed":
        return {"embed": model.embed(TEXTS).tolist()}
    if kind == "masks":
        return {"fill_mask": model.fill_mask(MASKED, top_k=3)}
    raise ValueError(kind)


ANSWERS = {
    "bert": "masks",
    "electra": "embed",
    "class": "class",
    "several": "class",
    "number": "number",
    "pairs": "pairs",
    "windows": "windows",
    "tags": "tags",
    "squad": "squad",
    "squad2": "squad",
    "joint": "squad",
    "choice": "choice",
    "retriever": "embed",
    "reranker": "rerank",
}


def answers_of_run(path: pathlib.Path) -> object:
    """Returns what a run directory answers."""
    kind = ANSWERS[path.name]
    if kind == "rerank":
        return rerank(path)
    return answers_of(bert_tf.load(path), kind)


def rerank(path: pathlib.Path) -> object:
    model = Reranker.from_pretrained(str(path))
    order = model.rank(TEXTS[0], CONTEXTS + TEXTS)
    return {"scores": model.scores(PAIRS).tolist(), "rank": np.asarray(order).tolist()}


def make_keras_files(folder: pathlib.Path) -> dict:
    """Saves a model of each class as one .keras file; returns their outputs."""
    (folder / "keras").mkdir()
    classes = {
        "class": bert_tf.BertClassifier,
        "several": bert_tf.BertClassifier,
        "number": bert_tf.BertClassifier,
        "windows": bert_tf.BertClassifier,
        "tags": bert_tf.BertTokenClassifier,
        "squad": bert_tf.BertSpanLabeler,
        "joint": BertJointSpanLabeler,
        "choice": bert_tf.BertMultipleChoice,
        "retriever": bert_tf.BertEmbedder,
        "reranker": bert_tf.BertClassifier,
        "bert": bert_tf.BertPretrainer,
        "discriminator": bert_tf.ElectraDiscriminator,
        "splade": BertSplade,
    }
    runs = {"discriminator": "electra", "splade": "bert"}
    found = {}
    for name, model_class in classes.items():
        model = model_class.from_pretrained(folder / "runs" / runs.get(name, name))
        model.save(folder / "keras" / f"{name}.keras")
        found[name] = answers_of_model(model, name)
    config = bert_tf.ModelConfig.read(folder / "runs/electra/bert_config.json")
    keras.utils.set_random_seed(1)
    model = bert_tf.ElectraPretrainer(config, generator_config(config, 0.5))
    model.save(folder / "keras/electra.keras")
    found["electra"] = answers_of_model(model, "electra")
    # A model in training: compiled, with the state of its optimizer.
    model = bert_tf.BertClassifier.from_pretrained(folder / "runs/class")
    model.compile(optimizer=bert_tf.AdamWeightDecay(1e-3))
    texts, labels = TEXTS * 4, ["pos", "neg", "so-so"] * 4
    model.fit(texts, labels, batch_size=4, epochs=1, verbose=0, shuffle=False)
    model.save(folder / "keras/in_training.keras")
    found["in_training"] = answers_of_model(model, "class")
    # The folder that is written in place of a file.
    model = bert_tf.BertTokenClassifier.from_pretrained(folder / "runs/tags")
    model.save_pretrained(folder / "keras/saved_tags")
    found["saved_tags"] = answers_of_model(model, "tags")
    return found


def answers_of_model(model, name: str) -> dict:
    """Returns the answers of a Keras model's own methods."""
    if name in ("class", "several"):
        return {"probabilities": model.probabilities(TEXTS)}
    if name == "windows":
        return {"probabilities": model.probabilities([*TEXTS, LONG])}
    if name == "number":
        return {"score": np.asarray(model.score(TEXTS)).tolist()}
    if name == "reranker":
        return {"score": np.asarray(model.score(PAIRS)).tolist()}
    if name == "tags":
        return {"tag": model.tag(TEXTS), "find_entities": model.find_entities(TEXTS)}
    if name in ("squad", "joint"):
        return {"answer": model.answer(QUESTIONS, CONTEXTS)}
    if name == "choice":
        return {"choose": model.choose(TEXTS[:2], CHOICES)}
    if name == "retriever":
        return {"encode": model.encode(TEXTS).tolist()}
    if name == "bert":
        return {"fill_mask": model.fill_mask(MASKED, top_k=3)}
    outputs = model(BATCH)
    flat = outputs if isinstance(outputs, dict) else {"output": outputs}
    return {
        f"call/{key}": np.asarray(value).tolist()
        for key, value in sorted(flat.items())
        if np.asarray(value).size < 3000
    }


BATCH = {
    "input_word_ids": np.array([[2, 5, 40, 41, 3, 0, 0, 0], [2, 60, 61, 62, 63, 64, 65, 3]]),
    "input_mask": np.array([[1, 1, 1, 1, 1, 0, 0, 0], [1] * 8]),
    "input_type_ids": np.zeros([2, 8], int),
    # Of pre-training alone.
    "masked_lm_positions": np.array([[1, 2], [3, 4]]),
    "masked_lm_ids": np.array([[7, 40], [61, 9]]),
    "masked_lm_weights": np.ones([2, 2], "float32"),
}


def make_exports(folder: pathlib.Path) -> dict:
    """Exports models as SavedModels and LiteRT files; returns their answers."""
    found: dict = {"saved_model": {}, "signature": {}, "lite": {}}
    kinds = {
        "class": "class", "several": "class", "number": "number", "pairs": "pairs", "tags": "tags",
        "squad": "squad", "joint": "squad", "retriever": "embed", "reranker": "rerank",
        "bert": "masks",
    }  # fmt: skip
    for name, kind in kinds.items():
        output = folder / "exports" / name
        options = {"kind": "reranker"} if kind == "rerank" else {}
        options |= {"kind": "fill_mask", "top_k": 3} if kind == "masks" else {}
        source = folder / "runs" / name
        exported = programs.run(
            "export.saved_model", model_dir=source, output_dir=output, **options
        )
        programs.finish(exported)
        if name != "class":  # One with ids is enough.
            shutil.rmtree(f"{output}_ids")
        if kind != "rerank":
            found["saved_model"][name] = answers_of(bert_tf.load(output), kind)
        found["signature"][name] = signature(output / "1", kind)
        if kind in ("rerank", "masks") or name == "joint":  # LiteRT has none of them.
            continue
        file = folder / "exports" / f"{name}.tflite"
        lite = {"quantize": "none", "no_gate": "true"}
        programs.finish(programs.run("export.tflite", model_dir=source, output_file=file, **lite))
        found["lite"][name] = answers_of(bert_tf.load(file), kind)
    return found


def make_index(folder: pathlib.Path) -> list:
    """Indexes a few documents; returns what a search finds by their vectors and by their words."""
    rows = [{"id": f"d{number}", "text": text} for number, text in enumerate(DOCUMENTS)]
    write_table(folder / "data/documents.jsonl", rows)
    values = {"input_file": folder / "data/documents.jsonl", "output_dir": folder / "index"}
    model = folder / "runs/retriever"
    programs.finish(programs.run("build_index", init_checkpoint=model, **values))
    query = "what does the cat eat"
    found = []
    for mode in ("vectors", "words", "hybrid"):
        searcher = Searcher(str(folder / "index"), mode=mode)
        hits = searcher.search([query], 3)[0]
        places, scores = hits.rows.tolist(), hits.scores.tolist()
        found.append({"mode": mode, "query": query, "rows": places, "scores": scores})
    return found


def flags_of_programs() -> dict[str, list[str]]:
    """Returns the names of each program's flags, without those that absl gives to all."""
    found = {}
    for program in PROGRAMS:
        printed = programs.run(program, "--helpfull").printed
        found[program] = set(re.findall(r"^\s+(?:-\w,)?--(?:\[no\])?(\w+):", printed, re.M))
    common = set.intersection(*found.values())
    return {program: sorted(names - common) for program, names in found.items()}


def signature(path: pathlib.Path, kind: str) -> dict:
    """Returns the outputs of serving_default, as a server computes them."""
    function = tf.saved_model.load(str(path)).signatures["serving_default"]
    names = list(function.structured_input_signature[1])
    columns = {"squad": (QUESTIONS, CONTEXTS), "masks": (MASKED,)}.get(kind)
    if columns is None:
        columns = tuple(zip(*PAIRS, strict=True)) if kind == "pairs" else (TEXTS,)
    if kind == "rerank":
        given = {"query": tf.constant(TEXTS[:1]), "documents": tf.constant([CONTEXTS + TEXTS])}
    else:
        order = {"question": 0, "context": 1, "text": 0, "text_b": 1}
        given = {name: tf.constant(columns[order[name]]) for name in names}
    found = {}
    for name, value in sorted(function(**given).items()):
        array = value.numpy()
        if array.dtype == object:
            array = np.vectorize(lambda one: one.decode("utf8"), otypes=[object])(array)
        found[name] = array.tolist()
    return found


def pack(folder: pathlib.Path, name: str, more: tuple[str, ...]) -> None:
    """Writes NAME.tar.xz, without owners, dates and what no one reads."""

    def plain(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
        if entry.name.endswith((".png", ".lock", "/train")) or "bert_tf_cache" in entry.name:
            return None
        entry.uid, entry.gid, entry.uname, entry.gname, entry.mtime = 0, 0, "", "", 0
        return entry

    with tarfile.open(folder / f"{name}.tar.xz", "w:xz", preset=9) as archive:
        for part in (name, *more):
            archive.add(folder / part, part, filter=plain)


if __name__ == "__main__":
    main()
