"""The examples of a batch that one worker reads."""

from typing import NamedTuple

import numpy as np


class InputShard(NamedTuple):
    """The part of every global batch that this worker makes."""

    worker_index: int = 0
    num_workers: int = 1

    def rows(self, batch_size: int) -> np.ndarray:
        """Returns the indices of its rows in the global batch, int64 [B / W].

        Raises:
          ValueError: if the batch cannot be dealt evenly.
        """
        if batch_size % self.num_workers:
            raise ValueError(
                f"The batch size {batch_size} is not a multiple of the {self.num_workers} workers; "
                "change one of them."
            )
        return np.arange(batch_size).reshape(self.num_workers, -1)[self.worker_index]


ALL = InputShard()
