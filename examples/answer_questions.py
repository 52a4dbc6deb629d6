"""Answers questions about paragraphs: SQuAD's files in, answers and their official scores out.

    PYTHONPATH=. python examples/answer_questions.py --model=all-MiniLM-L6-v2 --data=train-v1.1.json

--model is a BERT in any format that bert_tf reads; without it, a tiny random model is used. --data
is a file in SQuAD 1.1's format; without it, made_up.json is written in that format and used. The
questions of a tenth of the paragraphs are held out. The result is answers.keras in the current
folder.
"""

import argparse
import json
import pathlib
import random

import keras

import bert_tf
from bert_tf.metrics.squad import evaluate_v1
from bert_tf.text.vocab_training import count_words, train_vocab

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
data = json.loads(pathlib.Path(args.data).read_text(encoding="utf8"))["data"]
paragraphs = [paragraph for article in data for paragraph in article["paragraphs"]]
rows = [(row, p["context"]) for p in paragraphs for row in p["qas"]]
later = sum(len(p["qas"]) for p in paragraphs[: len(paragraphs) // 10])
questions, contexts = [row["question"] for row, _ in rows], [context for _, context in rows]
answers = [row["answers"][0] for row, _ in rows]

# The model, with its tokenizer. Rows hold a question and a window of its paragraph.
if args.model:
    load = bert_tf.BertSpanLabeler.from_pretrained
    model = load(args.model, new_head=True, max_seq_length=256)
    options = {"epochs": 2, "learning_rate": 5e-5}
else:
    vocab = bert_tf.Vocab(tuple(train_vocab(count_words([*questions, *contexts], True), 200)))
    preprocessor = bert_tf.BertPreprocessor(vocab, do_lower_case=True, max_seq_length=48)
    config = bert_tf.ModelConfig(len(vocab), 64, 2, 4, 128)
    model = bert_tf.BertSpanLabeler(config, preprocessor=preprocessor)
    options = {"epochs": 6, "learning_rate": 2e-3}


def print_scores(title: str) -> list[str]:
    found = [row["answer"] for row in model.answer(questions[:later], contexts[:later])]
    held_out = {"data": [{"paragraphs": [{"qas": [row for row, _ in rows[:later]]}]}]}
    named = {row["id"]: answer for (row, _), answer in zip(rows, found, strict=False)}
    scores = evaluate_v1(held_out, named)
    print(f"{title}: exact match {scores['exact_match']:.1f}, F1 {scores['f1']:.1f}")
    return found


# Training, and the scores before and after it.
print_scores("Before")
model.fit((questions[later:], contexts[later:]), answers[later:], verbose=2, **options)
found = print_scores("After")
for question, answer, right in list(zip(questions, found, answers, strict=False))[:5]:
    print(f"{question} {answer} (right: {right['text']})")

# Later, or in another program after `import bert_tf`: one file holds all that is needed.
model.save("answers.keras")
loaded = keras.models.load_model("answers.keras")
question, context = "Where did Alan live?", "Born in Bern in 1812, Alan taught natural history."
print(f"{context} {question} {loaded.answer([question], [context])[0]['answer']}")
