"""Rules on the steps of one rank: numbering, counts, buffer bounds, dependencies, merged reductions."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from .profiles import Profile
from .program import Buffer, OpCode, Program, RankProgram, Step, ThreadBlock
from .violations import Finding, Rule

# Which offsets the interpreters use; the others are never looked at and may hold anything.
READS_SOURCE = frozenset(
    {
        OpCode.SEND,
        OpCode.RECV_REDUCE_SEND,
        OpCode.RECV_REDUCE_COPY,
        OpCode.RECV_REDUCE_COPY_SEND,
        OpCode.COPY,
        OpCode.REDUCE,
    }
)
WRITES_DESTINATION = frozenset(
    {
        OpCode.RECV,
        OpCode.RECV_COPY_SEND,
        OpCode.RECV_REDUCE_COPY,
        OpCode.RECV_REDUCE_COPY_SEND,
        OpCode.COPY,
        OpCode.REDUCE,
    }
)


def _step_numbers(program: Program, profile: Profile) -> Iterator[Finding]:
    for gpu in program.gpus:
        for block in gpu.blocks:
            for wanted, step in enumerate(block.steps):
                if step.index != wanted:
                    message = (
                        f"numbered {step.index} but is the {wanted}th; the runtime counts, dependencies miss"
                    )
                    yield Finding(message, gpu, block, step)
                    break


def _step_count(program: Program, profile: Profile) -> Iterator[Finding]:
    most = profile.steps_per_block
    for gpu in program.gpus:
        for block in gpu.blocks:
            if len(block.steps) > most:
                yield Finding(f"{len(block.steps)} steps; {profile.title} holds {most} a block", gpu, block)


def _ops(program: Program, profile: Profile) -> Iterator[Finding]:
    for gpu, block, step in program.steps():
        if step.op not in profile.ops:
            known = " ".join(sorted(op.value for op in profile.ops))
            yield Finding(f"{step.op.value} has no code in {profile.title}; it has {known}", gpu, block, step)


def _op_peers(program: Program, profile: Profile) -> Iterator[Finding]:
    for gpu, block, step in program.steps():
        if step.op.sends and block.send_peer < 0:
            yield Finding(f"{step.op.value} sends, but the block has send=-1", gpu, block, step)
        if step.op.receives and block.recv_peer < 0:
            yield Finding(f"{step.op.value} receives, but the block has recv=-1", gpu, block, step)


def _counts(program: Program, profile: Profile) -> Iterator[Finding]:
    for gpu, block, step in program.steps():
        if step.op is not OpCode.NOP and not 1 <= step.count <= profile.largest_count:
            yield Finding(f"cnt is {step.count}; 1 to {profile.largest_count} work", gpu, block, step)


def _capacity(gpu: RankProgram, buffer: Buffer) -> int:
    match buffer:
        case Buffer.INPUT:
            return gpu.input_chunks
        case Buffer.OUTPUT:
            return gpu.output_chunks
        case Buffer.SCRATCH:
            return gpu.scratch_chunks


def _bounds(program: Program, profile: Profile) -> Iterator[Finding]:
    for gpu, block, step in program.steps():
        sides = []
        if step.op in READS_SOURCE:
            sides.append(("src", step.src_buffer, step.src_offset))
        if step.op in WRITES_DESTINATION:
            sides.append(("dst", step.dst_buffer, step.dst_offset))
        for side, buffer, offset in sides:
            end, size = offset + step.count, _capacity(gpu, buffer)
            if offset < 0 or end > size:
                message = f"{side} chunks {offset}..{end - 1} are outside {buffer.value}, which has {size}"
                yield Finding(message, gpu, block, step)
            elif offset > profile.largest_offset:
                yield Finding(f"{side}off {offset} does not fit 16 bits", gpu, block, step)


def _no_wait(step: Step) -> bool:
    return step.dep_block < 0


def _nops(program: Program, profile: Profile) -> Iterator[Finding]:
    for gpu in program.gpus:
        for block in gpu.blocks:
            for step, after in pairwise((*block.steps, None)):
                if step is None or step.op is not OpCode.NOP:
                    continue
                if _no_wait(step):
                    # It is not counted at run time, so all later step numbers are off by one.
                    yield Finding("a nop without dependency shifts later step numbers", gpu, block, step)
                if after is None:
                    yield Finding(
                        "the last step is a nop; its dependency is never waited for", gpu, block, step
                    )
                elif _no_wait(after):
                    message = "the step after a nop must have a dependency too; move one there"
                    yield Finding(message, gpu, block, step)


def merged_reductions(block: ThreadBlock) -> Iterator[tuple[Step, ...]]:
    """The runs of `re` steps that every parser folds into one operation.

    A `re` joins the one before (nops between do not matter) if both name the same destination and
    source buffer, it has no dependency and the one before has hasdep=0; a run also ends where the
    block's reductions reach 16 in all.
    """
    run: list[Step] = []
    reductions = 0
    for step in block.steps:
        if step.op is OpCode.NOP:
            continue
        if run and not (step.op is OpCode.REDUCE and step.dep_block == -1 and _same_target(run[-1], step)):
            yield tuple(run)
            run = []
        if step.op is not OpCode.REDUCE:
            continue
        run.append(step)
        reductions += 1
        if step.has_dependents or reductions == 16:
            yield tuple(run)
            run = []
    if run:
        yield tuple(run)


def _same_target(one: Step, other: Step) -> bool:
    return (one.dst_buffer, one.dst_offset, one.src_buffer) == (
        other.dst_buffer,
        other.dst_offset,
        other.src_buffer,
    )


def _merging(program: Program, profile: Profile) -> Iterator[Finding]:
    for gpu in program.gpus:
        for block in gpu.blocks:
            for run in merged_reductions(block):
                if len(run) > 1 and (problem := _merge_problem(run, profile)):
                    yield Finding(f"{len(run)} re steps are merged: {problem}", gpu, block, run[0])


def _merge_problem(run: tuple[Step, ...], profile: Profile) -> str:
    if not profile.merging_allowed:
        return "set hasdep=1 on the first, so that each is done alone"
    if len({step.count for step in run}) > 1:
        return "all are done with the cnt of the last; set hasdep=1 to keep them apart"
    if len(run) > profile.reduce_fusion:
        return f"{profile.reduce_fusion} fit, more overrun an array; set hasdep=1 on one of them"
    first = run[0]
    apart = all(abs(step.src_offset - first.dst_offset) >= first.count for step in run)
    if first.src_buffer == first.dst_buffer and not apart:
        return "one reads what another writes; set hasdep=1 to keep them apart"
    return ""


def _dependencies(program: Program, profile: Profile) -> Iterator[Finding]:
    for gpu in program.gpus:
        by_id = {block.id: block for block in gpu.blocks}
        for block in gpu.blocks:
            for step in block.steps:
                if step.dep_block != -1 and (problem := _dep_problem(step, by_id, profile)):
                    yield Finding(problem, gpu, block, step)


def _dep_problem(step: Step, blocks: dict[int, ThreadBlock], profile: Profile) -> str:
    wanted = f"tb {step.dep_block} step {step.dep_step}"
    if step.dep_block > profile.largest_dep_block:
        return f"waits for {wanted}; only tb 0..{profile.largest_dep_block} can be named"
    if step.dep_block not in blocks:
        return f"waits for {wanted}, but there is no such thread block"
    steps = blocks[step.dep_block].steps
    if not 0 <= step.dep_step < len(steps):
        return f"waits for {wanted}, but that block has {len(steps)} steps"
    target = steps[step.dep_step]
    if target.op is OpCode.NOP:
        return f"waits for {wanted}, a nop, which never says that it is done"
    if not target.has_dependents:
        return f"waits for {wanted}, which has hasdep=0 and never says that it is done; set hasdep=1"
    return ""


STEP_RULES = (
    Rule("step-numbers", "steps are numbered 0, 1, 2 ... in file order", _step_numbers),
    Rule("step-count", "a block's steps fit the runtime", _step_count),
    Rule("op-known", "the step type has code in the runtime", _ops),
    Rule("op-has-peer", "steps that send or receive are in a block with that peer", _op_peers),
    Rule("count-range", "cnt is positive and within the limit", _counts),
    Rule("in-buffer", "every chunk that a step reads or writes is inside its buffer", _bounds),
    Rule("nop-waits", "a nop has a dependency, and the step after it too", _nops),
    Rule("reduce-merging", "re steps that the runtime merges stay right", _merging),
    Rule("dependency", "a dependency is on a step that exists and says when it is done", _dependencies),
)
