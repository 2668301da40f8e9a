"""Pairwise mode: the merge where in every round a rank sends only to the rank that it receives from.

That is the form of the published schedules. `pairwise_rounds` (build.py) lays tiles (layout.py) into a
steady pattern whose copies are swaps (pattern.py), runs it (steady.py), and finishes with matchings
(finish.py). `pairwise_bound` and `check_pairwise` (rules.py) say what pairing costs at least, and that
a result obeys it.
"""

from .build import pairwise_rounds
from .rules import check_pairwise, pairwise_bound

__all__ = ["check_pairwise", "pairwise_bound", "pairwise_rounds"]
