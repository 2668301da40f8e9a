"""Bugs put into the emitted sources on purpose: the double, or a sanitizer, names each.

All bugs are in one build, and SEEDED_BUG chooses; without it the same build must be right.
"""

from __future__ import annotations

import pytest

CAUGHT = 86
WRONG = 1


def seeded(name: str) -> str:
    return f'double_seeded("{name}")'


def unless(name: str, statement: str) -> tuple[str, str]:
    return statement, f"if (!{seeded(name)}) {statement}"


SEND = 'cc(ncclSend(from, send.length, type_, round.to, comm_, stream_), "ncclSend");'
FORK = 'cc(cudaStreamWaitEvent(beside_, arrived_[round.slot], 0), "cudaStreamWaitEvent");'
REDUCE = "} else if (round.reduction < 0) {\n      "
SLOT = "(most_bytes_ / schedule_.chunks + 8)"
TAIL = "i < split.count; i += step) out[i] = join(i);"

EDITS = {
    "executor.h": [
        (
            SEND,
            f"const int peer = {seeded('wrong peer')} && rank_ == 2 ? 5 : round.to;\n"
            f"const size_t length = send.length - ({seeded('wrong size')} && rank_ == 1);\n"
            f'if ({seeded("no group")}) cc(ncclGroupEnd(), "ncclGroupEnd");\n'
            'cc(ncclSend(from, length, type_, peer, comm_, stream_), "ncclSend");\n'
            f'if ({seeded("no group")}) cc(ncclGroupStart(), "ncclGroupStart");\n',
        ),
        (REDUCE, f"{REDUCE}if (!{seeded('no reduction')}) "),
        unless(
            "no fork", 'cc(cudaStreamWaitEvent(beside_, arrived_[round.slot], 0), "cudaStreamWaitEvent");'
        ),
        unless("no wait", "wait_for(round.needs);"),
        unless("no join", "wait_for(std::max(made_[0], made_[1]));"),
        (SLOT, f"({seeded('short scratch')} ? 100 : {SLOT})"),
    ],
    "kernels.cu": [(TAIL, TAIL.replace("split.count", f"split.count + {seeded('long kernel')}"))],
}

BUGS = {
    "wrong peer": (CAUGHT, ("stall: rank", "mismatch: rank")),
    "wrong size": (CAUGHT, ("elements from rank 1, which sends",)),
    "no group": (CAUGHT, ("stall: rank",)),
    "no reduction": (WRONG, ("wrong elements in place",)),
    "no fork": (WRONG, ("wrong elements",)),
    "no wait": (WRONG, ("wrong elements",)),
    "short scratch": (CAUGHT, ("short buffer: rank",)),
    "long kernel": (1, ("heap-buffer-overflow",)),
}
ADDRESS = ("-O0", "-fsanitize=address")
THREAD = ("-O0", "-fsanitize=thread")


@pytest.fixture
def attempt(double, execute, merge8):
    def run(bug, flags=ADDRESS, mode="stream", counts="1003", **environment):
        program = double.build(merge8, edits=EDITS, flags=flags)
        settings = {"SEEDED_BUG": bug, "ASAN_OPTIONS": "detect_leaks=0", **environment}
        return execute(program, mode, counts, "f32", "sum", 0, **settings)

    return run


def test_no_bug_without_a_bug(attempt):
    done = attempt("", counts="1,97,1003", DOUBLE_JITTER_US=300)
    assert done.code == 0, done.err[-2000:]


@pytest.mark.parametrize("bug", BUGS)
def test_a_bug_is_caught(attempt, bug):
    code, words = BUGS[bug]
    # Slow kernels, so that an order that nobody enforces does not come about; several tries.
    done = attempt(bug, counts="1003,1003,1003", DOUBLE_JITTER_US=3000, DOUBLE_STALL_MS=700)
    assert done.code == code, (done.code, done.err[-1000:])
    assert any(text in done.err for text in words), done.err[-1000:]


def test_a_stream_left_out_of_a_capture_is_caught(attempt):
    assert attempt("", mode="graph").code == 0
    done = attempt("no join", mode="graph")
    assert done.code == CAUGHT and "a stream that was not joined" in done.err


@pytest.mark.slow
def test_thread_sanitizer_sees_a_missing_wait(attempt):
    good = attempt("", THREAD, counts="97,1003")
    if "unexpected memory mapping" in good.err:
        pytest.skip("the thread sanitizer does not run on this kernel")
    assert good.code == 0, good.err[-3000:]
    for bug in ("no fork", "no wait", "no join"):
        done = attempt(bug, THREAD, counts="97,1003")
        assert done.code != 0 and "data race" in done.err, bug
