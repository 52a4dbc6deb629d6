"""Names of models in flags and arguments: hub names, paths, and well-known names without a hub."""

import glob
import os
import pathlib
import re
from collections.abc import Sequence

# A pathlib.Path of such a name has one slash.
HUB_NAME = re.compile(r"(hf|kaggle|keras_hub):/{1,2}(.*)", re.DOTALL)
# Organizations on Hugging Face's hub by the pattern of the names that pages print without them.
ORGANIZATIONS = (
    (r"ms-marco-.*|stsb-.*|nli-.*-base|quora-.*", "cross-encoder"),
    (
        r"all-.*|multi-qa-.*|paraphrase-.*|msmarco-.*|distiluse-.*|gtr-t5-.*|sentence-t5-.*|LaBSE",
        "sentence-transformers",
    ),
    (r"electra-.*|bert_uncased_.*", "google"),
    (r"bert-(base|large)-.*", "google-bert"),
    (r"albert-.*", "albert"),
    (r"(distil)?roberta-.*|xlm-roberta-.*", "FacebookAI"),
    (r"distilbert-.*", "distilbert"),
    (r"deberta-.*|mdeberta-.*|mpnet-base", "microsoft"),
    (r"modernbert-.*", "answerdotai"),
    (r"ettin-.*", "jhu-clsp"),
    (r"xlnet-.*", "xlnet"),
    (r"camembert-.*", "almanach"),
    (r"splade-.*", "naver"),
    (r"bge-.*", "BAAI"),
    (r"e5-.*|multilingual-e5-.*", "intfloat"),
)
RENAMED = {
    "modernbert-base": "ModernBERT-base",
    "modernbert-large": "ModernBERT-large",
    "labse": "LaBSE",
    "all-minilm-l6-v2": "all-MiniLM-L6-v2",
    "all-minilm-l12-v2": "all-MiniLM-L12-v2",
    "ms-marco-minilm-l-6-v2": "ms-marco-MiniLM-L6-v2",
    "ms-marco-minilm-l-12-v2": "ms-marco-MiniLM-L12-v2",
    "distilroberta-base": "distilbert/distilroberta-base",
    "camembert-base": "almanach/camembert-base",
}
# Endings of files that are beside a model at most; a folder of these alone has no model.
BESIDE_MODELS = ("", ".conll", ".csv", ".jsonl", ".log", ".md", ".parquet", ".tsv", ".txt", ".xlsx")
# Those of configurations, which hold no weights.
BESIDE_WEIGHTS = (*BESIDE_MODELS, ".json")
WHOLE_MODEL_FLAGS = (
    *("init_checkpoint", "model_dir", "input", "base_model", "teacher", "reranker", "rerank"),
)
# Flags that name a model or a part of one that must exist.
MODEL_FLAGS = (
    *WHOLE_MODEL_FLAGS,
    "index",
    "saved_model",
    "bert_config_file",
    "added_words_file",
    "vocab_file",
)


def is_hub_name(path: str | os.PathLike) -> bool:
    """True for the name of a model on a hub."""
    return HUB_NAME.fullmatch(os.fspath(path)) is not None


def absolute_path(path: str | os.PathLike) -> str:
    """Returns a path that is the same in every folder and process; the name of a model as it is."""
    if is_hub_name(path):
        return os.fspath(path)
    # A shell leaves --flag=~/x as it is.
    return os.path.abspath(pathlib.Path(path).expanduser())  # noqa: PTH100


def proposed_name(name: str) -> str:
    """Returns the hub name of a well-known model that was named without its hub; "" for others."""
    organization, _, model = name.rstrip("/").rpartition("/")
    if organization:
        # Paths of two parts look like names on Hugging Face's hub.
        is_id = re.fullmatch(r"[A-Za-z][\w-]*/[\w.-]+", name) is not None
        known = {owner for _, owner in ORGANIZATIONS} | {"google", "facebook"}
        if is_id and organization in known:
            return f"hf://{name}"
        return ""
    for pattern, owner in ORGANIZATIONS:
        if re.fullmatch(pattern, model, re.IGNORECASE):
            model = RENAMED.get(model.lower(), model)
            if "/" in model:
                return f"hf://{model}"
            return f"hf://{owner}/{model}"
    return ""


def advice(name: str) -> str:
    """Returns the end of a message about a model that does not exist, with the name to give."""
    proposal = proposed_name(name)
    if proposal:
        return f"to load it from Hugging Face's hub, give {proposal}"
    return "give a path, or a name on a hub, as hf://org/name"


def check_model(path: str, has_weights: bool = False) -> None:
    """Raises ValueError unless a path is a hub name, a file, a checkpoint's prefix or a folder.

    A folder of files that no model has is refused as well; with `has_weights`, also a text or a
    table, and a folder of configurations alone.
    """
    if is_hub_name(path):
        return
    local = pathlib.Path(path).expanduser()
    if not local.exists() and not glob.glob(glob.escape(os.fspath(local)) + ".*"):  # noqa: PTH207
        raise ValueError(f"{path} does not exist; {advice(path)}.")
    if has_weights and local.is_file() and local.suffix and local.suffix in BESIDE_MODELS:
        raise ValueError(f"{path} is no file of a model; {advice(path)}.")
    if not local.is_dir():
        return
    others: Sequence[str] = BESIDE_MODELS
    missing = "file of a model"
    if has_weights:
        others = BESIDE_WEIGHTS
        missing = "weights of a model"
    names = []
    for entry in sorted(local.iterdir()):
        if entry.is_dir() or entry.suffix not in others:
            return
        names.append(entry.name)
    raise ValueError(f"{path} holds {names[:10] or 'nothing'}, no {missing}; {advice(path)}.")
