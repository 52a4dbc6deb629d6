"""Makes a static embedder of an encoder: a vector for each token, whose mean embeds a text.

    python -m bert_tf.distill_static --init_checkpoint=all-MiniLM-L6-v2 --output_dir=static

It takes about a minute of CPU time for a small encoder. The folder is one of Model2Vec, which
sentence-transformers also reads. Embed and search with it as with any other model, or train it with
`run_retriever`.
"""

import pathlib

from absl import flags

from bert_tf.config import TrainingConfig, config_flags
from bert_tf.config.given_flags import check_given
from bert_tf.system.files import new_folder_path

FLAGS = flags.FLAGS
config_flags.define_flags(TrainingConfig, only=("init_checkpoint",))
flags.DEFINE_string("output_dir", "", "Folder to write; it must not exist.")
flags.DEFINE_integer(
    "dimension", 256, "Numbers of a vector, by PCA; 0: those of the encoder, without PCA.", 0
)
flags.DEFINE_float(
    "sif_coefficient",
    1e-4,
    "Frequent tokens weigh less: a token of the frequency p is multiplied by a / (a + p); 0: all "
    "weigh the same.",
    0.0,
    1.0,
)
flags.DEFINE_integer("batch_size", 256, "Tokens per batch.", 1)


def main(_: list[str]) -> None:
    check_given("init_checkpoint", "output_dir")
    folder = pathlib.Path(FLAGS.output_dir).expanduser()
    new_folder_path(folder)  # Fail before a large model is read.

    from bert_tf.checkpoints.formats import read_checkpoint, write_checkpoint
    from bert_tf.checkpoints.static_embeddings import MODEL2VEC
    from bert_tf.tasks.embedding.static_distillation import distill

    teacher = read_checkpoint(FLAGS.init_checkpoint)
    teacher.check()
    made = distill(teacher, FLAGS.dimension, FLAGS.sif_coefficient, FLAGS.batch_size)
    write_checkpoint(made, folder, MODEL2VEC)


if __name__ == "__main__":
    config_flags.run(main)
