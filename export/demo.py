"""Shows a trained model on a web page of this machine, to try it with texts of one's own.

    python -m export.demo --model_dir=runs/sst2
    python -m export.demo --model_dir=runs/base --kind=embeddings --port=8001 --open

prints the address of the page, which shows what the model answers and what its heads look at. The
model is a run directory or a checkpoint in any form; its kind is told by its heads. A link such as
http://127.0.0.1:8000/?text=Fine!&run=1 brings its text along. Nothing leaves the machine. Ctrl-C
ends the program.
"""

import pathlib
import webbrowser

from absl import flags, logging

from bert_tf import config_flags
from export.page.server import DemoServer, is_loopback

FLAGS = flags.FLAGS
flags.DEFINE_string("model_dir", "", "Run directory, or checkpoint in any form.")
flags.DEFINE_string("kind", "", "What it is shown as, as of saved_model; empty: told by its heads.")
flags.DEFINE_integer(
    "max_seq_length", 0, "Most pieces of a row; 0: as in training, or all positions.", lower_bound=0
)
flags.DEFINE_integer("port", 8000, "Port of the page; 0: a free one.", 0, 65535)
flags.DEFINE_string("host", "127.0.0.1", "Address to listen at; another may let others in.")
flags.DEFINE_bool("open", False, "Open the page in a browser.")


def main(_: list[str]) -> int:
    if not FLAGS.model_dir:
        raise ValueError("Give a trained model as --model_dir.")
    with DemoServer(FLAGS.host, FLAGS.port) as server:
        # Behind the port, which is told to be in use at once.
        from export.models import load
        from export.page.model import DemoModel

        served = load(FLAGS.model_dir, FLAGS.kind, FLAGS.max_seq_length)
        server.model = model = DemoModel(
            served, pathlib.Path(FLAGS.model_dir).resolve().name, in_graph=True
        )
        model.warm_up()
        if not is_loopback(FLAGS.host):
            logging.warning(
                "Whoever reaches %s can use this page; it asks for no name.", FLAGS.host
            )
        print(f"{served.kind}: open {server.url} in a browser; Ctrl-C ends.", flush=True)
        if FLAGS.open:
            webbrowser.open(server.url)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            print("\nEnded.")
    return 0


if __name__ == "__main__":
    config_flags.run(main)
