"""The steps that `tpu_check` compiles: programs, their flags, and small files that they read."""

import contextlib
import dataclasses
import json
import pathlib
import random
import string
from typing import Any, NamedTuple

LETTERS = [form + letter for form in ("", "##") for letter in string.ascii_lowercase + ".?"]
SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
WORDS = "the river boat water mill stone house garden king rain night morning slow".split()
SMALL = {"num_hidden_layers": 2, "hidden_size": 128, "num_attention_heads": 2}
SMALL |= {"intermediate_size": 512, "vocab_size": 1000}
STEP = {"do_train": "true", "do_eval": "false", "eval_steps": 0, "num_train_steps": 100}
STEP |= {"num_warmup_steps": 10, "precision": "mixed_bfloat16", "jit_compile": "true"}
STEP |= {"gradient_accumulation_steps": 1, "attention": "by_heads"}
SMALL_BATCH = {"max_seq_length": 64, "max_predictions_per_seq": 10, "train_batch_size": 16}


class Step(NamedTuple):
    """A program and its flags by name; `{folder}` is the folder of `write_inputs`."""

    program: str
    flags: dict[str, Any]


def pretraining(**changes: Any) -> Step:
    """A small model, with changes to its flags."""
    files = {"input_file": "{folder}/text.txt", "vocab_file": "{folder}/vocab1000.txt"}
    return Step("run_pretraining", {**SMALL, **SMALL_BATCH, **STEP, **files, **changes})


def base(length: int, batch_size: int, predictions: int, optimizer: str) -> Step:
    """BERT-Base."""
    files = {"input_file": "{folder}/text.txt", "vocab_file": "{folder}/vocab30522.txt"}
    sizes = {"max_seq_length": length, "train_batch_size": batch_size}
    sizes["max_predictions_per_seq"] = predictions
    return Step("run_pretraining", {**STEP, **files, **sizes, "optimizer": optimizer})


def fine_tuning(program: str, train_file: str, **changes: Any) -> Step:
    """A small model with the head of a program."""
    files = {"init_checkpoint": "{folder}/model", "train_file": f"{{folder}}/{train_file}"}
    sizes = {"max_seq_length": 64, "train_batch_size": 16}
    return Step(program, {**STEP, **files, **sizes, **changes})


def order(objective: str, position_type: str) -> Step:
    """An objective that predicts tokens in an order."""
    options = f"position_type={position_type}"
    return pretraining(objective=objective, pairs="none", model_options=options)


BASE_STEPS = {
    "BERT-Base, 64 x 128, AdamWeightDecay": base(128, 64, 20, "adam_weight_decay"),
    "BERT-Base, 16 x 512, LAMB": base(512, 16, 77, "lamb"),
}
STEPS = {
    **BASE_STEPS,
    "masked words and next sentence": pretraining(),
    "replaced tokens (ELECTRA)": pretraining(
        objective="replaced_tokens", masking="dynamic", pairs="none"
    ),
    "permuted order (XLNet)": order("permuted_lm", "transformer_xl"),
    "permuted order with masks (MPNet)": order("masked_permuted_lm", "learned_relative"),
    "masked diffusion": pretraining(objective="masked_diffusion", masking="dynamic"),
    "distillation": pretraining(teacher="{folder}/model"),
    "ModernBERT, local attention": pretraining(
        architecture="modernbert",
        tokenizer="wordpiece",
        pairs="none",
        max_seq_length=1024,
        max_predictions_per_seq=154,
        num_hidden_layers=3,
    ),
    "ALBERT": pretraining(architecture="albert", tokenizer="wordpiece"),
    "disentangled positions (DeBERTa)": pretraining(model_options="position_type=disentangled"),
    "AdamW": pretraining(optimizer="adamw"),
    "LAMB, 4 micro-batches": pretraining(optimizer="lamb", gradient_accumulation_steps=4),
    "Muon": pretraining(optimizer="muon"),
    "recomputed layers": pretraining(recompute="true"),
    "packed rows": pretraining(pack_rows="true"),
    "float16 with a loss scale": pretraining(precision="mixed_float16"),
    "run_classifier": fine_tuning("run_classifier", "classes.jsonl"),
    "run_tagger": fine_tuning("run_tagger", "tags.txt"),
    "run_squad": fine_tuning("run_squad", "squad.json", max_query_length=16, doc_stride=16),
    "run_multiple_choice": fine_tuning("run_multiple_choice", "choices.jsonl"),
    "run_reranker": fine_tuning("run_reranker", "ranking.jsonl"),
    "run_retriever": fine_tuning("run_retriever", "ranking.jsonl"),
}


def write_inputs(folder: pathlib.Path) -> None:
    """Writes the files that the flags of `STEPS` name."""
    draw = random.Random(0)

    def sentence() -> str:
        return " ".join(draw.choices(WORDS, k=12)) + "."

    for size in (1000, 30522):
        tokens = [*SPECIAL_TOKENS, *LETTERS, *WORDS]
        tokens += [f"[unused{number}]" for number in range(size - len(tokens))]
        text = "\n".join(tokens) + "\n"
        (folder / f"vocab{size}.txt").write_text(text, encoding="utf8")
    documents = ["\n".join(sentence() for _ in range(40)) for _ in range(60)]
    (folder / "text.txt").write_text("\n\n".join(documents), encoding="utf8")
    tagged = ["".join(f"{word} B-X\n" for word in sentence().split()) for _ in range(64)]
    (folder / "tags.txt").write_text("\n".join(tagged), encoding="utf8")
    questions = []
    for number in range(64):
        context = sentence()
        answer = {"text": context.split()[0], "answer_start": 0}
        question = {"id": str(number), "question": "what?", "answers": [answer]}
        questions.append({"context": context, "qas": [question]})
    squad = {"version": "1.1", "data": [{"title": "", "paragraphs": questions}]}
    (folder / "squad.json").write_text(json.dumps(squad), encoding="utf8")
    names = ("classes", "choices", "ranking")
    files = [(folder / f"{name}.jsonl").open("w", encoding="utf8") for name in names]
    with contextlib.ExitStack() as stack:
        classes, choices, ranking = map(stack.enter_context, files)
        for number in range(64):
            print(json.dumps({"text": sentence(), "label": number % 2}), file=classes)
            choice = {"context": sentence(), "choices": [sentence(), sentence()], "label": 1}
            print(json.dumps(choice), file=choices)
            judged = {"query": sentence(), "positive": sentence(), "negatives": [sentence()]}
            print(json.dumps(judged), file=ranking)
    write_model(folder / "model", folder / "vocab1000.txt")


def write_model(folder: pathlib.Path, vocab_file: pathlib.Path) -> None:
    """Writes a small random model to fine-tune, which is also a teacher."""
    from bert_tf.checkpoints.formats import write_checkpoint
    from bert_tf.config import ModelConfig
    from bert_tf.pretraining.masked_words.model import BertPretrainer
    from bert_tf.text.tokenization import read_vocab

    made = BertPretrainer(ModelConfig(**SMALL)).to_checkpoint()
    made = dataclasses.replace(made, vocab=read_vocab(vocab_file))
    write_checkpoint(made, folder, "bert_tf")
