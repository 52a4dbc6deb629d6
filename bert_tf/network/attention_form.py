"""The form in which a trace computes attention; the numbers are the same up to rounding.

  plain        queries, keys and values are [R, T, N, H]: best on CPUs
  by_heads     they are [R, N, T, H], as three products make them; XLA for TPUs then needs no copies
               that transpose them, a sixth of the step of BERT-Base
  fused        one kernel on GPUs, see `fused_attention.py`

Attention that a form cannot compute stays plain: by_heads with memories, query streams or blocks of
local attention; fused with anything but products of the tokens of a row.
"""

import contextlib
import contextvars
from collections.abc import Iterator

_FORM = contextvars.ContextVar("attention_form", default="plain")


@contextlib.contextmanager
def attention_form(form: str) -> Iterator[None]:
    """Traces the attention inside in a form."""
    token = _FORM.set(form)
    try:
        yield
    finally:
        _FORM.reset(token)


def current_form() -> str:
    """Returns the form of the attention that is traced."""
    return _FORM.get()
