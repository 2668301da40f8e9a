"""From a request to a schedule: baselines, the straggler-aware constructions, their solvers."""

from .families import ALGORITHMS, synthesize
from .request import Request

__all__ = ["ALGORITHMS", "Request", "synthesize"]
