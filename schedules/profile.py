"""A profile: alpha and bandwidth of the links of some machine, in a small file; measured or written by hand.

    {"format": "stragglar-profile", "version": 1,
     "alpha_seconds": 3e-06, "bandwidth_bytes_per_second": 4.8e+11, "measured": {...}}

`measured` is optional and free: how the numbers came about, for people. Files are untrusted.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any, NoReturn

from .cost import Link
from .errors import FormatError
from .files import read_bounded, write_atomic

FORMAT = "stragglar-profile"
VERSION = 1
MAX_PROFILE_BYTES = 1 << 20

MAX_ALPHA = 60.0
BANDWIDTHS = (1.0, 1e18)
"""Seconds and bytes a second outside which a number in a file is a mistake, such as a wrong unit."""

_KEYS = {"format", "version", "alpha_seconds", "bandwidth_bytes_per_second"}


@dataclass(frozen=True, slots=True)
class Profile:
    """A link and where its numbers come from.

    Attributes:
        link: alpha and bandwidth.
        measured: plain JSON values: machine, date, library, sizes, residuals; empty where written by hand.
    """

    link: Link
    measured: dict[str, Any] = field(default_factory=dict)


def dump_profile(profile: Profile) -> str:
    """The text of the profile file."""
    document = {
        "format": FORMAT,
        "version": VERSION,
        "alpha_seconds": profile.link.alpha,
        "bandwidth_bytes_per_second": profile.link.bandwidth,
        "measured": profile.measured,
    }
    return json.dumps(document, indent=1, ensure_ascii=True, allow_nan=False) + "\n"


def save_profile(profile: Profile, path: str) -> None:
    """Writes the profile file (`-`: standard output), whole or not at all."""
    write_atomic(path, dump_profile(profile))


def load_profile(path: str) -> Link:
    """The link of a profile file (`-`: standard input).

    Raises:
        UsageError: it cannot be read.
        FormatError: it is not a profile, or its numbers are impossible.
    """
    return parse_profile(read_bounded(path, MAX_PROFILE_BYTES), path).link


def parse_profile(data: bytes, name: str = "profile") -> Profile:
    """Turns the bytes of a profile file into a `Profile`; `name` is for messages.

    Raises:
        FormatError: it is not a profile, or its numbers are impossible.
    """
    try:
        document = json.loads(data.decode("utf-8"), object_pairs_hook=_unique, parse_constant=_refuse)
    except json.JSONDecodeError as error:
        raise FormatError(f"{name}: not JSON: {error.msg} (line {error.lineno})") from error
    except (UnicodeDecodeError, RecursionError, ValueError, FormatError) as error:
        reason = str(error) if isinstance(error, FormatError) else type(error).__name__
        raise FormatError(f"{name}: not a profile: {reason}") from error
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise FormatError(f'{name}: not a profile: expected an object with "format": "{FORMAT}"')
    if type(document.get("version")) is not int or document["version"] != VERSION:
        raise FormatError(f"{name}: this version is not known; this program reads {VERSION}")
    wrong = sorted((_KEYS - set(document)) | (set(document) - _KEYS - {"measured"}))
    measured = document.get("measured", {})
    if wrong or not isinstance(measured, dict):
        raise FormatError(f"{name}: missing or unknown key, or no object: {wrong or 'measured'}"[:200])
    alpha = _number(document, "alpha_seconds", (0.0, MAX_ALPHA), name)
    bandwidth = _number(document, "bandwidth_bytes_per_second", BANDWIDTHS, name)
    return Profile(Link(alpha, bandwidth), measured)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(dict(pairs)) != len(pairs):
        raise FormatError("a key stands twice in one object")
    return dict(pairs)


def _refuse(name: str) -> NoReturn:
    raise FormatError(f"{name} is no number of JSON")


def _number(document: dict[str, Any], key: str, span: tuple[float, float], name: str) -> float:
    value = document[key]
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise FormatError(f"{name}: {key} must be a number")
    if not span[0] <= value <= span[1]:
        raise FormatError(f"{name}: {key} must be {span[0]:g} to {span[1]:g}")
    return float(value)
