"""Computes the embeddings and scores of the sentence-transformers folders again.

    pip install torch==2.13.0 transformers==4.57.6 sentence-transformers==5.2.3 sentencepiece
    python tests/golden/remake_sentence_transformers.py

Prints the largest difference of each folder, and exits with status 1 if one is above 1e-5."""

import pathlib
import sys

import numpy as np
import sentence_transformers
from archives import SUFFIX, unpacked

FAMILIES = pathlib.Path(__file__).resolve().parent / "families"
FOLDERS = (
    "sentence_transformers/cls",
    "sentence_transformers/mean_dense_tanh",
    "sentence_transformers/mean_normalize",
    "multilingual_sentence/e5",
    "multilingual_sentence/paraphrase",
    "mpnet/sentence",
)
TOLERANCE = 1e-5


def golden_folder(name: str) -> pathlib.Path:
    """Returns a folder of a family, from the family's archive."""
    family, _, folder = name.partition("/")
    return unpacked(FAMILIES / f"{family}{SUFFIX}") / folder


def embedding_difference(folder: pathlib.Path) -> float:
    """Returns the largest difference of the embeddings, with each prompt that is recorded."""
    golden = np.load(folder / "golden.npz")
    model = sentence_transformers.SentenceTransformer(str(folder), device="cpu")
    sentences = golden["in_sentences"].tolist()
    largest = 0.0
    for name in golden.files:
        if name.startswith("out_embeddings"):
            prompt = name.removeprefix("out_embeddings").strip("_") or None
            received = model.encode(sentences, prompt_name=prompt, convert_to_numpy=True)
            largest = max(largest, float(np.abs(received - golden[name]).max()))
    return largest


def score_difference(folder: pathlib.Path) -> float:
    """Returns the largest difference of a cross-encoder's scores."""
    golden = np.load(folder / "golden.npz")
    model = sentence_transformers.CrossEncoder(str(folder), device="cpu")
    received = model.predict([tuple(pair) for pair in golden["in_pairs"].tolist()])
    return float(np.abs(received - golden["out_scores"]).max())


def main() -> None:
    differences = {}
    for name in FOLDERS:
        differences[name] = embedding_difference(golden_folder(name))
    cross_encoder = "sentence_transformers/cross_encoder"
    differences[cross_encoder] = score_difference(golden_folder(cross_encoder))
    for name, difference in differences.items():
        print(f"{name}: largest difference {difference:.1e}")
    sys.exit(int(max(differences.values()) > TOLERANCE))


if __name__ == "__main__":
    main()
