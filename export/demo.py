"""Shows a trained model on a local web page, where users can try their texts.

    pip install '.[demo]'
    python -m export.demo --model_dir=runs/sst2
    python -m export.demo --model_dir=runs/base --kind=embeddings --port=8001 --open
    python -m export.demo --index=notes.index

prints the address of the page, which shows the model's answers and the attention of its heads. A
link such as http://127.0.0.1:8000/?text=Fine!&run=1 includes a text. No data leave the machine.
Ctrl-C ends the program.
"""

import contextlib
import dataclasses
import signal
import socket
import webbrowser

from absl import logging

from bert_tf.config import Config, config_flags, option
from bert_tf.system import printable
from bert_tf.system.extras import install_hint


@dataclasses.dataclass(frozen=True)
class DemoConfig(Config):
    """Flags of this program."""

    model_dir: str = option("", "Run directory, .keras file, or checkpoint in any form.")
    index: str = option("", "Index of bert_tf.build_index to search on the page.")
    rerank: str = option("", "A cross-encoder that reorders the results of --index.")
    kind: str = option(
        "", "Kind to show, as in export.saved_model; empty: determined by the heads."
    )
    max_seq_length: int = option(
        0, "Maximum tokens of an example; 0: as in training, or all positions.", lower=0
    )
    port: int = option(8000, "Port of the page; 0: a free port.", lower=0, upper=65535)
    host: str = option(
        "127.0.0.1", "Address to listen at; others may be reachable from other machines."
    )
    open: bool = option(False, "Open the page in a browser.")


def main(_: list[str]) -> None:
    show(config_flags.from_flags(DemoConfig))


def show(config: DemoConfig) -> None:
    """Serves the page until a signal ends it.

    Raises:
      ValueError: if there is no model, or Starlette or uvicorn is not installed.
      OSError: if the address does not belong to this machine, or the port is in use.
    """
    if not (config.model_dir or config.index):
        raise ValueError("Give a trained model as --model_dir, or an index as --index.")
    if config.kind not in ("", "search") and config.index:
        raise ValueError(f"--index is searched; leave --kind={config.kind} out.")
    if config.kind == "search" and not config.index:
        raise ValueError("--kind=search needs the index of the documents; give --index.")
    if config.rerank and not config.index:
        raise ValueError("--rerank reorders the results of --index; give both.")
    try:
        from export.page import server
    except ModuleNotFoundError as error:
        raise ValueError(f"The page needs {error.name}; {install_hint('demo')}.") from None

    signal.signal(signal.SIGTERM, signal.default_int_handler)  # SIGTERM has the effect of Ctrl-C.
    with listen(config.host, config.port) as listener:
        # TensorFlow is loaded after the port is opened, so that a port in use is reported at once.
        from export.page.model import load_model

        kind = config.kind
        options = {}
        if config.index:
            kind = "search"
            options = {"index": config.index, "rerank": config.rerank}
        model = load_model(config.model_dir, kind, config.max_seq_length, **options)
        if config.host not in ("127.0.0.1", "::1", "localhost"):
            logging.warning("The page is open to every machine that can reach %s.", config.host)
        host = f"[{config.host}]" if ":" in config.host else config.host
        url = f"http://{host}:{listener.getsockname()[1]}/"
        printable.show(f"{model.kind}: open {url} in a browser; Ctrl-C ends.")
        if config.open:
            webbrowser.open(url)
        with contextlib.suppress(KeyboardInterrupt):
            server.make_server(model, config.host).run(sockets=[listener])
        printable.show("\nEnded.")


def listen(host: str, port: int) -> socket.socket:
    """Returns a listening socket; raises OSError with a remedy."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family)
    except OSError as error:
        raise OSError(
            f"Cannot listen at {host}, port {port}: {error.strerror}; give another --port (0: any) "
            "or --host."
        ) from None


if __name__ == "__main__":
    # Defined here and not on import, because another program may have flags of the same names.
    config_flags.define_flags(DemoConfig)
    config_flags.run(main)
