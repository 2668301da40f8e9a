"""The post phase of the merge family: one late rank joins early ranks that hold partial sums.

`merge_rounds` (build.py) chooses a steady pattern (pattern.py) laid as tiles (tiles.py) or stored, unrolls
it to rounds (unroll.py) and has them replayed (verify.py). `ring_of_three` (three.py) is the case of
three ranks, where swaps are not enough.
"""

from .build import merge_rounds
from .rounds import InvalidMergeError, MergeRounds
from .three import ring_of_three
from .verify import check_merge_rounds

__all__ = ["InvalidMergeError", "MergeRounds", "check_merge_rounds", "merge_rounds", "ring_of_three"]
