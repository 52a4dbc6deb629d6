"""A served model on disk: two SavedModels with what belongs to them.

NAME/VERSION/       text in                   NAME_ids/VERSION/   ids in
  saved_model.pb  variables/
  assets.extra/   bert_tf.json  vocab.txt (or tokenizer.json)  tf_serving_warmup_requests
"""

import contextlib
import pathlib
from typing import Any

import tensorflow as tf

from bert_tf.files import write_json
from bert_tf.serving.metadata import CARD_NAME
from bert_tf.serving.model import IDS, Serving, Signatures
from bert_tf.serving.saved_models import EXTRA, write_checksums
from bert_tf.text.vocab import Vocab
from export.saving.version_folders import check_new, flush, hidden_folder, ids_folder
from export.saving.warmup import Requests, write_warmup

# A short and a longer request: a server is warm for the rows of one and of the other length.
SAMPLES = {
    "text": ("A short text with a [MASK] in it.", "word " * 50),
    "text_b": ("And a second one.", "piece " * 50),
    "question": ("What is short?", "Which word is there fifty times?"),
    "context": ("This text is short.", "word " * 50),
    "query": ("What is short?", "Which word is there fifty times?"),
    "documents": (("This text is short.", "word " * 50), ("word " * 50, "")),
}


def save(
    served: Serving,
    folder: pathlib.Path,
    version: int,
    source: str,
    options: dict[str, Any] | None = None,
) -> list[pathlib.Path]:
    """Writes both SavedModels, of a search one; returns their folders, the text model's first.

    Args:
      served: of `bert_tf.inference.serving_models.load`.
      folder: of the text model; the ids model's stands beside it.
      version: new to both.
      source: what it was made from, for bert_tf.json.
      options: with which `load` made it, for bert_tf.json.

    Raises:
      ValueError: if the version exists.
      OSError: if they cannot be written (disk full, say); then nothing of them is left.
    """
    check_new(folder, version)
    samples = {name: tf.constant(SAMPLES[name]) for name in served.texts}
    card = {**served.card(), "source": source, "options": options or {}}
    ids = dict(zip(IDS, served.sample_ids(*samples.values()), strict=True))
    served.share_model()
    numbers = {name: tf.constant(number) for name, number in served.numbers.items()}
    models = {
        ids_folder(folder): (served.id_signatures(), [("serving_default", ids)]),
        # The last to appear: a version of the text model says that both are there.
        folder: (served.text_signatures(), [("serving_default", {**samples, **numbers})]),
    }
    models = {model: made for model, made in models.items() if made[0]}  # not all take ids
    with contextlib.ExitStack() as stack:
        made = {}
        for model, (signatures, requests) in models.items():
            path = model / str(version)
            made[path] = stack.enter_context(hidden_folder(path))
            try:
                _write(served, made[path], model.name, signatures, requests, card)
            except (OSError, tf.errors.OpError) as error:
                reason = getattr(error, "message", None) or str(error)
                raise OSError(f"{path} could not be written: {reason.splitlines()[0]}") from error
        for path, hidden in made.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            hidden.rename(path)
    return list(made)[::-1]


def _write(
    served: Serving,
    folder: pathlib.Path,
    name: str,
    signatures: Signatures,
    requests: Requests,
    card: dict[str, Any],
) -> None:
    """Writes one SavedModel into a folder that no one looks at yet."""
    # What the functions use is all that a server needs; no gradients, and no layers of Keras'.
    functions = {name: call.get_concrete_function() for name, call in signatures.items()}
    used = tf.Module()
    used.weights = [v for function in functions.values() for v in function.variables]
    # Tables of byte-level BPE are resources, as weights are.
    used.tokenizers = [
        part.tokenizer for part in served.parts() if not isinstance(part.vocab, Vocab)
    ]
    options = tf.saved_model.SaveOptions(experimental_custom_gradients=False)
    tf.saved_model.save(used, str(folder), functions, options)
    extra = folder / EXTRA
    extra.mkdir()
    served.vocab.write(extra / served.vocab.file_name)
    write_warmup(extra / "tf_serving_warmup_requests", name, requests)
    card = {**card, "signatures": sorted(signatures)}
    write_json(extra / CARD_NAME, card)
    write_checksums(folder)
    flush(folder)
