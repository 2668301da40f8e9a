"""The one thing asked of scipy, imported where it is used: it takes a quarter of a second."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from .rounds import IntArray


def best_matching(worth: NDArray[Any]) -> tuple[IntArray, IntArray]:
    """Senders and receivers of a perfect matching of most worth in all; `worth` is square, [src, dst]."""
    from scipy.optimize import linear_sum_assignment

    src, dst = linear_sum_assignment(worth, maximize=True)
    return src.astype(np.int64), dst.astype(np.int64)
