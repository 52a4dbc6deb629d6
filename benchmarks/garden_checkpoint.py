"""Runs under the Model Garden's own Python: its converter, then its encoder, on Google's form.

    python garden_checkpoint.py FOLDER

FOLDER holds bert_model.ckpt, bert_config.json and batch.npz; FOLDER/tf2 and outputs.npz are made.
"""

import os
import pathlib
import shutil
import sys

os.environ["TF_USE_LEGACY_KERAS"] = "1"

import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402
from official.legacy.bert import configs  # noqa: E402
from official.nlp.tools import tf2_bert_encoder_checkpoint_converter as converter  # noqa: E402


def main(folder: pathlib.Path) -> None:
    config = configs.BertConfig.from_json_file(str(folder / "bert_config.json"))
    converter.convert_checkpoint(
        bert_config=config,
        output_path=str(folder / "tf2" / "bert_model.ckpt"),
        v1_checkpoint=str(folder / "bert_model.ckpt"),
        checkpoint_model_name="encoder",
    )
    for name in ("bert_config.json", "vocab.txt"):
        shutil.copy(folder / name, folder / "tf2" / name)
    encoder = converter._create_bert_model(config)
    saved = tf.train.latest_checkpoint(str(folder / "tf2"))
    tf.train.Checkpoint(encoder=encoder).read(saved).assert_existing_objects_matched()
    batch = np.load(folder / "batch.npz")
    names = ("input_word_ids", "input_mask", "input_type_ids")
    inputs = {name: batch[name] for name in names}
    outputs = encoder(inputs if isinstance(encoder.input, dict) else list(inputs.values()))
    keys = ("sequence_output", "pooled_output")
    outputs = outputs if isinstance(outputs, dict) else dict(zip(keys, outputs, strict=False))
    np.savez(folder / "outputs.npz", **{key: np.asarray(outputs[key]) for key in keys})


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
