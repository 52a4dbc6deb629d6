"""The tokenizer that files of a checkpoint make: its vocabulary and casing, and remarks on them."""

import dataclasses
from typing import TypeVar

from bert_tf.config import ModelConfig
from bert_tf.text.kinds import with_vocabulary
from bert_tf.text.tokenization import AnyVocab

AnyT = TypeVar("AnyT", bound=AnyVocab)


@dataclasses.dataclass(frozen=True)
class FoundTokenizer:
    """The tokenizer of a folder."""

    vocab: AnyVocab | None  # None without a vocabulary
    # The casing as stated, else as inferred from the tokens; None if unknown.
    do_lower_case: bool | None
    stated: bool | None  # the casing that the files state
    notes: tuple[str, ...] = ()  # remarks for the user, one sentence each

    def applied_to(self, config: ModelConfig, source: str) -> ModelConfig:
        """Returns the configuration with this casing, if there is one, and this vocabulary.

        Raises:
          ValueError: if positions are counted from a padding id that is not the vocabulary's.
        """
        if self.do_lower_case is not None:
            config = dataclasses.replace(config, do_lower_case=self.do_lower_case)
        if self.vocab is None:
            return config
        pad_id = self.vocab.pad_id
        if config.position_offset and config.pad_token_id != pad_id:
            raise ValueError(
                f"{source}: pad_token_id is {config.pad_token_id}, but the vocabulary's padding is "
                f"{pad_id}; positions count from it, so correct the one that is wrong."
            )
        return with_vocabulary(config, self.vocab)


def fill_up(vocab: AnyT, num_rows: int | None, source: str) -> tuple[AnyT, tuple[str, ...]]:
    """Names the extra rows of a table beyond its vocabulary (some are padded to a multiple of 8).

    Without a table, `num_rows` None, nothing changes.

    Raises:
      ValueError: if the vocabulary is longer than the table.
    """
    if num_rows is None:
        return vocab, ()
    missing = num_rows - len(vocab)
    if missing < 0:
        raise ValueError(
            f"{source}: the vocabulary has {len(vocab)} tokens, but the word table only "
            f"{num_rows} rows; they do not belong together."
        )
    if not missing:
        return vocab, ()
    names = tuple(f"[row{index}]" for index in range(len(vocab), num_rows))
    note = f"The word table has {missing} rows beyond the vocabulary; they are named {names[0]} .."
    return dataclasses.replace(vocab, tokens=(*vocab.tokens, *names)), (note,)
