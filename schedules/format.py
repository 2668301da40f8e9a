"""The schedule file: versioned JSON, one round a line, byte-identical for equal schedules.

`docs/format.md` describes it, `schedule.schema.json` is its JSON Schema. Files are untrusted: sizes are
bounded, duplicate keys and anything that is not a plain integer where one belongs are refused.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .errors import FormatError, InvalidScheduleError
from .files import MAX_FILE_BYTES, read_bounded, write_atomic
from .ir import COUNT, MAX_TRANSFERS, OP, Op, Origin, Phase, Schedule, Table

FORMAT = "stragglar-schedule"
VERSION = 1

_KEYS = {"format", "version", "collective", "ranks", "late", "chunks", "origin", "phases"}
_PHASE_NAME = re.compile("pre|post|arrival[1-9][0-9]{0,8}")
_OPS = {"reduce": Op.REDUCE, "copy": Op.COPY}


def dump_schedule(schedule: Schedule) -> str:
    """The text of the schedule file: the same for equal schedules, in any process."""
    return "".join(_lines(schedule))


def save_schedule(schedule: Schedule, path: str) -> None:
    """Writes the schedule file (`-`: standard output), whole or not at all."""
    write_atomic(path, dump_schedule(schedule))


def load_schedule(path: str) -> Schedule:
    """Reads a schedule file (`-`: standard input).

    Raises:
        UsageError: it cannot be read.
        FormatError: it is not a schedule file, or breaks a local rule.
    """
    return parse_schedule(read_bounded(path), path)


def _compact(value: object) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=True)


def _lines(schedule: Schedule) -> Iterator[str]:
    origin: dict[str, object] = {
        "family": schedule.origin.family,
        "parameters": dict(schedule.origin.parameters),
    }
    if schedule.origin.bound is not None:
        origin["bound"] = {"post_rounds": schedule.origin.bound}
    head: dict[str, object] = {
        "format": FORMAT,
        "version": VERSION,
        "collective": schedule.collective,
        "ranks": schedule.ranks,
        "late": [list(group) for group in schedule.arrivals],
        "chunks": schedule.chunks,
        "origin": origin,
    }
    yield "{\n" + "".join(f'"{key}":{_compact(value)},\n' for key, value in head.items()) + '"phases":[\n'
    last = len(schedule.phases) - 1
    for index, phase in enumerate(schedule.phases):
        yield f'{{"name":{_compact(phase.name)},"rounds":[\n'
        yield ",\n".join(_round_text(table) for table in phase.rounds())
        yield "\n]}" + (",\n" if index < last else "\n")
    yield "]\n}\n"


def _round_text(table: Table) -> str:
    split = int(np.searchsorted(table[:, OP], Op.COPY))
    parts = {"reduce": table[:split, :OP], "copy": table[split:, :OP]}
    return (
        "{" + ",".join(f'"{op}":{_compact(rows.tolist())}' for op, rows in parts.items() if len(rows)) + "}"
    )


def parse_schedule(data: bytes, name: str = "schedule") -> Schedule:
    """Turns the bytes of a schedule file into a `Schedule`; `name` is for messages.

    Raises:
        FormatError: says what is wrong and where.
    """
    if len(data) > MAX_FILE_BYTES:
        raise FormatError(f"{name}: larger than {MAX_FILE_BYTES} bytes")
    document = _parse_json(data, name)
    try:
        return _schedule(document, strict=b"true" in data or b"false" in data)
    except InvalidScheduleError as error:
        raise FormatError(f"{name}: {error}") from error


def _parse_json(data: bytes, name: str) -> dict[str, Any]:
    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        if len(dict(pairs)) != len(pairs):
            raise FormatError(f"{name}: a key stands twice in one object")
        return dict(pairs)

    try:
        document = json.loads(data.decode("utf-8"), object_pairs_hook=unique)
    except UnicodeDecodeError as error:
        raise FormatError(f"{name}: not UTF-8 text (byte {error.start})") from error
    except json.JSONDecodeError as error:
        raise FormatError(f"{name}: not JSON: {error.msg} (line {error.lineno})") from error
    except (RecursionError, ValueError) as error:  # nested too deep, or an integer of thousands of digits
        raise FormatError(f"{name}: JSON outside what a schedule needs ({type(error).__name__})") from error
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise FormatError(f'{name}: not a schedule file: expected an object with "format": "{FORMAT}"')
    version = document.get("version")
    if type(version) is not int or version != VERSION:  # true and 1.0 equal 1
        shown = repr(version)[:40]
        raise FormatError(f"{name}: version {shown} is not known; this program reads {VERSION}")
    return document


def _schedule(document: dict[str, Any], strict: bool) -> Schedule:
    missing, unknown = sorted(_KEYS - set(document)), sorted(set(document) - _KEYS)
    if missing or unknown:
        problem = f"missing {', '.join(missing)}" if missing else f"unknown {', '.join(map(repr, unknown))}"
        raise FormatError(f"keys: {problem}"[:200])
    arrivals = tuple(
        tuple(_int(rank, "late") for rank in _list(group, "late: each group"))
        for group in _list(document["late"], "late")
    )
    phases = tuple(_phase(p, i, strict) for i, p in enumerate(_list(document["phases"], "phases")))
    if not isinstance(document["collective"], str):
        raise FormatError("collective: expected a string")
    return Schedule(
        ranks=_int(document["ranks"], "ranks"),
        arrivals=arrivals,
        chunks=_int(document["chunks"], "chunks"),
        phases=phases,
        origin=_origin(document["origin"]),
        collective=document["collective"],
    )


def _list(value: object, where: str) -> list[Any]:
    if not isinstance(value, list):
        raise FormatError(f"{where}: expected a list")
    return value


def _int(value: object, where: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise FormatError(f"{where}: expected an integer")
    if abs(value) > 1 << 40:
        raise FormatError(f"{where}: {str(value)[:40]} is outside any sensible range")
    return value


def _origin(value: object) -> Origin:
    if not isinstance(value, dict) or not set(value) <= {"family", "parameters", "bound"}:
        raise FormatError("origin: expected an object with family, parameters and bound")
    parameters, bound = value.get("parameters", {}), value.get("bound")
    if not isinstance(value.get("family"), str) or not isinstance(parameters, dict):
        raise FormatError("origin: family must be a string and parameters an object")
    for key, parameter in parameters.items():
        if isinstance(parameter, bool) or not isinstance(parameter, int | str):
            raise FormatError("origin: a parameter must be an integer or a string")
        if isinstance(parameter, int):
            _int(parameter, f"origin: {key[:40]}")
    if bound is not None and (not isinstance(bound, dict) or set(bound) != {"post_rounds"}):
        raise FormatError("origin: bound must be an object with post_rounds")
    return Origin(
        family=value["family"],
        parameters=tuple(parameters.items()),
        bound=None if bound is None else _int(bound["post_rounds"], "origin: bound"),
    )


def _phase(value: object, index: int, strict: bool) -> Phase:
    if not isinstance(value, dict) or set(value) != {"name", "rounds"} or not isinstance(value["name"], str):
        raise FormatError(f"phase {index}: expected an object with name and rounds")
    name = value["name"]
    if not _PHASE_NAME.fullmatch(name):  # it is shown in messages: no control characters
        raise FormatError(f"phase {index}: {ascii(name)[:40]} is not the name of a phase")
    rounds = _list(value["rounds"], f"phase {name}: rounds")
    if len(rounds) > MAX_TRANSFERS:
        raise FormatError(f"phase {name}: more than {MAX_TRANSFERS} rounds")
    return Phase.build(name, [_round(r, f"{name} round {i}", strict) for i, r in enumerate(rounds)])


def _round(value: object, where: str, strict: bool) -> NDArray[np.int64]:
    if not isinstance(value, dict) or not value or not set(value) <= set(_OPS):
        raise FormatError(f'{where}: expected an object with "reduce" and/or "copy"')
    tables = [_rows(value[op], f"{where}: {op}", code, strict) for op, code in _OPS.items() if op in value]
    return np.concatenate(tables)


def _rows(value: object, where: str, op: Op, strict: bool) -> NDArray[np.int64]:
    rows = _list(value, where)
    if strict and any(isinstance(item, bool) for row in rows if isinstance(row, list) for item in row):
        raise FormatError(f"{where}: true and false are not integers")
    try:
        raw = np.array(rows)
    except ValueError as error:
        raise FormatError(f"{where}: every transfer is [src, dst, first chunk, chunk count]") from error
    if raw.ndim != 2 or raw.shape[1] != COUNT + 1 or raw.dtype.kind != "i":
        raise FormatError(f"{where}: every transfer is four integers [src, dst, first chunk, chunk count]")
    return np.column_stack((raw, np.full(len(raw), int(op)))).astype(np.int64)
