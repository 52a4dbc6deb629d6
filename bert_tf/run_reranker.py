"""Fine-tunes BERT to rank documents for a query: a cross-encoder, which reads both together.

    python -m bert_tf.run_reranker --do_train --do_eval --output_dir=runs/reranker \\
        --train_file=train.jsonl --eval_file=dev.jsonl --init_checkpoint=all-MiniLM-L6-v2
    python -m bert_tf.run_reranker --do_eval --output_dir=runs/reranker \\
        --eval_file=scifact --eval_run_file=scifact.run --rerank_k=100

Files hold queries with positives and negatives, labelled pairs, or lists: see
`tasks/reranking/examples.py`. A BEIR folder takes its candidates from a TREC run, such as
`python -m bert_tf.search --output_file` writes. --cross_encoder_dir also writes the model for
sentence-transformers.
"""

from absl import flags

from bert_tf.config import config_flags
from bert_tf.config.ranking_config import RerankerConfig
from bert_tf.system.files import new_folder_path
from bert_tf.tasks.base.programs.program import Configs, asked_files, define_flags, run
from bert_tf.tasks.reranking.inputs import read_rankings

define_flags(RerankerConfig)
CROSS_ENCODER_DIR = flags.DEFINE_string(
    "cross_encoder_dir", "", "New folder for the model in sentence-transformers' format."
)


def execute(configs: Configs, files: dict[str, str]) -> int:
    if CROSS_ENCODER_DIR.value:
        check_free(CROSS_ENCODER_DIR.value, configs)
    rankings = read_rankings(configs, files)
    from bert_tf.checkpoints import cross_encoder
    from bert_tf.tasks.base.programs.run import run_program
    from bert_tf.tasks.reranking import program as reranker

    status = run_program(reranker.Reranker(configs, files, rankings), configs)
    if CROSS_ENCODER_DIR.value and not status and configs.training.do_train:
        found = cross_encoder.read_cross_encoder(configs.training.output_dir)
        cross_encoder.write_cross_encoder(found, CROSS_ENCODER_DIR.value)
    return status


def check_free(folder: str, configs: Configs) -> None:
    """Raises ValueError for problems that would prevent writing after training."""
    if not configs.training.do_train or configs.tuning.num_seeds > 1:
        raise ValueError("--cross_encoder_dir needs --do_train and --num_seeds=1.")
    new_folder_path(folder, "name a new folder with --cross_encoder_dir")


def main(_: list[str]) -> int:
    return run(RerankerConfig, asked_files, execute)


if __name__ == "__main__":
    config_flags.run(main)
