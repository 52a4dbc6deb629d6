"""Answers questions about paragraphs: SQuAD's files in, answers and their official scores out.

    PYTHONPATH=. python examples/answer_questions.py --model=all-MiniLM-L6-v2 --data=train-v1.1.json

--model is a BERT in any form that bert_tf reads; without it, a tiny one starts at random. --data
has the form of SQuAD 1.1; without it, made_up.json is written in that form and taken. The questions
of a tenth of the paragraphs are held out. The results are answers.keras and answers_vocab.txt in
the current folder.
"""

import argparse
import json
import pathlib
import random
from collections.abc import Sequence

import keras

from bert_tf.checkpoints.formats import read_checkpoint
from bert_tf.config import ModelConfig, OptimizerConfig
from bert_tf.metrics.squad import evaluate_v1
from bert_tf.modeling.models import BertSpanLabeler
from bert_tf.optimization.optimizers import build_optimizer
from bert_tf.tasks import squad_features
from bert_tf.tasks.squad_answers import make_predictions
from bert_tf.tasks.squad_features import SquadQuestion
from bert_tf.text.vocab import Vocab
from bert_tf.text.vocab_training import count_words, train_vocab
from bert_tf.text.wordpiece import WordPiece

parser = argparse.ArgumentParser()
parser.add_argument("--model", default="", help="a checkpoint; none: a tiny random model")
parser.add_argument("--data", default="made_up.json", help="SQuAD's JSON; none: made up")
args = parser.parse_args()
keras.utils.set_random_seed(1)
draw = random.Random(1)

# Paragraphs with questions. An answer is a part of its paragraph, found by its first character.
if args.data == "made_up.json":
    names = {"who": "Ada Emmy Grace Kurt Alan Leonhard Sofia Carl".split()}
    names["where"] = ["Paris", "New Delhi", "Oslo", "Rio de Janeiro", "Bern", "Cape Town"]
    names["when"] = [str(year) for year in range(1811, 1831)]
    names["what"] = ["music", "natural history", "law", "the theory of numbers", "Latin"]
    forms = ["Born in {where} in {when}, {who} taught {what}."]
    forms += ["{who}, born {when}, chose {what} and lived in {where}."]
    asked = {"where": "Where did {who} live?", "when": "In which year was {who} born?"}
    asked["what"] = "What was the subject of {who}?"
    paragraphs = []
    for number in range(400):
        facts = {kind: draw.choice(texts) for kind, texts in names.items()}
        context = draw.choice(forms).format(**facts)
        rows = []
        for kind, form in asked.items():
            marked = [{"text": facts[kind], "answer_start": context.index(facts[kind])}]
            ask = form.format(**facts)
            rows.append({"id": f"{number}-{kind}", "question": ask, "answers": marked})
        paragraphs.append({"context": context, "qas": rows})
    made = {"version": "1.1", "data": [{"title": "Lives", "paragraphs": paragraphs}]}
    pathlib.Path(args.data).write_text(json.dumps(made), encoding="utf8")
questions = squad_features.read_squad(args.data, is_training=True, version_2=False)
contexts = list(dict.fromkeys(question.context for question in questions))
later = set(contexts[: len(contexts) // 10])
held_out = [question for question in questions if question.context in later]
train = [question for question in questions if question.context not in later]

# The model and its tokenizer. Rows hold a question and a window of its paragraph.
if args.model:
    checkpoint = read_checkpoint(args.model)
    tokenizer = WordPiece(checkpoint.vocab, checkpoint.config.do_lower_case)
    model = BertSpanLabeler.from_checkpoint(checkpoint, ["cls/"])
    length, learning_rate, epochs = 256, 5e-5, 2
else:
    texts = [text for question in train for text in (question.question, question.context)]
    tokenizer = WordPiece(Vocab(tuple(train_vocab(count_words(texts, True), 200))), True)
    model = BertSpanLabeler(ModelConfig(200, 64, 2, 4, 128))
    length, learning_rate, epochs = 48, 2e-3, 6
tokenizer.vocab.write("answers_vocab.txt")


def make_rows(questions: Sequence[SquadQuestion]) -> list[squad_features.SquadFeature]:
    sizes = (length, length // 2, length // 4)  # of rows, from window to window, of questions
    return [row for q in questions for row in squad_features.make_features(q, tokenizer, *sizes)]


def answer(model: keras.Model, questions: Sequence[SquadQuestion]) -> dict[str, str]:
    """Returns the best answer to each question, by its id."""
    rows = make_rows(questions)
    scores = model.predict(squad_features.pad_features(rows, length), verbose=0)
    starts, ends = scores["start_logits"], scores["end_logits"]
    return make_predictions(questions, rows, starts, ends, version_2=False).predictions


def print_scores(title: str, found: dict[str, str]) -> None:
    rows = [{"id": q.id, "answers": [answer._asdict() for answer in q.answers]} for q in held_out]
    scores = evaluate_v1({"data": [{"paragraphs": [{"qas": rows}]}]}, found)
    print(f"{title}: exact match {scores['exact_match']:.1f}, F1 {scores['f1']:.1f}")


# Training, and the scores before and after it. The labels are named as the model's outputs.
inputs = squad_features.pad_features(make_rows(train), length)
labels = {"start_logits": inputs["start_positions"], "end_logits": inputs["end_positions"]}
steps = epochs * -(-len(inputs["start_positions"]) // 32)
optimizer = build_optimizer(OptimizerConfig("adamw", learning_rate, steps, steps // 10))
loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
model.compile(optimizer, dict.fromkeys(labels, loss), jit_compile=False)
print_scores("Before", answer(model, held_out))
model.fit(inputs, labels, batch_size=32, epochs=epochs, verbose=2)
found = answer(model, held_out)
print_scores("After", found)
for question in held_out[:5]:
    print(f"{question.question} {found[question.id]} (right: {question.answers[0].text})")

# Later, or in another program after `import bert_tf`: the model from its file, its vocabulary from
# the other.
model.save("answers.keras")
loaded = keras.models.load_model("answers.keras")
context = "Born in Bern in 1812, Alan taught natural history."
typed = [SquadQuestion("1", "Where did Alan live?", context, None, (), False)]
print(f"{context} {typed[0].question} {answer(loaded, typed)['1']}")
