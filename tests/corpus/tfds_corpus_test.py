"""Tests of reading TensorFlow Datasets, with a data set made here and with a missing package."""

import sys

import pytest

from bert_tf.corpus import tfds_corpus
from bert_tf.corpus.corpus import CorpusPart, list_parts, read_documents
from bert_tf.corpus.manifests import describe_parts

TEXTS = [f"Example {number} is here. It ends." for number in range(10)]


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory):
    """A folder with the data set `bert_tf_tiny`: ten texts in `train`, two in `test`."""
    tf = pytest.importorskip("tensorflow")
    tfds = pytest.importorskip("tensorflow_datasets")
    folder = tmp_path_factory.mktemp("tfds")
    examples = [(number, {"text": text, "label": number}) for number, text in enumerate(TEXTS)]
    tfds.dataset_builders.store_as_tfds_dataset(
        name="bert_tf_tiny",
        version="1.0.0",
        data_dir=folder,
        split_datasets={"train": examples, "test": examples[:2]},
        features=tfds.features.FeaturesDict({"text": tfds.features.Text(), "label": tf.int64}),
        disable_shuffling=True,
    )
    return folder


@pytest.fixture
def installed(data_dir):
    """Lets TensorFlow Datasets look into the folder."""
    from tensorflow_datasets.core.utils import file_utils

    file_utils.add_data_dir(str(data_dir))
    yield
    file_utils.clear_registered_data_dirs()


@pytest.mark.parametrize(
    "part_bytes",
    [pytest.param(1, marks=pytest.mark.slow), pytest.param(200, marks=pytest.mark.slow), 1 << 20],
)
def test_parts_hold_every_example_once(installed, part_bytes):
    parts = list_parts("tfds:bert_tf_tiny", part_bytes=part_bytes)
    documents = [document for part in parts for document in read_documents(part)]
    assert sorted(document[0] for document in documents) == [text[:-9] for text in TEXTS]
    assert all(document[1] == "It ends." for document in documents)
    assert len(parts) == {1: 10, 1 << 20: 1}.get(part_bytes, len(parts))


def test_a_data_set_is_known_by_its_version_folder_and_shards(installed, data_dir):
    (described,) = describe_parts(list_parts("tfds:bert_tf_tiny", part_bytes=200))
    folder = data_dir / "bert_tf_tiny" / "1.0.0"
    size = sum(file.stat().st_size for file in folder.glob("*-train.tfrecord*"))
    name, place, num_bytes, *shards = described[3:]
    assert (name, place, shards) == ("bert_tf_tiny/1.0.0", str(folder), [len(TEXTS)])
    assert 0 < num_bytes <= size


def test_a_wrong_path_is_not_looked_up_in_the_network(monkeypatch):
    pytest.importorskip("tensorflow_datasets")
    from tensorflow_datasets.core.community import registry

    def fail(*_):
        raise AssertionError("asked for the community's data sets")

    monkeypatch.setattr(registry.DatasetRegistry, "list_builders", fail)
    assert tfds_corpus.is_dataset_name("wiki40b/en")
    assert not tfds_corpus.is_dataset_name("my_texts")


def test_split_and_errors(installed):
    assert list_parts("bert_tf_tiny:test", "tfds") == [
        CorpusPart("bert_tf_tiny:test", "tfds", 0, 2)
    ]
    with pytest.raises(ValueError, match=r"bert_tf_tiny .*'dev'.*\['test', 'train'\]"):
        list_parts("tfds:bert_tf_tiny:dev")
    with pytest.raises(ValueError, match=r"bert_tf_tiny .*'body'.*\['label', 'text'\].*text_field"):
        list_parts("tfds:bert_tf_tiny", text_field="body")
    with pytest.raises(ValueError, match="'label' .*int64.*string"):
        list_parts("tfds:bert_tf_tiny", text_field="label")
    with pytest.raises(ValueError, match="tfds:no_such_set .*TensorFlow"):
        list_parts("tfds:no_such_set")


def test_data_set_that_cannot_be_downloaded_is_named(installed, monkeypatch):
    import tensorflow_datasets as tfds

    def fail(self):
        raise ConnectionError("no route to host")

    monkeypatch.setattr(tfds.core.DatasetBuilder, "download_and_prepare", fail)
    with pytest.raises(ValueError, match="bert_tf_tiny .*no route to host.*TFDS_DATA_DIR"):
        list_parts("tfds:bert_tf_tiny")


def test_records_written_by_tensorflow_are_detected(data_dir):
    part, *_ = list_parts(f"{data_dir}/bert_tf_tiny/1.0.0/*.tfrecord*")
    assert part.format == "tfrecord"


def test_missing_package_names_the_command(monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorflow_datasets", None)
    with pytest.raises(ValueError, match="pip install tensorflow-datasets importlib_resources"):
        list_parts("tfds:anything")


def test_a_file_name_is_not_taken_for_a_dataset():
    assert not tfds_corpus.is_dataset_name("corpus.txt")
    assert not tfds_corpus.is_dataset_name("/data/glue")
    assert tfds_corpus.is_dataset_name("imdb_reviews/plain_text:train")
