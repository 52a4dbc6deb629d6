"""Resolves names of models on hubs: downloaded once, then read from the cache.

    hf://google-bert/bert-base-uncased          Hugging Face's hub: hf://ORGANIZATION/NAME, and
    hf://org/name@v1.0                          a branch, a tag or a commit behind @
    keras_hub://bert_base_en_uncased            a preset by keras-hub's own name
    kaggle://keras/bert/keras/bert_base_en/3    a preset by its handle; without a version the newest

The caches are those of huggingface_hub and kagglehub, so a file that transformers or keras-hub has
downloaded is not downloaded again, and their variables apply: HF_HOME, HF_ENDPOINT, HF_TOKEN,
HF_HUB_OFFLINE, KAGGLEHUB_CACHE. Only files that are read here are downloaded, with weights in the
first format of `WEIGHTS` that a model has; downloads must have the hub's checksum.
"""

import fnmatch
import glob
import hashlib
import os
import pathlib
import re
from collections.abc import Iterable, Sequence
from typing import NoReturn

import tqdm
from absl import logging

from bert_tf.checkpoints.keras_archive import is_keras_file
from bert_tf.config.config_flags import flags_naming
from bert_tf.system.fetching import fetching, log_headers_briefly
from bert_tf.system.model_names import HUB_NAME
from bert_tf.system.printable import first_line
from bert_tf.text.sentencepiece_model import MODEL_FILES

_HF_ID = re.compile(r"([\w.-]+/)?[\w.-]+", re.ASCII)
_CHECKSUM = re.compile("[0-9a-f]{40}|[0-9a-f]{64}")
_KAGGLE_ID = re.compile(r"[\w.-]+(/[\w.-]+){3}(/\d+)?", re.ASCII)
# By names of files. Modules of sentence-transformers lie in folders like 1_Pooling.
SMALL_FILES = (
    *("config.json", "vocab.txt", "vocab.json", "merges.txt", "tokenizer.json"),
    *("vocab.options.json", "adapter_config.json"),
    *MODEL_FILES,
    *("tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"),
    *("modules.json", "*sentence_bert_config.json", "config_sentence_transformers.json"),
    *("sentence_*_config.json", "bert_config.json", "generator_config.json"),
    "xlnet_config.json",
    *("embedder.json", "labels.txt", "problem_type.txt"),
    *("inputs.flags", "calibration.flags"),
    *("run.flags", "run.json", "best_checkpoint.json"),
    *("metadata.json", "task.json", "preprocessor.json", "assets/tokenizer/*"),
)
MODULE_FOLDER = re.compile(r"(\d+_\w+/)?")
# The first of these whose first file a folder has; each is whole weights.
WEIGHTS = (
    ("adapter_model.safetensors",),
    ("adapter_model.bin",),
    ("model.safetensors",),
    ("model.safetensors.index.json", "model-*-of-*.safetensors"),
    ("model.weights.h5", "model.weights.json", "model_*.weights.h5", "task.weights.h5"),
    ("pytorch_model.bin",),
    ("pytorch_model.bin.index.json", "pytorch_model-*-of-*.bin"),
    ("tf_model.h5",),
    ("tf_model.h5.index.json", "tf_model-*-of-*.h5"),
    ("*.index", "*.data-*-of-*", "checkpoint"),
)
# One of them is there.
FIRST_FILES = ("config.json", "modules.json", "bert_config.json", "adapter_config.json")
KERAS_HUB_TOKENIZER = ("config.json", "tokenizer.json", "assets/tokenizer/vocabulary.txt")


def local_path(path: str | os.PathLike, with_weights: bool = True) -> pathlib.Path:
    """Returns the path of a model; downloads a name on a hub first if it is not in the cache.

    Args:
      path: the name, or a path, which is returned with ~ expanded.
      with_weights: whether to download weights; otherwise only tokenizer and configuration.

    Raises:
      ValueError: if the name is malformed or unknown, or a file is not in the cache and cannot be
        downloaded; the message says what to download by hand.
    """
    match = HUB_NAME.fullmatch(os.fspath(path))
    if match is None:
        return pathlib.Path(path).expanduser()  # A shell leaves --flag=~/x as it is.
    scheme, rest = match.groups()
    with fetching():
        if scheme == "hf":
            return _from_hugging_face(rest, with_weights)
        return _from_kaggle(_handle_of(rest) if scheme == "keras_hub" else rest, with_weights)


def record_of(path: str | os.PathLike) -> pathlib.Path:
    """Returns the path of a model's record: the folder of its weights, or its Keras file."""
    local = local_path(path, with_weights=False)
    if local.is_dir() or is_keras_file(local):
        return local
    return local.parent


def _from_hugging_face(rest: str, with_weights: bool) -> pathlib.Path:
    """Returns the folder of `ID` or `ID@REVISION` in huggingface_hub's cache."""
    import huggingface_hub
    from huggingface_hub import errors

    name, has_revision, revision = rest.partition("@")
    if not _HF_ID.fullmatch(name) or bool(has_revision) != bool(revision):
        raise ValueError(f"hf://{rest}: expected hf://org/name or hf://org/name@revision.")

    def fetch(files: Sequence[str], revision: str | None) -> pathlib.Path:
        try:
            folder = huggingface_hub.snapshot_download(
                name,
                revision=revision,
                allow_patterns=list(map(glob.escape, files)),
                tqdm_class=_Bar,
            )
        except Exception as error:  # Of several libraries and the system.
            _explain(rest, name, error)
        return pathlib.Path(folder)

    # Unless the revision is a commit, the hub is asked for its current commit and files.
    folder = fetch(FIRST_FILES, revision or None)
    commit = folder.name
    try:
        listed = huggingface_hub.get_cached_repo_tree(name, revision=commit)
    except errors.CachedRepoTreeNotFoundError:  # Others filled the cache.
        return folder
    sizes = {file.path: file.size for file in listed}
    files = needed_files(sizes, with_weights)
    if not files:
        raise ValueError(f"hf://{rest} holds {sorted(sizes)[:10]}, expected the files of a model.")
    if new := [file for file in files if not (folder / file).exists()]:
        asked_by = flags_naming(f"hf://{rest}")
        logging.info("hf://%s%s: downloading %d files.", rest, asked_by, len(new))
        fetch(new, commit)
        logging.info("hf://%s: downloaded %d files into %s.", rest, len(new), folder)
    for file in files:
        _check_file(folder / file, sizes[file], file in new)
    return folder


class _Bar(tqdm.tqdm):
    """A progress bar on a terminal, nothing elsewhere."""

    def __init__(self, *arguments: object, **options: object) -> None:
        super().__init__(*arguments, **{**options, "disable": None})


def needed_files(names: Iterable[str], with_weights: bool = True) -> list[str]:
    """Returns the files of a model that need to be downloaded, of all files with their folders."""
    names = sorted(names)
    folders: dict[str, list[str]] = {}
    for name in names:
        match = MODULE_FOLDER.match(name)
        start = match[0] if match else ""
        folders.setdefault(start, []).append(name.removeprefix(start))
    chosen = []
    for start, inner in folders.items():
        patterns: list[tuple[str, ...]] = [SMALL_FILES]
        if with_weights:
            # The first format of which there are weights.
            patterns += [group for group in WEIGHTS if _matching(inner, group[:1])][:1]
        for group in patterns:
            chosen += [start + name for name in _matching(inner, group)]
    return sorted(set(chosen))


def _matching(names: Iterable[str], patterns: Sequence[str]) -> list[str]:
    """Returns the names that match a pattern of the same depth."""
    matching = []
    for name in names:
        for pattern in patterns:
            # In fnmatch a star also matches slashes.
            if fnmatch.fnmatchcase(name, pattern) and name.count("/") == pattern.count("/"):
                matching.append(name)
                break
    return matching


def _check_file(path: pathlib.Path, expected: int, is_new: bool) -> None:
    """Checks the size of a file, and of one just downloaded the checksum, its name in the cache.

    A damaged file is deleted, so that the next attempt downloads it again.
    """
    blob = path.resolve()
    size = blob.stat().st_size
    what = f"{size} bytes instead of {expected}" if size != expected else ""
    if is_new and not what and _CHECKSUM.fullmatch(blob.name) and _checksum(blob) != blob.name:
        what = "another checksum than on the hub"
    if what:
        blob.unlink()
        path.unlink(missing_ok=True)  # The link to it.
        raise ValueError(f"{path} is damaged, it has {what}; it was deleted: try again.")


def _checksum(path: pathlib.Path) -> str:
    """Returns the checksum of a file by which its cache names it: git's, or a SHA-256."""
    with path.open("rb") as file:
        if len(path.name) == 64:
            return hashlib.file_digest(file, "sha256").hexdigest()
        content = file.read()
        return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


def _explain(rest: str, name: str, error: Exception) -> NoReturn:
    """Raises a ValueError that says in one line why a model is not available and what to do."""
    from huggingface_hub import constants, errors

    url = f"{constants.ENDPOINT}/{name}"
    if isinstance(error, errors.GatedRepoError):
        reason = f"requires you to accept its terms: do so on {url}, then `hf auth login`"
    elif isinstance(error, errors.RepositoryNotFoundError):
        reason = f"is not on {constants.ENDPOINT}, or private: check the name, or `hf auth login`"
    elif isinstance(error, errors.RevisionNotFoundError):
        reason = f"has no such branch, tag or commit; {url}/tree/main lists them"
    elif isinstance(error, errors.HFValidationError):
        reason = f"is not a valid model name: {first_line(error)}"
    elif isinstance(error, OSError) and error.errno and not isinstance(error, ConnectionError):
        reason = f"cannot be stored in {constants.HF_HUB_CACHE}: {error.strerror}"
    elif "onsistency check failed" in str(error):
        reason = f"arrived damaged: {first_line(error)}; try again"
    else:
        is_offline = constants.HF_HUB_OFFLINE
        cause = "HF_HUB_OFFLINE is set" if is_offline else f"{constants.ENDPOINT} does not answer"
        reason = (
            f"is not in {constants.HF_HUB_CACHE}, and {cause}: on another machine, download "
            f"config.json, model.safetensors and the tokenizer's files (vocab.txt, "
            f"tokenizer*.json) from {url}/tree/main, or run `hf download {name} --local-dir "
            f"FOLDER`; copy them here and give their folder instead of the name"
        )
    raise ValueError(f"hf://{rest} {reason}.") from None


def _handle_of(preset: str) -> str:
    """Returns the handle of keras-hub's preset of a name; ValueError without one."""
    from bert_tf.checkpoints.keras_hub import known_presets

    presets = known_presets()
    if preset not in presets:
        raise ValueError(
            f"keras_hub://{preset}: keras-hub has no BERT or ELECTRA of this name; it has "
            f"{', '.join(sorted(presets))}."
        )
    return presets[preset]


def _from_kaggle(handle: str, with_weights: bool) -> pathlib.Path:
    """Returns the folder of a preset in kagglehub's cache."""
    if not _KAGGLE_ID.fullmatch(handle):
        raise ValueError(
            f"kaggle://{handle}: expected kaggle://OWNER/MODEL/keras/VARIATION or .../VERSION."
        )
    import kagglehub

    log_headers_briefly()
    # Without a version kagglehub asks which is the newest.
    try:
        if with_weights:
            return pathlib.Path(kagglehub.model_download(handle))
        paths = [kagglehub.model_download(handle, name) for name in KERAS_HUB_TOKENIZER]
        return pathlib.Path(paths[0]).parent
    except Exception as error:  # kagglehub's have no class in common.
        _explain_kaggle(handle, error)


def _explain_kaggle(handle: str, error: Exception) -> NoReturn:
    import requests
    from kagglehub.config import get_cache_folder

    url = f"https://www.kaggle.com/models/{handle}"
    response = getattr(error, "response", None)
    status = getattr(response, "status_code", 0)
    if status == 404:
        reason = f"is not on Kaggle; check the name on {url}"
    elif status in (401, 403):
        reason = f"requires you to accept its terms: do so on {url}, then log in to Kaggle"
    elif isinstance(error, requests.ConnectionError | requests.Timeout) or status >= 500:
        reason = (
            f"is not in {get_cache_folder()}, and Kaggle does not answer: on another machine, "
            f"download it from {url}; unpack it here and give its folder instead of the name"
        )
    else:
        reason = f"cannot be downloaded: {first_line(error)}"
    raise ValueError(f"kaggle://{handle} {reason}.") from None
