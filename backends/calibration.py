"""From measured message times to a link: a robust fit of alpha + beta * bytes, with what it leaves over."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..schedules import Link, RunError, UsageError

_HUBER = 1.345
"""Residuals beyond so many standard deviations count less: 95 % as sharp as least squares on clean data."""

_ITERATIONS = 50
_MAD = 1.4826

Values = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Fit:
    """A fitted link.

    Attributes:
        link: alpha and bandwidth.
        residuals: for every measurement measured / modelled - 1.
        spread: robust standard deviation of the residuals.
    """

    link: Link
    residuals: tuple[float, ...]
    spread: float


def fit_link(sizes: Sequence[float], seconds: Sequence[float]) -> Fit:
    """Fits alpha + beta * size to measured seconds.

    Errors are taken as relative: a microsecond matters for 1 KiB and is nothing for 16 MiB. Huber's
    weights, so that a few bad measurements do not matter; alpha is held at 0 where the best were below.

    Args:
        sizes: bytes of each message, at least three different sizes.
        seconds: what it took.

    Raises:
        UsageError: too few sizes, or numbers that are no sizes or times.
        RunError: the times do not grow with the size.
    """
    size, time = np.array(sizes, dtype=np.float64), np.array(seconds, dtype=np.float64)
    if size.shape != time.shape or size.ndim != 1 or len(np.unique(size)) < 3:
        raise UsageError("a fit needs messages of three sizes or more, and a time for each")
    if not (np.isfinite(size).all() and np.isfinite(time).all() and (size >= 0).all() and (time > 0).all()):
        raise UsageError("a fit needs finite sizes and times above 0")
    model, alpha, beta = time, 0.0, 0.0
    weights = np.ones(len(time))
    for _ in range(_ITERATIONS):
        before = (alpha, beta)
        alpha, beta = _weighted(size, time, weights / model**2)
        if beta <= 0:
            raise RunError("the measured times do not grow with the size: no bandwidth to tell")
        model = alpha + beta * size
        if (model <= 0).any():  # a size of 0 with alpha 0
            raise RunError("the measured times fit no latency: leave out messages of 0 bytes")
        residuals = time / model - 1
        weights = _huber(residuals)
        if np.allclose((alpha, beta), before, rtol=1e-10, atol=0):
            break
    return Fit(Link(alpha, 1 / beta), tuple(residuals.tolist()), _spread(residuals))


def _weighted(size: Values, time: Values, weights: Values) -> tuple[float, float]:
    """Least squares of alpha + beta * size, alpha not below 0."""
    total = weights.sum()
    centre, mean = (weights * size).sum() / total, (weights * time).sum() / total
    beta = (weights * (size - centre) * (time - mean)).sum() / (weights * (size - centre) ** 2).sum()
    alpha = mean - beta * centre
    if alpha >= 0:
        return float(alpha), float(beta)
    return 0.0, float((weights * size * time).sum() / (weights * size**2).sum())


def _huber(residuals: Values) -> Values:
    limit = _HUBER * max(_spread(residuals), 1e-9)
    result: Values = limit / np.maximum(np.abs(residuals), limit)
    return result


def _spread(residuals: Values) -> float:
    return float(_MAD * np.median(np.abs(residuals)))
