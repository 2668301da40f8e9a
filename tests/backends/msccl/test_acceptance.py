"""132 variations of a good file that three real parsers were given: our checks are never laxer.

The table `tests/data/msccl_acceptance.tsv` says what the parsers of microsoft/msccl, Azure's
executor and RCCL did with each. What one of them rejects, crashes on or corrupts memory with, our
check for that runtime refuses; where we refuse more, `STRICTER` says why.
"""

import csv
import re
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from stragglar.backends.msccl.program import Buffer, OpCode, Program, RankProgram, Step, ThreadBlock
from stragglar.backends.msccl.rules import SCHEMA_RULES, check_program, check_text
from stragglar.backends.msccl.violations import Violation
from stragglar.backends.msccl.xml_read import read_program
from stragglar.backends.msccl.xml_write import write_program

DATA = Path(__file__).parents[2] / "data"
GOOD = (DATA / "msccl_good.xml").read_text()
COLUMNS = {"msccl": "msccl", "azure_executor": "msccl-executor", "rccl": "rccl"}
ALL = tuple(COLUMNS.values())

Mutation = Callable[[], str]
MUTATIONS: dict[str, tuple[str, Mutation]] = {}  # name -> the rule that refuses it ("" for none), the text


def text(name: str, rule: str, change: Callable[[str], str]) -> None:
    MUTATIONS[name] = (rule, lambda: change(GOOD))


def swap(name: str, rule: str, old: str, new: str) -> None:
    """The good file with the first `old` replaced."""
    assert old in GOOD, (name, old)
    MUTATIONS[name] = (rule, lambda: GOOD.replace(old, new, 1))


def drop(name: str, element: str, attribute: str, rule: str = "attribute-missing") -> None:
    pattern = rf'(<{element}\b[^>]*?) {attribute}="[^"]*"'
    MUTATIONS[name] = (rule, lambda: re.sub(pattern, r"\1", GOOD, count=1))


def program(name: str, rule: str, change: Callable[[Program], Program]) -> None:
    MUTATIONS[name] = (rule, lambda: write_program(change(read_program(GOOD))))


# --- building blocks


def first(base: Program, **changes: object) -> Program:
    """The program with its rank 0 changed."""
    return replace(base, gpus=(replace(base.gpus[0], **changes), *base.gpus[1:]))


def add(base: Program, *blocks: ThreadBlock) -> Program:
    return first(base, blocks=(*base.gpus[0].blocks, *blocks))


def local(number: int, steps: tuple[Step, ...] = ()) -> ThreadBlock:
    return ThreadBlock(number, -1, -1, 0, steps)


def copies(count: int, numbered: bool = True) -> tuple[Step, ...]:
    s = Buffer.SCRATCH
    return tuple(Step(k if numbered else 0, OpCode.COPY, s, 0, s, 0, 1) for k in range(count))


def padded(base: Program, blocks: int, steps: int = 0) -> Program:
    return add(base, *(local(number, copies(steps)) for number in range(2, blocks)))


def scaled(base: Program, factor: int) -> Program:
    """Every chunk cut into `factor` of them."""
    gpus = []
    for gpu in base.gpus:
        blocks = []
        for block in gpu.blocks:
            steps = tuple(
                replace(
                    step,
                    src_offset=step.src_offset * factor,
                    dst_offset=step.dst_offset * factor,
                    count=step.count * factor,
                )
                for step in block.steps
            )
            blocks.append(replace(block, steps=steps))
        chunks, scratch = gpu.input_chunks * factor, gpu.scratch_chunks * factor
        gpus.append(replace(gpu, input_chunks=chunks, scratch_chunks=scratch, blocks=tuple(blocks)))
    return replace(base, chunks=base.chunks * factor, gpus=tuple(gpus))


def moved(base: Program, channel: int, channels: int) -> Program:
    """Everything on another channel."""
    gpus = tuple(
        replace(gpu, blocks=tuple(replace(block, channel=channel) for block in gpu.blocks))
        for gpu in base.gpus
    )
    return replace(base, channels=channels, gpus=gpus)


def relay(base: Program, op: OpCode, source: int, target: int) -> Program:
    """Rank 0 sends, rank 1 does `op` with what comes, rank 2 receives it if `op` sends."""
    send = Step(0, OpCode.SEND, src_offset=0, dst_offset=0, count=1)
    middle = Step(0, op, src_offset=source, dst_buffer=Buffer.INPUT, dst_offset=target, count=1)
    receive = Step(0, OpCode.RECV, dst_buffer=Buffer.INPUT, dst_offset=0, count=1)
    onward = 2 if op.sends else -1
    blocks = (
        ThreadBlock(0, 1, -1, 0, (send,)),
        ThreadBlock(0, onward, 0, 0, (middle,)),
        ThreadBlock(0, -1, 1, 0, (receive,)) if op.sends else local(0),
    )
    gpus = tuple(RankProgram(rank, 2, 0, 0, (block,)) for rank, block in enumerate(blocks))
    return replace(base, ranks=3, late=(), gpus=gpus)


def star(base: Program, leaves: int) -> Program:
    """Rank 0 sends to each other rank on channel 0, with a thread block each."""
    send = (Step(0, OpCode.SEND, src_offset=0, dst_offset=0, count=1),)
    receive = (Step(0, OpCode.RECV, dst_buffer=Buffer.INPUT, dst_offset=0, count=1),)
    hub = tuple(ThreadBlock(k, k + 1, -1, 0, send) for k in range(leaves))
    gpus = [RankProgram(0, 2, 0, 0, hub)]
    gpus += [RankProgram(k + 1, 2, 0, 0, (ThreadBlock(0, -1, 0, 0, receive),)) for k in range(leaves)]
    return replace(base, ranks=leaves + 1, late=(), gpus=tuple(gpus))


def with_nop(base: Program, followed_by_dep: bool, has_dependents: bool = False) -> Program:
    """A nop that waits, before the last step of thread block 1 (which waits too, or not)."""
    send, receive = base.gpus[0].blocks
    nop = Step(2, OpCode.NOP, dep_block=0, dep_step=0, has_dependents=has_dependents)
    last = replace(receive.steps[2], index=3)
    if not followed_by_dep:
        last = replace(last, dep_block=-1, dep_step=-1)
    return first(base, blocks=(send, replace(receive, steps=(*receive.steps[:2], nop, last))))


def reductions(count: int) -> tuple[Step, ...]:
    s = Buffer.SCRATCH
    return tuple(Step(k, OpCode.REDUCE, s, 0, Buffer.INPUT, 0, 1) for k in range(count))


# --- the 132, in the table's order
text("good", "", lambda t: t)
text("xml_decl", "no-declaration", lambda t: '<?xml version="1.0"?>\n' + t)
text("bom", "no-byte-order-mark", lambda t: "\ufeff" + t)
text("comment_ok", "", lambda t: "<!-- a comment -->\n" + t)
text("comment_eq", "comment-start", lambda t: "<!--a=b-->\n" + t)
text("comment_eq_later", "", lambda t: "<!-- a=b -->\n" + t)
text("comment_gt_name", "", lambda t: "<!--a>b-->\n" + t)
swap("tab_indent", "no-tabs", "  <gpu", "\t<gpu")
swap("tab_attr", "no-tabs", " proto", "\tproto")
swap("nl_attr", "tag-layout", " proto", "\nproto")
swap("two_spaces", "", " proto", "  proto")
swap("space_slash", "", "/>", " />")
swap("single_quote", "tag-layout", '"Simple"', "'Simple'")
swap("space_around_eq", "tag-layout", "proto=", "proto = ")
swap("text_node", "no-text", "\n  <gpu", "\nhello\n  <gpu")
text("trail_text", "no-text", lambda t: t + "bye\n")
text("unclosed", "well-formed", lambda t: t.replace("</algo>\n", ""))
swap("unknown_attr", "", "<gpu ", '<gpu colour="blue" ')
swap("unknown_elem", "", "    <tb", '    <note a="1"/>\n    <tb')
text("unknown_top", "well-formed", lambda t: t + "<extra/>\n")
swap("step_open_close", "", "/>", "></step>")
swap("step_child", "step-child", "/>", "><a/></step>")
drop("no_name", "algo", "name")
for attribute in ("proto", "nchannels", "nchunksperloop", "ngpus", "coll", "inplace", "outofplace"):
    drop(f"no_{attribute}", "algo", attribute)
for attribute in ("minBytes", "maxBytes"):
    drop(f"no_{attribute}", "algo", attribute)
for attribute in ("i_chunks", "o_chunks", "s_chunks", "id"):
    drop(f"gpu_no_{attribute}", "gpu", attribute)
for attribute in ("id", "send", "recv", "chan"):
    drop(f"tb_no_{attribute}", "tb", attribute)
for attribute in ("s", "type", "srcbuf", "srcoff", "dstbuf", "dstoff", "cnt", "depid", "deps", "hasdep"):
    drop(f"step_no_{attribute}", "step", attribute)
swap("coll_ar_upper", "collective-known", "allreduce", "AllReduce")
swap("coll_custom", "collective-known", "allreduce", "custom")
swap("coll_reduce_scatter", "collective-known", "allreduce", "reduce_scatter")
swap("coll_reducescatter", "collective-known", "allreduce", "reducescatter")
swap("proto_simple_lc", "attribute-value", "Simple", "simple")
swap("proto_LL128", "", "Simple", "LL128")
swap("ngpus_mismatch", "ranks-complete", 'ngpus="2"', 'ngpus="3"')
program("min_gt_max", "size-range", lambda p: replace(p, min_bytes=2, max_bytes=1))
program("max0_min0", "size-range", lambda p: replace(p, max_bytes=0))
program("max0_min1", "size-range", lambda p: replace(p, min_bytes=1, max_bytes=0))
program("nchan_33", "channel-count", lambda p: replace(p, channels=33))
program("nchan_0", "channel-count", lambda p: replace(p, channels=0))
program("nchunks_0", "chunk-count", lambda p: replace(p, chunks=0))
program("ichunks_lt_nchunks", "buffer-chunks", lambda p: first(p, input_chunks=1))
swap("nthreads_100", "thread-count", " coll=", ' nthreads="100" coll=')
swap("nthreads_96", "", " coll=", ' nthreads="96" coll=')
swap("nthreads_256", "", " coll=", ' nthreads="256" coll=')
swap("long_name_100", "name-length", '"good"', f'"{"n" * 100}"')
swap("long_name_300", "value-length", '"good"', f'"{"n" * 300}"')
program("chan_-1", "channel-in-range", lambda p: moved(p, -1, 1))
program("chan_31", "", lambda p: moved(p, 31, 32))
program("chan_32", "channel-in-range", lambda p: moved(p, 32, 33))
program("chan_33", "channel-in-range", lambda p: moved(p, 33, 34))
program("chan_ge_nchannels", "channel-in-range", lambda p: moved(p, 3, 1))
program("tb_gap", "block-ids", lambda p: add(p, local(3)))
text("tb_not0", "block-ids", lambda t: t.replace('tb id="0"', 'tb id="2"', 1))
program("tb_dup", "block-ids", lambda p: add(p, local(1)))
program("tb_same_peer_chan", "connection-single", lambda p: add(p, ThreadBlock(2, 1, -1, 0, ())))
program("tb_64", "", lambda p: padded(p, 64))
program("tb_65", "block-ids", lambda p: padded(p, 65))
program("tb_216", "block-ids", lambda p: padded(p, 216))
program("tb_217", "block-ids", lambda p: padded(p, 217))
program("tb_empty", "", lambda p: add(p, local(2)))
program("gpu_empty", "block-ids", lambda p: first(p, blocks=()))
program("gpu_missing", "ranks-complete", lambda p: replace(p, gpus=p.gpus[:1]))
swap("self_peer", "peer-in-range", 'send="1"', 'send="0"')
swap("peer_oob", "peer-in-range", 'send="1"', 'send="5"')
swap("peer_-2", "peer-in-range", 'send="1"', 'send="-2"')
swap("send_no_peer", "op-has-peer", 'send="1"', 'send="-1"')
swap("recv_no_peer", "op-has-peer", 'recv="1"', 'recv="-1"')
swap("rcs_no_send_peer", "op-has-peer", 'type="r"', 'type="rcs"')
program("steps_64", "", lambda p: add(p, local(2, copies(64))))
program("steps_65", "step-count", lambda p: add(p, local(2, copies(65))))
program("steps_256", "step-count", lambda p: add(p, local(2, copies(256))))
program("steps_257", "step-count", lambda p: add(p, local(2, copies(257))))
for many in (70, 300, 1100):
    program(
        f"step_s_all_zero_{many}",
        "step-numbers",
        lambda p, many=many: add(p, local(2, copies(many, numbered=False))),
    )
swap("cnt_0", "count-range", 'cnt="1"', 'cnt="0"')
swap("cnt_-1", "count-range", 'cnt="1"', 'cnt="-1"')
program("cnt_71", "", lambda p: scaled(p, 71))
program("cnt_72", "count-range", lambda p: scaled(p, 72))
swap("off_plus_cnt_oob", "in-buffer", 'dstoff="1" cnt="1"', 'dstoff="1" cnt="2"')
swap("off_oob", "in-buffer", 'srcoff="1"', 'srcoff="2"')
swap("off_-1", "in-buffer", 'srcoff="1"', 'srcoff="-1"')
swap("off_-2", "in-buffer", 'srcoff="1"', 'srcoff="-2"')
program("rrc_oob", "in-buffer", lambda p: relay(p, OpCode.RECV_REDUCE_COPY, 9, 0))
program("rrs_dst_oob", "op-known", lambda p: relay(p, OpCode.RECV_REDUCE_SEND, 0, 9))
program("rcs_src_oob", "op-known", lambda p: relay(p, OpCode.RECV_COPY_SEND, 9, 0))
swap("s_dst_oob", "", 'dstbuf="i" dstoff="1"', 'dstbuf="i" dstoff="9"')
swap("dst_o_but_o_chunks0", "in-buffer", 'dstbuf="s"', 'dstbuf="o"')
swap("buf_x", "attribute-value", 'srcbuf="i"', 'srcbuf="x"')
swap("type_bad", "attribute-value", 'type="re"', 'type="bad"')
swap("type_ra", "attribute-value", 'type="re"', 'type="ra"')
swap("type_d", "attribute-value", 'type="re"', 'type="d"')
swap("hasdep_2", "attribute-value", 'hasdep="1"', 'hasdep="2"')
swap("dep_bad_tb", "dependency", 'depid="1"', 'depid="9"')
swap("dep_tb_200", "dependency", 'depid="1"', 'depid="200"')
swap("dep_self", "no-deadlock", 'depid="1" deps="1"', 'depid="0" deps="1"')
program("nop_then_nodep", "nop-waits", lambda p: with_nop(p, followed_by_dep=False))
program("nop_then_dep", "", lambda p: with_nop(p, followed_by_dep=True))
program("nop_only", "nop-waits", lambda p: add(p, local(2, (Step(0, OpCode.NOP, dep_block=0, dep_step=0),))))
program("nop_hasdep1", "", lambda p: with_nop(p, followed_by_dep=True, has_dependents=True))
program("re_chain_20", "reduce-merging", lambda p: add(p, local(2, reductions(20))))
program("tb33_same_chan_send", "blocks-per-channel", lambda p: star(p, 33))
program("tb32_same_chan_send", "", lambda p: star(p, 32))
program("nodes_4100", "node-count", lambda p: padded(p, 72, 60))
swap("hex_int", "", 'cnt="1"', 'cnt="0x1"')
swap("garbage_int", "attribute-value", 'cnt="1"', 'cnt="one"')
text("two_algos", "well-formed", lambda t: t + t)
text("empty", "file-not-empty", lambda t: "")
text("not_xml", "no-text", lambda t: "this is no XML\n")

# What a parser accepts and we refuse: why. "all": for every runtime that accepted it.
STRICTER: dict[str, tuple[tuple[str, ...], str]] = {
    "unknown_top": (ALL, "two elements at the top are no XML: no other tool could read the file"),
    "min_gt_max": (("msccl-executor", "rccl"), "no size is in the range: never used"),
    "max0_min0": (("msccl",), "sizes must be below 0: never used"),
    "nchan_33": (("msccl", "msccl-executor"), "past the array of 32 channels; init fails or overruns"),
    "nchan_0": (ALL, "no channel is connected, the steps crash"),
    "nchunks_0": (("msccl-executor", "rccl"), "sizes are taken modulo 0: the process dies"),
    "ichunks_lt_nchunks": (("msccl-executor", "rccl"), "the file says two chunk sizes"),
    "long_name_300": (ALL, "runs over the parser's buffer of 256"),
    "long_name_100": (("msccl",), "cut to 63 characters, and two files may then have one name"),
    "chan_ge_nchannels": (ALL, "that channel is never connected"),
    "tb_same_peer_chan": (ALL, "two blocks race for one message queue"),
    "gpu_empty": (ALL, "a kernel with 0 blocks cannot be launched"),
    "gpu_missing": (ALL, "a kernel with 0 blocks cannot be launched"),
    "peer_oob": (("msccl-executor", "rccl"), "no such rank to connect to"),
    "step_s_all_zero_70": (("msccl",), "steps are counted at run time, dependencies miss"),
    "cnt_0": (("msccl-executor", "rccl"), "moves nothing, and pairs with nothing"),
    "off_plus_cnt_oob": (ALL, "reads or writes past the buffer"),
    "off_-1": (ALL, "reads or writes before the buffer"),
    "rrc_oob": (ALL, "reads past the buffer (and RCCL has no rrc kernel)"),
    "rrs_dst_oob": (("rccl",), "RCCL has no rrs kernel"),
    "rcs_src_oob": (("rccl",), "RCCL has no rcs kernel"),
    "type_ra": (("msccl",), "residual add, which only this fork has and nothing else can check"),
    "dep_bad_tb": (ALL, "waits forever"),
    "dep_tb_200": (ALL, "stored in 8 bits: waits for another block, or before the array"),
    "dep_self": (ALL, "waits forever"),
    "nop_only": (ALL, "its dependency is never waited for"),
    "garbage_int": (("msccl-executor", "rccl"), "read as 0"),
    "two_algos": (ALL, "the second is dropped without a word"),
}


def table() -> dict[str, dict[str, str]]:
    with (DATA / "msccl_acceptance.tsv").open() as file:
        return {row.pop("mutation"): row for row in csv.DictReader(file, delimiter="\t")}


TABLE = table()


@cache
def findings(name: str, runtime: str) -> list[Violation]:
    return check_text(MUTATIONS[name][1](), runtime)


def test_every_mutation_of_the_table_is_made() -> None:
    assert list(MUTATIONS) == list(TABLE)
    assert len(TABLE) == 132
    assert set(STRICTER) <= set(TABLE)


@pytest.mark.parametrize("name", TABLE)
def test_never_laxer_than_the_parsers(name: str) -> None:
    for column, runtime in COLUMNS.items():
        theirs, ours = TABLE[name][column], findings(name, runtime)
        strict = runtime in STRICTER.get(name, ((), ""))[0]
        assert (ours == []) == (theirs == "accepted" and not strict), (runtime, theirs, ours)
        assert theirs.startswith("accepted") or not strict, f"{name} is not stricter for {runtime}"


@pytest.mark.parametrize("name", TABLE)
def test_the_rule_that_refuses_it(name: str) -> None:
    rule = MUTATIONS[name][0]
    found = {violation.rule for violation in findings(name, "portable")}
    assert rule in found if rule else found == set()


@pytest.mark.parametrize("name", TABLE)
def test_portable_is_the_strictest(name: str) -> None:
    refused = [runtime for runtime in ALL if findings(name, runtime)]
    assert not refused or findings(name, "portable"), refused


@pytest.mark.parametrize("name", TABLE)
def test_text_and_program_agree(name: str) -> None:
    """What can be read gets the same structure findings as a program as it gets as text."""
    found = findings(name, "portable")
    if any(violation.rule in SCHEMA_RULES for violation in found):
        return
    from_program = check_program(read_program(MUTATIONS[name][1]()))
    assert from_program == [violation for violation in found if violation.level == "structure"]
