"""Writes a model's README.md for the Hugging Face Hub: purpose, data, scores and loading.

Its header is YAML for the hub's search: task, metrics, and the results as a model index, formatted
by huggingface_hub's own classes. For a run directory it reports run.flags and eval_results.txt; of
files it gives only the names, because paths are private.

Reference: https://huggingface.co/docs/hub/model-cards
"""

import math
import pathlib
import re
from typing import Any, NamedTuple

from bert_tf.checkpoints.checkpoint import Checkpoint
from bert_tf.checkpoints.embedding import FILE_NAME, EmbeddingConfig
from bert_tf.checkpoints.families.family import Family
from bert_tf.checkpoints.google import google_refusal
from bert_tf.checkpoints.hub import record_of
from bert_tf.checkpoints.huggingface import family_and_heads
from bert_tf.checkpoints.sentence_modules import is_sentence_transformers
from bert_tf.checkpoints.sentence_transformers import encoder_alone, is_modular
from bert_tf.config.config_flags import read_flagfile
from bert_tf.inference.kinds import KINDS
from bert_tf.inference.serving_models import find_kind, recorded_options
from bert_tf.system.bounded_files import read_text
from bert_tf.tasks.classification.glue import glue_task
from bert_tf.text.kinds import TOKENIZER_TITLES, kind_of
from bert_tf.text.vocab import Vocab

CARD_NAME = "README.md"
RESULTS_NAME = "eval_results.txt"


class _Purpose(NamedTuple):
    """The purpose of a kind of model.

    Attributes:
      does: the verb phrase after "A BERT that ...".
      pipeline: the hub's name of the task, and that of transformers' pipeline.
      example: a call of `bert_tf.load(...)`.
      inputs: the inputs of the pipeline, and its further arguments.
      keras_class: the class of keras-hub; "" if it has no such head.
    """

    does: str
    pipeline: str
    example: str
    inputs: str
    options: str = ""
    keras_class: str = ""


TEXT = '"A fine film."'
PAIR = '("A man plays.", "Somebody plays.")'
PAIR_INPUTS = '{"text": "A man plays.", "text_pair": "Somebody plays."}'
_CLASSES = "text-classification"
PURPOSES = {
    "classifier": _Purpose(
        *("classifies texts", _CLASSES, "classify([{}])", "{}"), keras_class="BertTextClassifier"
    ),
    "multi_label": _Purpose(
        *("gives texts any number of labels", _CLASSES, "classify([{}])", "{}, top_k=None"),
        keras_class="BertTextClassifier",
    ),
    "regression": _Purpose(
        *("gives texts a number", _CLASSES, "score([{}])", "{}"),
        options=', function_to_apply="none"',
        keras_class="BertTextClassifier",
    ),
    "tagger": _Purpose(
        *("tags words", "token-classification"),
        *('find_entities(["Ada Lovelace lived in London."])', '"Ada Lovelace lived in London."'),
        options=', aggregation_strategy="first"',
    ),
    "question_answering": _Purpose(
        *("answers questions with parts of a text", "question-answering"),
        'answer(["Where did Ada live?"], ["Ada Lovelace lived in London."])',
        "",
    ),
    "fill_mask": _Purpose(
        *("fills in masked words", "fill-mask", 'fill_mask(["The [MASK] sat down."])'),
        *('"The {mask} sat down."',),
        keras_class="BertMaskedLM",
    ),
    "embeddings": _Purpose(
        *("makes vectors of texts", "feature-extraction", "encode([{}])", "{}"),
    ),
}
QUESTION_CODE = """\
from transformers import AutoModelForQuestionAnswering, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("{name}")
model = AutoModelForQuestionAnswering.from_pretrained("{name}")
inputs = tokenizer("Where did Ada live?", "Ada Lovelace lived in London.", return_tensors="pt")
scores = model(**inputs)
first, last = scores.start_logits.argmax(), scores.end_logits.argmax()
print(tokenizer.decode(inputs.input_ids[0, first : last + 1]))"""
SENTENCE_CODE = """\
from sentence_transformers import SentenceTransformer

print(SentenceTransformer("{name}").encode([{text}]))"""
CROSS_CODE = """\
from sentence_transformers import CrossEncoder

print(CrossEncoder("{name}").predict([({text})]))"""
# Values of eval_results.txt: the hub's name of the metric, and the usual name.
METRICS = {
    "eval_accuracy": ("accuracy", "accuracy"),
    "eval_f1": ("f1", "F1"),
    "eval_macro_f1": ("f1", "macro F1"),
    "eval_micro_f1": ("f1", "micro F1"),
    "eval_precision": ("precision", "precision"),
    "eval_recall": ("recall", "recall"),
    "eval_matthews": ("matthews_correlation", "Matthews correlation"),
    "eval_pearson": ("pearsonr", "Pearson correlation"),
    "eval_spearman": ("spearmanr", "Spearman correlation"),
    "eval_exact_match": ("exact_match", "exact match"),
    "eval_exact": ("exact_match", "exact match"),
    "masked_lm_accuracy": ("accuracy", "accuracy of masked tokens"),
    "next_sentence_accuracy": ("accuracy", "accuracy of next sentences"),
}
SHOWN_FLAGS = (
    *("num_train_epochs", "num_train_steps", "train_minutes", "train_batch_size"),
    *("learning_rate", "optimizer"),
    *("warmup_proportion", "num_warmup_steps", "max_seq_length", "random_seed", "masking"),
)
KERAS_HUB_TYPE = "bert"  # Its classes for the other families are not tried here.


def write_model_card(folder: pathlib.Path, checkpoint: Checkpoint, source: str) -> None:
    """Writes README.md into a Hugging Face folder.

    Args:
      folder: the folder that `write_checkpoint` wrote.
      checkpoint: the checkpoint as it was written.
      source: the origin of the model: a run directory, another checkpoint, or a name on a hub.

    Raises:
      ValueError: if eval_results.txt is damaged.
    """
    from huggingface_hub import ModelCard

    run = record_of(source)
    flags = read_flagfile(run / "run.flags") if (run / "run.flags").exists() else {}
    results = read_results(run / RESULTS_NAME)
    kind = find_kind(checkpoint, str(run))
    # Kinds without their own pipeline are described as the most similar kind.
    kind = {"next_sentence": "fill_mask", "reranker": "regression"}.get(kind, kind)
    base = base_model(flags.get("init_checkpoint", ""), source)
    data = _metadata(folder, checkpoint, kind, flags, results, base)
    body = "\n\n".join(
        part
        for part in (
            f"# {folder.name}",
            _description(checkpoint, kind),
            _scores(flags, results),
            _training(flags),
            _usage(folder, checkpoint, kind, str(run)),
            _limits(checkpoint, kind),
            "## License\n\nNot stated yet: add `license: ...` to the header of this file.",
        )
        if part
    )
    ModelCard(f"---\n{data.to_yaml()}\n---\n\n{body}\n").save(folder / CARD_NAME)


def read_results(path: pathlib.Path) -> dict[str, float]:
    """Reads the values of an eval_results.txt; {} without one.

    Raises:
      ValueError: naming the line, if it is not of the form `key = value`.
    """
    if not path.exists():
        return {}
    values = {}
    for number, line in enumerate(read_text(path).splitlines(), 1):
        if line.startswith("#") or not line.strip():
            continue
        key, _, value = line.partition(" = ")
        try:
            values[key] = float(value)
        except ValueError:
            raise ValueError(f"{path}, line {number}: {line!r}, expected key = value.") from None
    return values


def _metadata(
    folder: pathlib.Path,
    checkpoint: Checkpoint,
    kind: str,
    flags: dict[str, str],
    results: dict[str, float],
    base: str | None,
) -> Any:
    """Returns the metadata by which the hub searches."""
    from huggingface_hub import EvalResult, ModelCardData

    name = folder.name
    task = PURPOSES[kind].pipeline
    library = "transformers"
    if is_sentence_transformers(folder):
        if not is_modular(checkpoint):
            task = "sentence-similarity"
        library = "sentence-transformers"
    known = {key: value for key, value in results.items() if key in METRICS}
    dataset = _dataset(flags)
    evaluated = [
        EvalResult(
            task_type=task,
            dataset_type=dataset["type"],
            dataset_name=dataset["name"],
            dataset_config=dataset.get("config"),
            dataset_split=dataset.get("split"),
            metric_type=METRICS[key][0],
            metric_name=METRICS[key][1],
            metric_value=round(value, 6),
        )
        for key, value in sorted(known.items())
        if math.isfinite(value)
    ]
    family = _family(checkpoint)
    return ModelCardData(
        library_name=library,
        pipeline_tag=task,
        tags=[family.model_type, "bert_tf"],
        base_model=base,
        # Only GLUE's tasks are data sets of the hub; a file is not.
        datasets=[dataset["type"]] if "config" in dataset else None,
        metrics=sorted({METRICS[key][0] for key in known}) or None,
        model_name=name if evaluated else None,
        eval_results=evaluated or None,
    )


def base_model(*sources: str) -> str | None:
    """Returns the name of the first source on Hugging Face's hub; None if there is no such one."""
    found = (re.fullmatch(r"hf:/{1,2}([\w.-]+/[\w.-]+)(@.*)?", source) for source in sources)
    return next((match[1] for match in found if match), None)


def _dataset(flags: dict[str, str]) -> dict[str, str]:
    """Returns the evaluation data of a run: a GLUE task by the hub's names, or a file name."""
    if name := flags.get("task_name", ""):
        task = glue_task(name)
        config = task.name.replace("-", "")
        split = "validation_matched" if config == "mnli" else "validation"
        named = {"type": "nyu-mll/glue", "name": f"GLUE {task.folder}"}
        return {**named, "config": config, "split": split}
    file = flags.get("eval_file") or flags.get("predict_file") or "held-out text"
    name = pathlib.PurePath(file).name
    return {"type": re.sub(r"[^\w.-]+", "-", name), "name": name}


def _family(checkpoint: Checkpoint) -> Family:
    """Returns the family of a folder; modules hold heads that it does not."""
    family, _ = family_and_heads(
        encoder_alone(checkpoint) if is_modular(checkpoint) else checkpoint
    )
    return family


def _description(checkpoint: Checkpoint, kind: str) -> str:
    config = checkpoint.config
    family = _family(checkpoint)
    count = sum(value.size for value in checkpoint.weights.values())
    size = f"{count / 1e6:.1f} M" if count >= 1e5 else f"{count:,}"
    text = (
        f"A {family.title} that {PURPOSES[kind].does}: {config.num_hidden_layers} layers of "
        f"{config.hidden_size} numbers, {config.num_attention_heads} heads, {size} parameters. "
    )
    if isinstance(checkpoint.vocab, Vocab):
        casing = "uncased" if config.do_lower_case else "cased"
        text += f"Its tokenizer is {casing} WordPiece of {len(checkpoint.vocab):,} tokens."
    elif checkpoint.vocab is not None:
        title = TOKENIZER_TITLES[kind_of(checkpoint.vocab)]
        text += f"Its tokenizer is {title} of {len(checkpoint.vocab):,} tokens."
    if checkpoint.labels:
        text += f"\n\nLabels: {', '.join(f'`{label}`' for label in checkpoint.labels)}."
    return text


def _scores(flags: dict[str, str], results: dict[str, float]) -> str:
    """Returns the table of results, with the baseline if the run has one."""
    shown = {k: v for k, v in results.items() if not k.startswith("unigram_")}
    step = shown.pop("global_step", None)
    if not shown:
        return ""
    # The values that were left out above are those of a baseline.
    has_baseline = len(shown) + (step is not None) < len(results)
    header = "| | this model | unigrams |\n| --- | ---: | ---: |"
    lines = [header if has_baseline else "| | value |\n| --- | ---: |"]
    for key, value in sorted(shown.items()):
        name = METRICS[key][1] if key in METRICS else key.removeprefix("eval_").replace("_", " ")
        cells = [name, f"{value:.4f}"]
        if has_baseline:
            baseline = results.get(f"unigram_{key}")
            cells.append("" if baseline is None else f"{baseline:.4f}")
        lines.append(f"| {' | '.join(cells)} |")
    at = f" after {step:,.0f} steps of training" if step else ""
    return f"## Results\n\nOn {_dataset(flags)['name']}{at}:\n\n" + "\n".join(lines)


def _training(flags: dict[str, str]) -> str:
    """Describes the training data and settings, as far as the run records them."""
    rows = []
    data = flags.get("train_file") or flags.get("input_file") or flags.get("data_dir")
    if name := flags.get("task_name"):
        rows.append(("training data", f"GLUE {glue_task(name).folder}"))
    elif data:
        names = [pathlib.PurePath(part).name for part in data.split(",")]
        rows.append(("training data", ", ".join(names)))
    if start := flags.get("init_checkpoint", ""):
        shown = start.removeprefix("hf://") if "://" in start else pathlib.PurePath(start).name
        rows.append(("started from", shown))
    rows += [
        (name.replace("_", " "), flags[name])
        for name in SHOWN_FLAGS
        if flags.get(name, "") not in ("", "0", "0.0")
        and not (name == "warmup_proportion" and flags.get("num_warmup_steps", "0") != "0")
    ]
    if not rows:
        return ""
    lines = "\n".join(f"| {name} | {value} |" for name, value in rows)
    return f"## Training\n\nTrained with bert_tf.\n\n| | |\n| --- | --- |\n{lines}"


def _usage(folder: pathlib.Path, checkpoint: Checkpoint, kind: str, run: str) -> str:
    """Returns instructions for each framework that can load the model."""
    name = folder.name
    purpose = PURPOSES[kind]
    is_pair = len(recorded_options(checkpoint, kind, run).get("texts", ())) == 2
    example = purpose.example.format(PAIR if is_pair else TEXT)
    mask = "[MASK]"
    if checkpoint.vocab is not None:
        mask = checkpoint.vocab.mask
    text = PAIR_INPUTS if is_pair else TEXT
    inputs = purpose.inputs.replace("{}", text).replace("{mask}", mask)
    pair = ", pair=True" if is_pair else ""
    kind_given = f', "{kind}"' if kind == "embeddings" else ""
    parts = [
        "## How to use it",
        "With bert_tf (TensorFlow):",
        f'```python\nimport bert_tf\n\nmodel = bert_tf.load("{name}"{kind_given}{pair})\n'
        f"print(model.{example})\n```",
    ]
    if is_sentence_transformers(folder):
        code = SENTENCE_CODE.format(name=name, text=TEXT)
        if is_modular(checkpoint):
            code = CROSS_CODE.format(name=name, text=PAIR_INPUTS)
        return "\n\n".join([*parts, "With sentence-transformers:", f"```python\n{code}\n```"])
    parts += [
        "With transformers (PyTorch):",
        f"```python\n{_transformers_code(name, kind, inputs)}\n```",
    ]
    if kind == "embeddings" and checkpoint.embedding:
        parts.append(_pooling(checkpoint.embedding))
    family = _family(checkpoint)
    if family.model_type == KERAS_HUB_TYPE and not google_refusal(checkpoint):
        parts += _keras_hub_usage(name, checkpoint, purpose)
    return "\n\n".join(parts)


def _pooling(embedding: EmbeddingConfig) -> str:
    """Describes how an embedding is made from the vectors of transformers' pipeline."""
    made = f"pooling {' and '.join(embedding.pooling)}"
    made += ", scaled to length 1" if embedding.normalize else ""
    return (
        f"The pipeline gives a vector for each token; bert_tf makes one of them as `{FILE_NAME}` "
        f"says: {made}. `convert_checkpoint --to=sentence_transformers` writes a folder with which "
        "that library does the same."
    )


def _transformers_code(name: str, kind: str, inputs: str) -> str:
    """Returns code for transformers, whose release 5 no longer has a pipeline for questions."""
    if kind == "question_answering":
        return QUESTION_CODE.format(name=name)
    purpose = PURPOSES[kind]
    return (
        "from transformers import pipeline\n\n"
        f'model = pipeline("{purpose.pipeline}", model="{name}"{purpose.options})\n'
        f"print(model({inputs}))"
    )


def _keras_hub_usage(name: str, checkpoint: Checkpoint, purpose: _Purpose) -> list[str]:
    """Returns instructions for keras-hub, whose reader of these files requires a pooler."""
    preset = name
    parts = []
    command = (
        f"`python -m bert_tf.convert_checkpoint --input={name} --output={name}-preset "
        "--to=keras_hub`"
    )
    if "pooler" not in checkpoint.heads:
        preset = f"{name}-preset"
        parts.append(f"With keras-hub, after {command}:")
    else:
        parts.append("With keras-hub, which reads the encoder and the tokenizer:")
    parts.append(
        "```python\nimport keras_hub\n\n"
        f'encoder = keras_hub.models.BertBackbone.from_preset("{preset}")\n'
        f'tokenizer = keras_hub.models.BertTokenizer.from_preset("{preset}")\n```'
    )
    if purpose.keras_class:
        source = "the same folder" if preset != name else f"what {command} writes"
        parts.append(f"Its `{purpose.keras_class}`, head included, reads {source}.")
    if checkpoint.config.hidden_act != "gelu_tanh":
        parts.append(
            f"keras-hub computes GELU by its tanh form, but this model was trained with "
            f"{checkpoint.config.hidden_act}: its outputs differ slightly there."
        )
    return parts


def _limits(checkpoint: Checkpoint, kind: str) -> str:
    config = checkpoint.config
    # Without a position table, `longest_row` is no limit.
    length = min(config.longest_row, config.max_position_embeddings)
    if kind == "embeddings" and checkpoint.embedding:
        length = min(length, checkpoint.embedding.max_seq_length)
    cut = (
        "longer texts are split into windows"
        if KINDS[kind].reads_windows
        else "longer texts are cut at their end"
    )
    return (
        f"## Limits\n\nSequences have at most {length} tokens; {cut}. The model shares the gaps "
        "and errors of its training data; it has not been examined for them."
    )
