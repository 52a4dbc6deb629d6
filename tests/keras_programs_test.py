"""Programs that take a model take a .keras file, and answer as with the folder it came from."""

import json
import pathlib

import keras
import pytest

import bert_tf
from bert_tf.checkpoints.formats import write_checkpoint
from tests import programs
from tests.checkpoints.made_checkpoint import make_checkpoint
from tests.export.made_models import SHAPE

SMALL = {**SHAPE, "num_hidden_layers": 1}
LINES = ["the river a b c", "w40 w41 the", "qa ba caa"]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """Folders and Keras files of a pre-trained model, an embedder and a classifier, and texts."""
    place = tmp_path_factory.mktemp("keras")
    keras.utils.set_random_seed(1)
    classes = {
        "pretrained": bert_tf.BertPretrainer,
        "encoder": bert_tf.BertEmbedder,
        "classifier": bert_tf.BertClassifier,
    }
    for purpose, model_class in classes.items():
        write_checkpoint(make_checkpoint(purpose, seed=3, **SMALL), place / purpose, "bert_tf")
        model_class.from_pretrained(place / purpose).save(place / f"{purpose}.keras")
    (place / "texts.txt").write_text("".join(f"{line}\n" for line in LINES))
    documents = [json.dumps({"id": str(i), "text": line}) for i, line in enumerate(LINES)]
    (place / "documents.jsonl").write_text("\n".join(documents))
    labels = ["no", "yes", "yes"]
    rows = [f"{line},{label}" for line, label in zip(LINES, labels, strict=True)]
    (place / "labelled.csv").write_text("\n".join(["text,label", *rows]))
    return place


def run(program: str, **flags) -> str:
    done = programs.run(program, **flags)
    assert done.returncode == 0, done.printed
    return done.stdout


def both(place: pathlib.Path, purpose: str, program: str, **flags) -> list[str]:
    """Returns what a program prints for the folder of a model, and for its Keras file."""
    sources = (place / purpose, place / f"{purpose}.keras")
    return [
        run(program, init_checkpoint=source, **flags).replace(str(source), "") for source in sources
    ]


def test_masks_are_filled(place):
    folder, file = both(place, "pretrained", "fill_mask", text="the [MASK] river")
    assert folder == file and folder.strip()


def test_texts_are_scored(place):
    folder, file = both(place, "pretrained", "score_text", text="the river a b")
    assert folder == file and folder.strip()


def test_features_are_extracted(place, tmp_path):
    written = []
    for source in (place / "encoder", place / "encoder.keras"):
        output = tmp_path / f"{source.name}.jsonl"
        run(
            "extract_features",
            init_checkpoint=source,
            input_file=place / "texts.txt",
            output_file=output,
            pooling="mean",
            max_seq_length=24,
        )
        written.append(output.read_text())
    assert written[0] == written[1]


def test_an_index_is_built_and_searched(place, tmp_path):
    run(
        "build_index",
        init_checkpoint=place / "encoder.keras",
        input_file=place / "documents.jsonl",
        output_dir=tmp_path / "index",
    )
    # The same model in another form: the index knows it by its weights.
    found = run("search", index=tmp_path / "index", query=LINES[0], k=1)
    assert LINES[0] in found
