"""Exact mode: a solver decides whether a post phase of T rounds exists, for a few ranks.

`exact_rounds` (search.py) builds the whole problem as a CP-SAT model (model.py) that presupposes nothing
of our constructions, and turns an answer into rounds with every needless transfer left out (moves.py).
"""

from .search import ExactResult, exact_rounds

__all__ = ["ExactResult", "exact_rounds"]
