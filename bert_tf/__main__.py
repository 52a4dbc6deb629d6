"""Short names for the programs: `bert-tf pretrain` is `python -m bert_tf.run_pretraining`."""

import difflib
import runpy
import signal
import sys
import textwrap

from bert_tf.system.printable import print_error, show

PROGRAMS = {
    "pretrain": "bert_tf.run_pretraining",
    "classify": "bert_tf.run_classifier",
    "tag": "bert_tf.run_tagger",
    "squad": "bert_tf.run_squad",
    "choose": "bert_tf.run_multiple_choice",
    "retrieve": "bert_tf.run_retriever",
    "mine-negatives": "bert_tf.mine_negatives",
    "rerank": "bert_tf.run_reranker",
    "fill-mask": "bert_tf.fill_mask",
    "score": "bert_tf.score_text",
    "features": "bert_tf.extract_features",
    "distill-static": "bert_tf.distill_static",
    "embed": "bert_tf.embed_texts",
    "index": "bert_tf.build_index",
    "search": "bert_tf.search",
    "vocab": "bert_tf.build_vocab",
    "examples": "bert_tf.create_pretraining_data",
    "show-examples": "bert_tf.show_examples",
    "convert": "bert_tf.convert_checkpoint",
    "doctor": "bert_tf.doctor",
    "launch": "bert_tf.launch",
    "export": "export.saved_model",
    "tflite": "export.tflite",
    "onnx": "export.onnx",
    "check": "export.check",
    "ask": "export.ask",
    "client": "export.serving_client",
    "demo": "export.demo",
}


def main() -> None:
    """Runs the program that the first argument names, with the others as its flags."""
    name = sys.argv[1] if len(sys.argv) > 1 else "--help"
    if name in PROGRAMS:
        del sys.argv[1]
        runpy.run_module(PROGRAMS[name], run_name="__main__", alter_sys=True)
        return
    width = max(map(len, PROGRAMS)) + 2
    lines = [f"  {name:{width}}python -m {module}" for name, module in PROGRAMS.items()]
    text = "\n".join(["bert-tf PROGRAM FLAGS; the flags: bert-tf PROGRAM --help", *lines])
    if name in ("--help", "-h", "help"):
        # Ends like other programs where the reader of a pipe is gone, as in `... | head`.
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
        try:
            show(text)
        except OSError as error:
            print_error(str(error))
            sys.exit(1)
        return
    # The names of the modules as well, as in `python -m bert_tf.run_classifier`.
    names = {module.rpartition(".")[2]: short for short, module in PROGRAMS.items()}
    names |= {short: short for short in PROGRAMS}
    guesses = difflib.get_close_matches(name.lower().replace("_", "-"), PROGRAMS, n=1)
    guesses += [names[near] for near in difflib.get_close_matches(name.lower(), names, n=1)]
    guess = f"; did you mean bert-tf {guesses[0]}?" if guesses else "."
    print_error(f"no program {name!r}{guess}\n" + textwrap.indent(text, "  "))
    sys.exit(1)


if __name__ == "__main__":
    main()
