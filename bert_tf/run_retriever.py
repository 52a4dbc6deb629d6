"""Fine-tunes BERT to embed texts for search and similarity, and evaluates embeddings.

    python -m bert_tf.run_retriever --do_eval --init_checkpoint=all-MiniLM-L6-v2 \\
        --data_dir=scifact --output_dir=runs/minilm
    python -m bert_tf.run_retriever --do_train --do_eval --init_checkpoint=all-MiniLM-L6-v2 \\
        --train_file=mined.jsonl --data_dir=scifact --output_dir=runs/mine
    python -m bert_tf.run_retriever --do_train --init_checkpoint=uncased_L-12_H-768_A-12.zip \\
        --train_file=texts.txt --retrieval_loss=denoising --output_dir=runs/tsdae

Examples are pairs, triplets, scored pairs or lists in CSV, TSV and JSONL, texts alone, or a BEIR
folder; see `bert_tf/tasks/embedding/examples.py`. A file of scored pairs as --eval_file is
evaluated by correlation, BEIR folders as --data_dir by ranking, several of them also by their mean.
"""

import pathlib

from bert_tf.config import config_flags
from bert_tf.config.ranking_config import RetrieverConfig
from bert_tf.config.rules import check_rules
from bert_tf.tasks.base.programs.program import Configs, asked_for, define_flags, run
from bert_tf.tasks.embedding.inputs import RETRIEVER_RULES, read_to_embed

define_flags(RetrieverConfig)


def find_files(configs: Configs) -> dict[str, str]:
    """Returns files by use; for a BEIR folder, the file of the split in qrels/."""
    task = configs.task
    asked = asked_for(configs)
    check_rules(RETRIEVER_RULES, configs)
    named = {"train": configs.tuning.train_file, "eval": configs.data.eval_file}
    splits = {"train": task.train_split, "eval": task.eval_split}
    files = {}
    for use, flag in asked.items():
        if not flag:
            continue
        if named[use]:
            files[use] = named[use]
        elif len(task.data_dirs) > 1 and use == "train":
            raise ValueError(
                f"--data_dir={task.data_dir} names several folders, which are evaluated alone; "
                "give the examples to train on as --train_file."
            )
        elif task.data_dir:
            judgments = f"{splits[use]}.tsv"
            paths = [str(pathlib.Path(path, "qrels", judgments)) for path in task.data_dirs]
            files[use] = ",".join(paths)
        else:
            raise ValueError(f"{flag} needs examples: give --{use}_file, or a --data_dir of BEIR.")
    return files


def execute(configs: Configs, files: dict[str, str]) -> int:
    read = read_to_embed(configs, files)
    from bert_tf.tasks.base.programs import run
    from bert_tf.tasks.embedding.program import PROGRAMS, DenoisingRetriever

    program = PROGRAMS[configs.task.embedding_type]
    if configs.task.retrieval_loss == "denoising":
        program = DenoisingRetriever
    return run.run_program(program(configs, files, read), configs)


def main(_: list[str]) -> int:
    return run(RetrieverConfig, find_files, execute)


if __name__ == "__main__":
    config_flags.run(main)
