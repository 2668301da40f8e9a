"use strict";
const assert = require("node:assert/strict");
const { test } = require("node:test");
const { load, random } = require("./load.js");

const { Model } = load(["model.js"], ["Model"]);
const LINK = { bytes: 1 << 20, alpha: 1e-5, bandwidth: 1e9, delay: 0 };
const plain = (value) => JSON.parse(JSON.stringify(value));

/** Rounds of (src, dst, first, count, op), a list a phase, as the page's data has them. */
function raw(ranks, chunks, arrivals, phases, bound = 1) {
  const made = Object.entries(phases).map(([name, rounds]) => {
    const offsets = [0];
    for (const round of rounds) offsets.push(offsets.at(-1) + round.length);
    return { name, offsets, rows: rounds.flat(2) };
  });
  return {
    name: "x",
    parameters: [],
    ranks,
    chunks,
    arrivals,
    phases: made,
    bound,
    gap: 0,
    total: 0,
    violations: [],
  };
}

/** An AllReduce of two ranks, the second of which is late. */
const pair = () =>
  Model.open(
    raw(2, 1, [[1]], {
      pre: [],
      post: [
        [
          [0, 1, 0, 1, 0],
          [1, 0, 0, 1, 0],
        ],
      ],
    }),
  );

/** A random schedule, in which a rank sends and receives at most once a round. */
function schedule(next) {
  const whole = (most) => Math.floor(next() * most);
  const [ranks, chunks] = [2 + whole(40), 1 + whole(6)];
  const rounds = Array.from({ length: 1 + whole(8) }, () => {
    const order = Array.from({ length: ranks }, (_, i) => i).sort(() => next() - 0.5);
    const moves = [];
    for (let i = 0; i + 1 < ranks && moves.length < 1 + whole(ranks); i++) {
      const first = whole(chunks);
      moves.push([order[i], order[i + 1], first, 1 + whole(chunks - first), whole(2)]);
    }
    return moves;
  });
  const cut = whole(rounds.length);
  return Model.open(
    raw(ranks, chunks, [[ranks - 1]], { pre: rounds.slice(0, cut), post: rounds.slice(cut) }),
  );
}

test("a schedule opens as one table, with its rounds in order", () => {
  const opened = Model.open(
    raw(3, 2, [[2]], {
      pre: [[[0, 1, 0, 1, 0]]],
      post: [
        [
          [1, 2, 0, 2, 0],
          [2, 0, 1, 1, 1],
        ],
        [[2, 1, 0, 1, 1]],
      ],
    }),
  );
  assert.deepEqual(plain(opened.rounds.map((r) => [r.phase, r.round, r.start, r.end])), [
    [0, 0, 0, 1],
    [1, 0, 1, 3],
    [1, 1, 3, 4],
  ]);
  assert.deepEqual(plain(Model.message(opened, 2)), { at: 2, src: 2, dst: 0, first: 1, count: 1, op: 1 });
  assert.deepEqual(plain(opened.phaseRounds), [1, 2]);
  assert.equal(
    Model.rawLine(opened, opened.rounds[1], Model.message(opened, 2)),
    'phase "post" round 0: "copy": [2,0,1,1]',
  );
});

test("after a swap both ranks hold everything", () => {
  const replay = new Model.Replay(pair());
  assert.deepEqual([...replay.holders], [0, 2]);
  assert.deepEqual([...replay.whole], [0, 0, 1, 1]);
  replay.goTo(0);
  assert.equal(replay.contributions(0, 0), 1);
});

test("going to a round is following it from the start, in any order and with more than 32 ranks", () => {
  const next = random(7);
  for (let turn = 0; turn < 40; turn++) {
    const made = schedule(next);
    const replay = new Model.Replay(made);
    replay.snapshots.length = 1; // as where few states can be kept
    replay.every = made.rounds.length + 1;
    const sets = follow(made);
    for (let step = 0; step < 6; step++) {
      const count = Math.floor(next() * (made.rounds.length + 1));
      replay.goTo(count);
      for (let r = 0; r < made.ranks; r++)
        for (let c = 0; c < made.chunks; c++)
          assert.equal(replay.contributions(r, c), sets[count][r * made.chunks + c].size);
    }
    sets.forEach((state, count) => {
      for (let c = 0; c < made.chunks; c++) {
        const full = Array.from({ length: made.ranks }, (_, r) => state[r * made.chunks + c]).filter(
          (s) => s.size === made.ranks,
        );
        if (count) assert.equal(replay.holders[count * made.chunks + c], full.length);
      }
    });
  }
});

/** The states before and after every round, as sets. */
function follow(made) {
  let state = Array.from(
    { length: made.ranks * made.chunks },
    (_, i) => new Set([Math.floor(i / made.chunks)]),
  );
  const states = [state];
  for (const round of made.rounds) {
    const after = state.slice();
    for (let at = round.start; at < round.end; at++) {
      const m = Model.message(made, at);
      for (let c = m.first; c < m.first + m.count; c++) {
        const [from, to] = [state[m.src * made.chunks + c], after[m.dst * made.chunks + c]];
        after[m.dst * made.chunks + c] = m.op === Model.REDUCE ? new Set([...from, ...to]) : from;
      }
    }
    states.push((state = after));
  }
  return states;
}

test("no message starts before its ends are free, and each takes alpha plus its bytes", () => {
  const next = random(3);
  for (let turn = 0; turn < 40; turn++) {
    const made = schedule(next);
    const delay = next() * 1e-3;
    const run = Model.simulate(made, LINK, delay);
    const seconds = LINK.bytes / made.chunks / LINK.bandwidth;
    for (let at = 0; at < run.starts.length; at++) {
      const m = Model.message(made, at);
      assert.ok(run.starts[at] >= Math.max(run.come[m.src], run.come[m.dst]));
      assert.ok(Math.abs(run.ends[at] - run.starts[at] - LINK.alpha - m.count * seconds) < 1e-12);
    }
    assert.equal(run.completion, Math.max(...run.through));
    assert.ok(run.post >= -1e-15);
  }
});

test("groups come evenly spread, and the slider moves all of them", () => {
  const three = Model.open(raw(5, 1, [[1], [2, 4], [3]], { pre: [], arrival1: [], arrival2: [], post: [] }));
  for (const delay of [0.003, 0.3]) {
    const groups = plain(Model.arrivalGroups(Model.arrivals(three, delay)));
    assert.deepEqual(
      groups.map((g) => g.ranks),
      [[1], [2, 4], [3]],
    );
    groups.forEach((g, i) => assert.ok(Math.abs(g.time - (delay * (i + 1)) / 3) < 1e-15));
  }
  assert.deepEqual(plain(Model.arrivalGroups(Model.arrivals(three, 0))), []);
  // Phases without rounds have no place of their own: who comes for them comes with the next.
  assert.deepEqual(plain([0, 1, 2, 3].map((phase) => Model.arriving(three, phase))), [
    [],
    [1],
    [1, 2, 4],
    [1, 2, 4, 3],
  ]);
  const move = [[[0, 1, 0, 1, 0]]];
  const filled = Model.open(raw(5, 1, [[1], [2, 4], [3]], { pre: move, arrival1: move, arrival2: move, post: move }));
  assert.deepEqual(plain([0, 1, 2, 3].map((phase) => Model.arriving(filled, phase))), [[], [1], [2, 4], [3]]);
  assert.deepEqual([...Model.absent(three, 2)], [3]);
});

test("nobody late: all come at the delay, which is no arrival", () => {
  const none = Model.open(
    raw(2, 1, [], {
      post: [
        [
          [0, 1, 0, 1, 0],
          [1, 0, 0, 1, 0],
        ],
      ],
    }),
  );
  assert.deepEqual([...Model.arrivals(none, 2)], [2, 2]);
  assert.deepEqual(plain(Model.arrivalGroups(Model.arrivals(none, 2))), []);
  assert.equal(Model.bandwidthBound(none, LINK, 0), LINK.bytes / LINK.bandwidth);
});

test("the bound lies where its chunk-rounds are used up", () => {
  const rounds = [[[0, 1, 0, 2, 0]], [[1, 0, 0, 1, 1]], [[0, 1, 0, 1, 1]]];
  const at = (bound) =>
    Model.boundPlace(Model.open(raw(2, 2, [[1]], { pre: [[[0, 1, 0, 1, 0]]], post: rounds }, bound)));
  assert.equal(at(1), 1.5);
  assert.equal(at(3), 3);
  assert.equal(at(9), -1);
});
