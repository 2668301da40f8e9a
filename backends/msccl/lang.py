"""Lowering to MSCCLang: a readable Python program for msccl-tools, which compiles it to XML itself.

MSCCLang applies operations one after another, while all transfers of a round read the state from before
the round. Transfers are therefore put in an order in which nothing is read after it was overwritten;
where there is none (a swap), one transfer goes through scratch and is added at the end of the round.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import networkx as nx

from ...schedules.ir import Op, Schedule, Transfer
from ...schedules.validate import require_valid
from .options import LowerOptions, algorithm_name

_HEAD = '''"""{name}: AllReduce of {ranks} ranks in {chunks} chunks, {late}.

Made by stragglar from a schedule of the family {family}. Run it where msccl-tools is installed; it checks
itself and prints MSCCL XML.
"""

from msccl.language import Buffer, Check, MSCCLProgram, XML, chunk
from msccl.language.collectives import AllReduce
from msccl.topologies import fully_connected

RANKS = {ranks}
CHUNKS = {chunks}
BUFFER = {buffer}

# Every phase is a list of rounds, every round a list of (operation, src, dst, first chunk, chunks), applied
# in this order:
#   copy    src's chunks replace dst's
#   reduce  src's chunks are added to dst's
#   stage   src's chunks go to scratch at dst, because both ends still send what they had before the round
#   finish  dst adds what src staged
'''

_TAIL = '''

def apply(operation, src, dst, first, count, channel):
    """One transfer. Phases have channels of their own: the first can end before the late rank comes."""
    if operation == "copy":
        chunk(src, BUFFER, first, count).copy(dst, BUFFER, first, ch=channel)
    elif operation == "reduce":
        chunk(dst, BUFFER, first, count).reduce(chunk(src, BUFFER, first, count), ch=channel)
    elif operation == "stage":
        chunk(src, BUFFER, first, count).copy(dst, f"from{{src}}", 0, ch=channel)
    else:
        chunk(dst, BUFFER, first, count).reduce(chunk(dst, f"from{{src}}", 0, count), ch=channel)


collective = AllReduce(RANKS, CHUNKS, inplace={in_place})
program = MSCCLProgram(
    {name!r},
    fully_connected(RANKS),
    collective,
    {instances},
    protocol={protocol!r},
    interleaved_replication=False,  # interleaving mixes up messages of different lengths
    instr_fusion=False,  # a fused receive-and-send needs a thread block that may already have other peers
)
with program:
{prologue}    for channel, phase in enumerate(PHASES):
        for round_ in phase:
            for transfer in round_:
                apply(*transfer, channel)
    assert Check()
    XML()
'''

_PROLOGUE = """    for rank in range(RANKS):
        chunk(rank, Buffer.input, 0, CHUNKS).copy(rank, Buffer.output, 0)
"""


def write_language(schedule: Schedule, options: LowerOptions | None = None) -> str:
    """The text of an MSCCLang program for a schedule.

    Args:
        schedule: any valid schedule.
        options: name, protocol, instances and placement are used; sizes are not in the language.

    Raises:
        InvalidScheduleError: the schedule is not an AllReduce.
    """
    options = options or LowerOptions()
    require_valid(schedule)
    late = "no rank late" if not schedule.late else f"late: {', '.join(map(str, schedule.late))}"
    values = {
        "name": options.name or algorithm_name(schedule),
        "ranks": schedule.ranks,
        "chunks": schedule.chunks,
        "late": late,
        "family": "".join(c for c in schedule.origin.family if c.isalnum() or c in "-_ "),
        "buffer": "Buffer.input" if options.in_place else "Buffer.output",
        "in_place": options.in_place,
        "instances": options.instances,
        "protocol": options.protocol,
        "prologue": "" if options.in_place else _PROLOGUE,
    }
    return _HEAD.format(**values) + "".join(_phases(schedule)) + _TAIL.format(**values)


def _phases(schedule: Schedule) -> Iterator[str]:
    names = [phase.name.upper() for phase in schedule.phases]
    for name, phase in zip(names, schedule.phases, strict=True):
        yield f"\n{name} = [\n"
        for index in range(len(phase)):
            yield f"    [  # round {index}\n"
            for operation, t in sequential(phase.transfers(index)):
                yield f"        {(operation, t.src, t.dst, t.first, t.count)!r},\n"
            yield "    ],\n"
        yield "]\n"
    yield f"PHASES = [{', '.join(names)}]\n"


def sequential(transfers: Sequence[Transfer]) -> list[tuple[str, Transfer]]:
    """A round's transfers as operations that give the same result one after another."""
    before: nx.DiGraph[int] = nx.DiGraph()
    before.add_nodes_from(range(len(transfers)))
    for reader, r in enumerate(transfers):
        for writer, w in enumerate(transfers):
            if reader != writer and w.dst == r.src and _overlap(r, w):
                before.add_edge(reader, writer)
    staged: list[int] = []
    while cycle := _cycle(before):
        # A staged transfer reads first and writes last: it waits for nobody and nobody for it.
        chosen = min(cycle)
        staged.append(chosen)
        before.remove_node(chosen)
    order = nx.lexicographical_topological_sort(before)
    return [
        *(("stage", transfers[i]) for i in staged),
        *(("reduce" if transfers[i].op is Op.REDUCE else "copy", transfers[i]) for i in order),
        *(("finish", transfers[i]) for i in staged),
    ]


def _overlap(a: Transfer, b: Transfer) -> bool:
    return a.first < b.first + b.count and b.first < a.first + a.count


def _cycle(graph: nx.DiGraph[int]) -> list[int]:
    for component in nx.strongly_connected_components(graph):
        if len(component) > 1:
            return list(component)
    return []
