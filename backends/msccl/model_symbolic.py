"""Inputs whose sum tells who contributed what, and the reading of such sums.

Each element is a vector with one number a rank. Rank r puts `1 + place * 2**16` at its own position,
so that after any additions the low 16 bits count how often r's parts went in, and the rest says which
element they were. A result is right exactly where every position holds its own element once.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

_COUNT_BITS = 16
_SHOWN = 8


def symbolic_inputs(ranks: int, elements: int) -> list[NDArray[np.int64]]:
    """The input of every rank: `elements` rows of `ranks` numbers."""
    inputs = []
    for rank in range(ranks):
        array = np.zeros((elements, ranks), dtype=np.int64)
        array[:, rank] = _marks(elements)
        inputs.append(array)
    return inputs


def wrong_results(rank: int, output: NDArray[np.int64], chunk: int) -> list[str]:
    """What is wrong with the output of one rank, in words; `chunk` is elements a chunk."""
    expected = np.broadcast_to(_marks(len(output))[:, None], output.shape)
    places = np.argwhere(output != expected)
    texts = list(dict.fromkeys(_says(rank, output, chunk, places)))
    if len(texts) > _SHOWN:
        texts[_SHOWN:] = [f"rank {rank} ends with {len(texts) - _SHOWN} more wrong parts"]
    return texts


def _marks(elements: int) -> NDArray[np.int64]:
    return 1 + (np.arange(elements, dtype=np.int64) + 1 << _COUNT_BITS)


def _says(rank: int, output: NDArray[np.int64], chunk: int, places: NDArray[np.intp]) -> Iterator[str]:
    for row, peer in places.tolist():
        value = int(output[row, peer])
        count, place = value & (1 << _COUNT_BITS) - 1, value >> _COUNT_BITS
        part = f"rank {peer}'s part of chunk {row // chunk}"
        if count == 0:
            yield f"rank {rank} ends without {part}"
        elif count > 1:
            yield f"rank {rank} ends with {part} counted {'twice' if count == 2 else f'{count} times'}"
        elif 0 < place <= len(output) and (place - 1) // chunk != row // chunk:
            came = f"rank {peer}'s part of chunk {(place - 1) // chunk}"
            yield f"rank {rank} ends with {came} in chunk {row // chunk}"
        else:
            yield f"rank {rank} ends with elements of {part} out of place"
