"""Shows a trained model on a web page of this machine, to try it with texts of one's own.

    pip install '.[demo]'
    python -m export.demo --model_dir=runs/sst2
    python -m export.demo --model_dir=runs/base --kind=embeddings --port=8001 --open
    python -m export.demo --index=notes.index

prints the address of the page, which shows what the model answers and what its heads look at. A
link such as http://127.0.0.1:8000/?text=Fine!&run=1 brings its text along. Nothing leaves the
machine. Ctrl-C ends the program.
"""

import contextlib
import dataclasses
import signal
import socket
import webbrowser

from absl import logging

from bert_tf import config_flags, printable
from bert_tf.config import Config, option
from bert_tf.extras import install_hint


@dataclasses.dataclass(frozen=True)
class DemoConfig(Config):
    """Flags of this program."""

    model_dir: str = option("", "Run directory, .keras file, or checkpoint in any form.")
    index: str = option("", "Index of bert_tf.build_index, to search it on the page.")
    rerank: str = option("", "A cross-encoder that orders what is found in --index.")
    kind: str = option(
        "", "Kind to show, as in export.saved_model; empty: determined by the heads."
    )
    max_seq_length: int = option(
        0, "Maximum length of a row; 0: as in training, or all positions.", lower=0
    )
    port: int = option(8000, "Port of the page; 0: a free one.", lower=0, upper=65535)
    host: str = option("127.0.0.1", "Address to listen at; another may let others in.")
    open: bool = option(False, "Open the page in a browser.")


def main(_: list[str]) -> None:
    show(config_flags.from_flags(DemoConfig))


def show(config: DemoConfig) -> None:
    """Serves the page until a signal ends it.

    Raises:
      ValueError: if there is no model, or Starlette or uvicorn is not installed.
      OSError: if the address is no address of this machine, or the port is in use.
    """
    if not (config.model_dir or config.index):
        raise ValueError("Give a trained model as --model_dir, or an index as --index.")
    if config.kind not in ("", "search") and config.index:
        raise ValueError(f"--index is searched; leave --kind={config.kind} out.")
    if config.kind == "search" and not config.index:
        raise ValueError("--kind=search needs the index of the documents; give --index.")
    if config.rerank and not config.index:
        raise ValueError("--rerank orders what is found in --index; give both.")
    try:
        from export.page import server
    except ModuleNotFoundError as error:
        raise ValueError(f"The page needs {error.name}; {install_hint('demo')}.") from None

    signal.signal(signal.SIGTERM, signal.default_int_handler)  # Ends it as Ctrl-C does.
    with listen(config.host, config.port) as listener:
        # TensorFlow, behind the port, which is told to be in use at once.
        from export.page.model import load_model

        kind, options = config.kind, {}
        if config.index:
            kind, options = "search", {"index": config.index, "rerank": config.rerank}
        model = load_model(config.model_dir, kind, config.max_seq_length, **options)
        if config.host not in ("127.0.0.1", "::1", "localhost"):
            logging.warning("Whoever reaches %s can use this page.", config.host)
        host = f"[{config.host}]" if ":" in config.host else config.host
        url = f"http://{host}:{listener.getsockname()[1]}/"
        printable.show(f"{model.kind}: open {url} in a browser; Ctrl-C ends.")
        if config.open:
            webbrowser.open(url)
        with contextlib.suppress(KeyboardInterrupt):
            server.make_server(model, config.host).run(sockets=[listener])
        printable.show("\nEnded.")


def listen(host: str, port: int) -> socket.socket:
    """Returns a socket that listens; raises OSError with what to change."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family)
    except OSError as error:
        place = f"Cannot listen at {host}, port {port}"
        remedy = "give another --port (0: any) or --host."
        raise OSError(f"{place}: {error.strerror}; {remedy}") from None


if __name__ == "__main__":
    # Not when the module is imported: another program may have flags of the same names.
    config_flags.define_flags(DemoConfig)
    config_flags.run(main)
