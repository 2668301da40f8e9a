"use strict";
/** What a schedule does: following chunks, counting holders, simulating time. Pure: knows no page. */
const Model = (() => {
  const REDUCE = 0;

  /**
   * Adds what is needed to step through a schedule from the page's data: one flat table of messages.
   * @param {RawSchedule} raw
   * @returns {OpenSchedule}
   */
  function open(raw) {
    /** @type {Round[]} */
    const rounds = [];
    const table = new Int32Array(raw.phases.reduce((sum, phase) => sum + phase.rows.length, 0));
    let filled = 0;
    raw.phases.forEach((phase, index) => {
      const before = filled / 5;
      for (let r = 0; r + 1 < phase.offsets.length; r++)
        rounds.push({
          phase: index,
          round: r,
          start: before + phase.offsets[r],
          end: before + phase.offsets[r + 1],
        });
      table.set(phase.rows, filled);
      filled += phase.rows.length;
      phase.rows = [];
    });
    const phaseRounds = raw.phases.map((phase) => phase.offsets.length - 1);
    const late = new Set(raw.arrivals.flat());
    return { ...raw, rounds, table, phaseRounds, late };
  }

  /**
   * The message in row `at`.
   * @param {OpenSchedule} schedule
   * @param {number} at
   * @returns {Message}
   */
  function message(schedule, at) {
    const [src, dst, first, count, op] = schedule.table.subarray(5 * at, 5 * at + 5);
    return { at, src, dst, first, count, op };
  }

  /**
   * Late ranks that have not arrived when a phase starts.
   * @param {RawSchedule} schedule
   * @param {number} phase
   */
  function absent(schedule, phase) {
    return new Set(schedule.arrivals.slice(phase).flat());
  }

  /**
   * Who arrives right before a phase, also those whose own phase has no rounds; nobody before the first.
   * @param {RawSchedule} schedule
   * @param {number} phase
   */
  function arriving(schedule, phase) {
    /** @type {number[]} */
    let ranks = [];
    for (let at = phase; at > 0; at--) {
      ranks = [...(schedule.arrivals[at - 1] ?? []), ...ranks];
      if (schedule.phases[at - 1].offsets.length > 1) break;
    }
    return ranks;
  }

  /**
   * Rounds of `post` weighted by their longest message, until `bound` is reached: a place among all rounds.
   * @param {OpenSchedule} schedule
   */
  function boundPlace(schedule) {
    let left = schedule.bound;
    const last = schedule.phases.length - 1;
    for (let index = 0; index < schedule.rounds.length; index++) {
      const round = schedule.rounds[index];
      if (round.phase !== last) continue;
      let weight = 0;
      for (let at = round.start; at < round.end; at++) weight = Math.max(weight, schedule.table[5 * at + 3]);
      if (left <= weight) return index + left / weight;
      left -= weight;
    }
    return -1;
  }

  /** Follows contributions through all rounds, as bit sets; keeps a state every few rounds to go back to. */
  class Replay {
    /** @param {OpenSchedule} schedule */
    constructor(schedule) {
      this.schedule = schedule;
      const { ranks, chunks } = schedule;
      this.words = (ranks + 31) >> 5;
      const size = ranks * chunks * this.words;
      const kept = Math.max(1, Math.min(schedule.rounds.length + 1, Math.floor((24 << 20) / (4 * size))));
      this.every = Math.max(1, Math.ceil((schedule.rounds.length + 1) / kept));
      this.full = new Uint32Array(this.words);
      for (let r = 0; r < ranks; r++) this.full[r >> 5] |= 1 << (r & 31);
      this.state = new Uint32Array(size);
      for (let r = 0; r < ranks; r++)
        for (let c = 0; c < chunks; c++)
          this.state[(r * chunks + c) * this.words + (r >> 5)] |= 1 << (r & 31);
      this.snapshots = [this.state.slice()];
      this.holders = new Uint16Array((schedule.rounds.length + 1) * chunks);
      this.whole = new Uint32Array((schedule.rounds.length + 1) * ranks);
      this.born = new Int32Array(schedule.phases.length * chunks).fill(-1);
      this.#followAll();
      this.at = schedule.rounds.length;
    }

    #followAll() {
      const { ranks, chunks } = this.schedule;
      const done = new Uint8Array(ranks * chunks);
      this.schedule.rounds.forEach((round, index) => {
        this.#apply(round);
        const next = index + 1;
        this.holders.copyWithin(next * chunks, index * chunks, next * chunks);
        this.whole.copyWithin(next * ranks, index * ranks, next * ranks);
        for (let at = round.start; at < round.end; at++)
          this.#count(message(this.schedule, at), round, next, done);
        if (next % this.every === 0) this.snapshots.push(this.state.slice());
      });
    }

    /**
     * @param {Message} move
     * @param {Round} round
     * @param {number} next
     * @param {Uint8Array} done
     */
    #count(move, round, next, done) {
      const { ranks, chunks } = this.schedule;
      for (let c = move.first; c < move.first + move.count; c++) {
        const born = round.phase * chunks + c;
        if (this.born[born] < 0) this.born[born] = round.round;
        const cell = move.dst * chunks + c;
        const now = this.contributions(move.dst, c) === ranks ? 1 : 0;
        this.holders[next * chunks + c] += now - done[cell];
        this.whole[next * ranks + move.dst] += now - done[cell];
        done[cell] = now;
      }
    }

    /**
     * All messages read the state from before the round.
     * @param {Round} round
     */
    #apply(round) {
      const { table, chunks } = this.schedule;
      const { state, words } = this;
      const incoming = [];
      for (let at = round.start; at < round.end; at++) {
        const from = (table[5 * at] * chunks + table[5 * at + 2]) * words;
        incoming.push(state.slice(from, from + table[5 * at + 3] * words));
      }
      for (let at = round.start; at < round.end; at++) {
        const to = (table[5 * at + 1] * chunks + table[5 * at + 2]) * words;
        const data = incoming[at - round.start];
        if (table[5 * at + 4] === REDUCE) for (let i = 0; i < data.length; i++) state[to + i] |= data[i];
        else state.set(data, to);
      }
    }

    /**
     * Makes `state` that after `count` rounds.
     * @param {number} count
     */
    goTo(count) {
      const snapshot = Math.floor(count / this.every);
      if (count < this.at || snapshot * this.every > this.at) {
        this.state.set(this.snapshots[snapshot]);
        this.at = snapshot * this.every;
      }
      for (; this.at < count; this.at++) this.#apply(this.schedule.rounds[this.at]);
    }

    /**
     * How many ranks have contributed to what a rank has of a chunk, in the current state.
     * @param {number} rank
     * @param {number} chunk
     */
    contributions(rank, chunk) {
      const from = (rank * this.schedule.chunks + chunk) * this.words;
      let sum = 0;
      for (let i = from; i < from + this.words; i++) sum += bits(this.state[i]);
      return sum;
    }
  }

  /** @param {number} word */
  function bits(word) {
    let v = word - ((word >>> 1) & 0x55555555);
    v = (v & 0x33333333) + ((v >>> 2) & 0x33333333);
    return (((v + (v >>> 4)) & 0x0f0f0f0f) * 0x01010101) >>> 24;
  }

  /**
   * When the ranks come: as `planned_arrivals` of backends/simulation.py.
   * @param {RawSchedule} schedule
   * @param {number} delay
   */
  function arrivals(schedule, delay) {
    const come = new Float64Array(schedule.ranks).fill(schedule.arrivals.length ? 0 : delay);
    schedule.arrivals.forEach((group, g) => {
      for (const rank of group) come[rank] = (delay * (g + 1)) / schedule.arrivals.length;
    });
    return come;
  }

  /**
   * The ranks that come later than the first, together or one group after another.
   * @param {Float64Array} come
   * @returns {Arrival[]}
   */
  function arrivalGroups(come) {
    const first = come.reduce((a, b) => Math.min(a, b), Infinity);
    /** @type {Map<number, number[]>} */
    const groups = new Map();
    come.forEach((time, rank) => {
      if (time > first) groups.set(time, [...(groups.get(time) ?? []), rank]);
    });
    return [...groups].map(([time, ranks]) => ({ time, ranks })).sort((a, b) => a.time - b.time);
  }

  /**
   * Modelled time, as mode `strict` of backends/simulation.py: seconds, one start and end a message.
   * @param {OpenSchedule} schedule
   * @param {Terms} link
   * @param {number} delay of the last group
   * @param {Float64Array} come when each rank comes, if not as the schedule plans
   * @returns {Simulated}
   */
  function simulate(schedule, link, delay, come = arrivals(schedule, delay)) {
    const { table } = schedule;
    const free = Float64Array.from(come);
    const starts = new Float64Array(table.length / 5);
    const ends = new Float64Array(table.length / 5);
    const perChunk = link.bytes / schedule.chunks / link.bandwidth;
    for (const round of schedule.rounds) {
      for (let at = round.start; at < round.end; at++) {
        starts[at] = Math.max(free[table[5 * at]], free[table[5 * at + 1]]);
        ends[at] = starts[at] + link.alpha + table[5 * at + 3] * perChunk;
      }
      for (let at = round.start; at < round.end; at++) free[table[5 * at]] = ends[at];
      for (let at = round.start; at < round.end; at++) {
        const dst = table[5 * at + 1];
        free[dst] = Math.max(free[dst], ends[at]);
      }
    }
    const completion = free.reduce((a, b) => Math.max(a, b), 0);
    const lastArrival = come.reduce((a, b) => Math.max(a, b), 0);
    return { come, starts, ends, through: free, completion, post: completion - lastArrival };
  }

  /**
   * Least post time, counting bandwidth only: as `bandwidth_bound` of schedules/cost.py.
   * @param {OpenSchedule} schedule
   * @param {Terms} link
   * @param {number} delay
   */
  function bandwidthBound(schedule, link, delay) {
    const seconds = link.bytes / link.bandwidth;
    const n = schedule.ranks;
    if (!schedule.arrivals.length) return (2 * (n - 1) * seconds) / n;
    if (schedule.late.size === 1) return Math.max(seconds, ((n - 1) / n) * (2 * seconds - delay));
    return Math.max(1, (n - 1 + schedule.arrivals[schedule.arrivals.length - 1].length) / n) * seconds;
  }

  /**
   * The message as it stands in the schedule file.
   * @param {OpenSchedule} schedule
   * @param {Round} round
   * @param {Message} move
   */
  function rawLine(schedule, round, move) {
    const phase = schedule.phases[round.phase].name;
    const op = move.op === REDUCE ? "reduce" : "copy";
    return `phase "${phase}" round ${round.round}: "${op}": [${move.src},${move.dst},${move.first},${move.count}]`;
  }

  const steps = { REDUCE, open, message, absent, arriving, boundPlace, Replay, rawLine };
  return { ...steps, arrivals, arrivalGroups, simulate, bandwidthBound };
})();
