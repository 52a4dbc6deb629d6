"""Exports a trained model as SavedModels for TensorFlow Serving, from raw text to answers.

    python -m export.saved_model --model_dir=runs/sst2 --output_dir=serving/sst2

writes the next free version:

    serving/sst2/1/      texts in; signatures serving_default, ids, examples (and words of a tagger)
    serving/sst2_ids/1/  ids in; only TensorFlow's operations

each with warm-up requests and, in assets.extra, bert_tf.json, which describes the model, and the
vocabulary. A search (--kind=search --index=INDEX) is one model: query and k in, documents out. The
model is a run directory or a checkpoint in any format; its heads determine its kind. A version
appears complete or not at all, so a server may watch the folder.
"""

import pathlib
from typing import Any

from absl import flags, logging

from bert_tf.config import config_flags
from bert_tf.inference.kinds import KINDS
from bert_tf.tasks.base.serving.saved_models import size_of
from bert_tf.tasks.base.serving.saving.version_folders import check_new, next_version

# Flags that apply only to some kinds: names in `Kind.options`, where --pair is `texts`.
OPTIONS = (
    "template",
    "top_k",
    "rounds",
    "pooling",
    "normalize",
    "side",
    "null_score_diff_threshold",
    "index",
    "store",
    "rerank",
    "rerank_k",
    "pair",
)
FLAGS = flags.FLAGS
flags.DEFINE_string("model_dir", "", "Run directory, .keras file, or checkpoint in any format.")
flags.DEFINE_string(
    "output_dir", "", "Folder of the model; its name is also the model's name in the server."
)
flags.DEFINE_integer("version", 0, "Version; 0: the next free one.", lower_bound=0)
flags.DEFINE_enum("kind", "", ["", *KINDS], "Kind to serve; empty: determined by the heads.")
flags.DEFINE_integer(
    "max_seq_length",
    0,
    "Maximum tokens of an example; 0: as in training, or as the folder of an embedder or reranker "
    "states, or all positions (embedders: 256).",
    lower_bound=0,
)
flags.DEFINE_enum(
    "precision",
    "float32",
    ["float32", "bfloat16"],
    "bfloat16: half the size, faster on CPUs with units for it, slower on others.",
)
flags.DEFINE_bool("pair", None, "Whether requests have two texts; default: as in training.")
flags.DEFINE_string(
    "template", "This example is {}.", "Sentence about a candidate, for kind zero_shot."
)
flags.DEFINE_integer("top_k", 5, "Tokens for each mask, for kind fill_mask.", lower_bound=1)
flags.DEFINE_integer("rounds", 10, "Rounds of mask-predict, for kind fill_mask.", lower_bound=1)
flags.DEFINE_enum(
    "pooling",
    "",
    ["", "cls", "mean", "max"],
    "Pooling of embeddings; empty: the model's, or else mean.",
)
flags.DEFINE_bool(
    "normalize",
    None,
    "Divide embeddings by their length; default: the model's setting, or else false.",
)
flags.DEFINE_enum(
    "side",
    "",
    ["", "query", "document"],
    "Embed texts with the prompt of this side; empty: the model's default prompt.",
)
flags.DEFINE_string(
    "index",
    "",
    "Directory of bert_tf.build_index, or a file of token vectors, which --kind=search searches.",
)
flags.DEFINE_string("rerank", "", "A cross-encoder that reorders the results of --kind=search.")
flags.DEFINE_integer("rerank_k", 50, "Documents that --rerank reads.", lower_bound=1)
flags.DEFINE_enum(
    "store", "", ["", "float32", "float16", "int8"], "Vectors of --kind=search; empty: the index's."
)
flags.DEFINE_float(
    "null_score_diff_threshold", None, "No answer above these odds; default: as in training."
)


def main(_: list[str]) -> None:
    kind = FLAGS.kind or ("search" if FLAGS.index else "")
    if kind == "search" and FLAGS.precision != "float32":
        raise ValueError(
            "--precision does not apply to --kind=search; use --store for smaller vectors."
        )
    if kind == "search" and not FLAGS.index:
        raise ValueError("--kind=search needs the index of the documents; give --index.")
    if not (FLAGS.model_dir or FLAGS.index) or not FLAGS.output_dir:
        raise ValueError("Give a trained model as --model_dir and a folder as --output_dir.")
    source = FLAGS.model_dir
    if kind == "search":
        from bert_tf.search.manifest import model_of_index

        source = model_of_index(FLAGS.index, source)
    output = pathlib.Path(FLAGS.output_dir).expanduser()
    version = FLAGS.version or next_version(output)
    check_new(output, version)

    from bert_tf.inference.serving_models import load
    from bert_tf.tasks.base.serving.saving.writing import save

    options = given_options(kind)
    precision = {} if kind == "search" else {"precision": FLAGS.precision}
    serving = load(source, kind, FLAGS.max_seq_length, **precision, **options)
    # The texts are already part of the metadata, as its inputs.
    recorded_options = {name: value for name, value in options.items() if name != "texts"}
    if FLAGS.precision != "float32":
        recorded_options["precision"] = FLAGS.precision
    paths = save(serving, output, version, source, recorded_options)
    for path in paths:
        logging.info("Wrote %s: %s, %.1f MB.", path, serving.kind, size_of(path) / 1e6)


def given_options(kind: str) -> dict[str, Any]:
    """Returns the options of requests and answers that are given as flags.

    Raises:
      ValueError: if a flag does not apply to --kind, or needs another flag.
    """
    options: dict[str, Any] = {}
    for name in OPTIONS:
        if not FLAGS[name].present or FLAGS[name].value == "":
            continue
        option = "texts" if name == "pair" else name
        kinds = [other.name for other in KINDS.values() if option in other.options]
        if kind and kind not in kinds:
            raise ValueError(f"--{name} applies to {', '.join(kinds)}, not to --kind={kind}.")
        options[name] = FLAGS[name].value
    if "rerank_k" in options and not FLAGS.rerank:
        raise ValueError("--rerank_k needs --rerank.")
    for name in {"index", "rerank"} & options.keys():
        path = pathlib.Path(options[name]).expanduser()
        if path.exists():
            # The metadata record it for `export.check`, which may run in another folder.
            options[name] = str(path.absolute())
    if "pair" in options:
        options["texts"] = ("text", "text_b") if options.pop("pair") else ("text",)
    return options


if __name__ == "__main__":
    config_flags.run(main)
