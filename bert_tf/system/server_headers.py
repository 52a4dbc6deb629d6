"""Logs damaged headers of a server as one line; urllib3 adds the traceback of its parser."""

import logging

from bert_tf.system.printable import escaped

MOST_CHARACTERS = 300


def log_headers_briefly() -> None:
    """Shortens urllib3's warnings about headers in this process to one line without traceback."""
    # The same filter is added once only.
    logging.getLogger("urllib3.connection").addFilter(_shorten)


def _shorten(record: logging.LogRecord) -> bool:
    if record.exc_info:
        record.msg = escaped(record.getMessage())[:MOST_CHARACTERS]
        record.args = ()
        record.exc_info = None
        record.exc_text = None
    return True
