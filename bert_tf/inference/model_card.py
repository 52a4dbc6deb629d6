"""Writes a model's README.md for the Hugging Face Hub: purpose, data, scores and loading.

Its header is YAML for the hub's search, formatted by huggingface_hub's own classes. For a run
directory it reports run.flags and eval_results.txt; of files it gives only the names, because paths
are private.

Reference: https://huggingface.co/docs/hub/model-cards
"""

import math
import pathlib
import re
from typing import Any, NamedTuple

from bert_tf.checkpoints.checkpoint import Checkpoint
from bert_tf.checkpoints.hub import record_of
from bert_tf.checkpoints.huggingface_writing import encoder_alone, family_and_heads
from bert_tf.checkpoints.sentence_modules import is_sentence_transformers
from bert_tf.checkpoints.sentence_transformers import is_modular
from bert_tf.config.config_flags import read_flagfile
from bert_tf.inference.kinds import KINDS, find
from bert_tf.inference.serving_models import find_kind
from bert_tf.tasks.base.programs.results import read_results
from bert_tf.tasks.classification.glue import glue_task

CARD_NAME = "README.md"
GLUE = "nyu-mll/glue"


class _Purpose(NamedTuple):
    does: str  # the verb phrase after "A BERT that ..."
    task: str  # the hub's name
    example: str  # a call of `bert_tf.load(...)`
    auto_class: str  # of transformers, behind AutoModel


CLASSES = ("text-classification", "classify([{text}])", "ForSequenceClassification")
LIVED = '"Ada Lovelace lived in London."'
QUESTION = f'answer(["Where did Ada live?"], [{LIVED}])'
PURPOSES = {
    "classifier": _Purpose("classifies texts", *CLASSES),
    "multi_label": _Purpose("gives texts any number of labels", *CLASSES),
    "regression": _Purpose("gives texts a number", CLASSES[0], "score([{text}])", CLASSES[2]),
    "tagger": _Purpose(
        "tags words", "token-classification", f"find_entities([{LIVED}])", "ForTokenClassification"
    ),
    "question_answering": _Purpose(
        "answers questions with parts of a text",
        "question-answering",
        QUESTION,
        "ForQuestionAnswering",
    ),
    "fill_mask": _Purpose(
        "fills in masked words", "fill-mask", 'fill_mask(["The {mask} sat down."])', "ForMaskedLM"
    ),
    "embeddings": _Purpose("makes vectors of texts", "feature-extraction", "encode([{text}])", ""),
    "late_interaction": _Purpose(
        "makes a vector for each token of a text (late interaction)",
        "feature-extraction",
        'score(["Who directed it?"], [{text}])',
        "",
    ),
}
CARD = """\
# {name}

A {title} that {does}: {layers} layers of {width} numbers, {heads} heads, {size} parameters. Its \
tokenizer is {casing} {tokenizer} of {tokens:,} tokens.{labels}{pooling}
{results}{training}
## How to use it

With bert_tf (TensorFlow):

```python
import bert_tf

model = bert_tf.load("{name}"{arguments})
print(model.{example})
```

With {library}:

```python
{code}
```

## Limits

Sequences have at most {length} tokens; longer texts are {cut}. The model shares the gaps and \
errors of its training data; it has not been examined for them.

## License

Not stated yet: add `license: ...` to the header of this file.
"""
TRANSFORMERS_CODE = """\
from transformers import AutoModel{auto_class}, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("{name}")
model = AutoModel{auto_class}.from_pretrained("{name}")"""
SENTENCE_CODE = """\
from sentence_transformers import SentenceTransformer

model = SentenceTransformer("{name}")"""
LATE_CODE = SENTENCE_CODE.replace("SentenceTransformer", "MultiVectorEncoder")
CROSS_CODE = SENTENCE_CODE.replace("SentenceTransformer", "CrossEncoder")
POOLING_NOTE = """

The vector of a text is made of those of its tokens as `embedder.json` says: pooling {}{}."""
# The hub's names of the metrics in eval_results.txt.
METRICS = {
    **dict.fromkeys(("accuracy", "masked_lm_accuracy", "next_sentence_accuracy"), "accuracy"),
    **dict.fromkeys(("f1", "macro_f1", "micro_f1"), "f1"),
    **dict.fromkeys(("exact_match", "exact"), "exact_match"),
    **{"precision": "precision", "recall": "recall", "matthews": "matthews_correlation"},
    **{"pearson": "pearsonr", "spearman": "spearmanr"},
}
SHOWN_FLAGS = (
    *("num_train_epochs", "num_train_steps", "train_minutes", "train_batch_size"),
    *("learning_rate", "optimizer"),
    *("warmup_proportion", "num_warmup_steps", "max_seq_length", "random_seed", "masking"),
)


def write_model_card(folder: pathlib.Path, checkpoint: Checkpoint, source: str = "") -> None:
    """Writes README.md into a Hugging Face folder.

    Args:
      folder: the folder that `write_checkpoint` wrote.
      checkpoint: the checkpoint as it was written.
      source: the origin of the model: a run directory, another checkpoint, or a name on a hub; "":
        the model was in memory.
    """
    from huggingface_hub import ModelCard, ModelCardData

    run = record_of(source or folder)
    flags = read_flagfile(run / "run.flags")
    results = read_results(run)
    kind = find_kind(checkpoint, str(run))
    # Kinds without their own task on the hub are described as the most similar kind.
    kind = {"next_sentence": "fill_mask", "reranker": "regression"}.get(kind, kind)
    is_pair = len(find(kind).recorded(checkpoint, str(run)).get("texts", ())) == 2
    library = "transformers"
    code = TRANSFORMERS_CODE
    task = PURPOSES[kind].task
    encoder = checkpoint
    if is_sentence_transformers(folder):
        library = "sentence-transformers"
        if is_modular(checkpoint):
            code = CROSS_CODE
            encoder = encoder_alone(checkpoint)
        else:
            code = SENTENCE_CODE
            task = "sentence-similarity"
    if kind == "late_interaction":  # It reads all dialects.
        library = "sentence-transformers"
        code = LATE_CODE
    family = family_and_heads(encoder)[0]
    known, dataset = _dataset(flags)
    evaluated = _evaluated(results, task, known, dataset)
    header = ModelCardData(
        library_name=library,
        pipeline_tag=task,
        tags=[family.model_type, "bert_tf"],
        base_model=base_model(flags.get("init_checkpoint", ""), source),
        datasets=[known] if known else None,
        model_name=folder.name if evaluated else None,
        eval_results=evaluated or None,
    )
    text = CARD.format(
        name=folder.name,
        title=family.title,
        library=library,
        code=code.format(name=folder.name, auto_class=PURPOSES[kind].auto_class),
        results=_results(results, dataset),
        training=_training(flags, known and dataset),
        **_description(checkpoint, kind, is_pair),
    )
    ModelCard(f"---\n{header.to_yaml()}\n---\n\n{text}").save(folder / CARD_NAME)


def base_model(*sources: str) -> str | None:
    """Returns the name of the first source on Hugging Face's hub; None if there is no such one."""
    found = (re.fullmatch(r"hf:/{1,2}([\w.-]+/[\w.-]+)(@.*)?", source) for source in sources)
    return next((match[1] for match in found if match), None)


def _dataset(flags: dict[str, str]) -> tuple[str, str]:
    """Returns the hub's name of the evaluated data, "" for a file, and the name that is shown."""
    if flags.get("task_name"):
        return GLUE, f"GLUE {glue_task(flags['task_name']).folder}"
    path = flags.get("eval_file") or flags.get("predict_file") or "held-out text"
    return "", pathlib.PurePath(path).name


def _evaluated(results: dict[str, float], task: str, known: str, dataset: str) -> list[Any]:
    """Returns the results for which the hub has a metric; for the data see `_dataset`."""
    from huggingface_hub import EvalResult

    evaluated = []
    for key, value in sorted(results.items()):
        name = key.removeprefix("eval_")
        if name in METRICS and math.isfinite(value):
            result = EvalResult(
                task_type=task,
                dataset_type=known or re.sub(r"[^\w.-]+", "-", dataset),
                dataset_name=dataset,
                metric_type=METRICS[name],
                metric_name=name.replace("_", " "),
                metric_value=round(value, 6),
            )
            evaluated.append(result)
    return evaluated


def _description(checkpoint: Checkpoint, kind: str, is_pair: bool) -> dict[str, Any]:
    """Returns the fields of the card for the network, its tokenizer, its limits and its answers."""
    text = '"A fine film."'
    arguments = ""
    if is_pair:
        text = '("A man plays.", "Somebody plays.")'
        arguments = ", pair=True"
    config = checkpoint.config
    mask = "[MASK]"
    tokenizer = "other"
    num_tokens = config.vocab_size
    if vocab := checkpoint.vocab:
        mask = vocab.mask
        tokenizer = vocab.title
        num_tokens = len(vocab)
    count = sum(value.size for value in checkpoint.weights.values())
    size = f"{count:,}"
    if count >= 1e5:
        size = f"{count / 1e6:.1f} M"
    labels = ""
    if checkpoint.labels:
        names = ", ".join(f"`{label}`" for label in checkpoint.labels)
        labels = f"\n\nLabels: {names}."
    # Without a position table, `longest_row` is no limit.
    length = min(config.longest_row, config.max_position_embeddings)
    pooling = ""
    if kind == "embeddings":
        arguments = ', "embeddings"'
        if embedding := checkpoint.embedding:
            length = min(length, embedding.max_seq_length)
            scaled = ""
            if embedding.normalize:
                scaled = ", scaled to length 1"
            pooling = POOLING_NOTE.format(" and ".join(embedding.pooling), scaled)
    return {
        "does": PURPOSES[kind].does,
        "arguments": arguments,
        "example": PURPOSES[kind].example.format(text=text, mask=mask),
        "layers": config.num_hidden_layers,
        "width": config.hidden_size,
        "heads": config.num_attention_heads,
        "size": size,
        "casing": "uncased" if config.do_lower_case else "cased",
        "tokenizer": tokenizer,
        "tokens": num_tokens,
        "labels": labels,
        "pooling": pooling,
        "length": length,
        "cut": "split into windows" if KINDS[kind].reads_windows else "cut at their end",
    }


def _results(results: dict[str, float], dataset: str) -> str:
    """Returns the section of results, with the baseline of pre-training if the run has one."""
    shown = {key: value for key, value in results.items() if not key.startswith("unigram_")}
    step = shown.pop("global_step", None)
    rows = []
    for key, value in sorted(shown.items()):
        row = [key.removeprefix("eval_").replace("_", " "), f"{value:.4f}", ""]
        if f"unigram_{key}" in results:
            row[2] = f"{results[f'unigram_{key}']:.4f}"
        rows.append(row)
    at = ""
    if step:
        at = f" after {step:,.0f} steps of training"
    return _table("Results", f"On {dataset}{at}:", ("", "this model", "unigrams"), rows)


def _training(flags: dict[str, str], dataset: str) -> str:
    """Returns the section of training data and settings, as far as the run records them."""
    files = flags.get("train_file") or flags.get("input_file") or flags.get("data_dir") or ""
    data = dataset or ", ".join(pathlib.PurePath(file).name for file in files.split(","))
    start = flags.get("init_checkpoint", "")
    if "://" in start:
        start = start.removeprefix("hf://")
    else:
        start = pathlib.PurePath(start).name
    rows = [("training data", data), ("started from", start)]
    rows += [(name.replace("_", " "), flags.get(name, "")) for name in SHOWN_FLAGS]
    rows = [row for row in rows if row[1] not in ("", "0", "0.0")]
    return _table("Training", "Trained with bert_tf.", ("", ""), rows)


def _table(title: str, text: str, header: tuple[str, ...], rows: list[Any]) -> str:
    """Returns a section with a table; "" without rows."""
    if not rows:
        return ""
    lines = [f"| {' | '.join(row)} |" for row in (header, ("---",) * len(header), *rows)]
    return f"\n## {title}\n\n{text}\n\n" + "\n".join(lines) + "\n"
