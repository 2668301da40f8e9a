/** What the page's data is made of: the shapes of schedule_data.py and program_data.py. Read by `tsc` alone. */

/** A schedule as the page gets it; `rows` are five numbers a transfer: src, dst, first, count, op. */
interface RawSchedule {
  name: string;
  parameters: [string, string][];
  ranks: number;
  chunks: number;
  arrivals: number[][];
  phases: { name: string; offsets: number[]; rows: number[] }[];
  bound: number;
  gap: number;
  total: number;
  violations: Violation[];
}

interface Violation {
  phase: number;
  round: number;
  rank: number;
  chunk: number;
  text: string;
}

/** A round: its phase, its number there, and its rows of the table. */
interface Round {
  phase: number;
  round: number;
  start: number;
  end: number;
}

/** A schedule, opened: one flat table of all messages. */
interface OpenSchedule extends RawSchedule {
  rounds: Round[];
  table: Int32Array;
  phaseRounds: number[];
  late: Set<number>;
}

interface Message {
  at: number;
  src: number;
  dst: number;
  first: number;
  count: number;
  op: number;
}

/** Terms of the simulation: bytes, seconds, bytes a second, seconds. */
interface Terms {
  bytes: number;
  alpha: number;
  bandwidth: number;
  delay: number;
}

interface Simulated {
  come: Float64Array;
  starts: Float64Array;
  ends: Float64Array;
  through: Float64Array;
  completion: number;
  post: number;
}

/** A step: index, type, srcbuf, srcoff, dstbuf, dstoff, cnt, depid, deps, hasdep, column. */
type Step = [number, string, string, number, string, number, number, number, number, number, number];
/** A step's place: rank, thread block, step; -1: not named. */
type Ref = [number, number, number];

interface Block {
  rank: number;
  id: number;
  send: number;
  recv: number;
  chan: number;
  steps: Step[];
}

interface RawProgram {
  name: string;
  protocol: string;
  ranks: number;
  chunks: number;
  channels: number;
  late: number[];
  inPlace: boolean;
  blocks: Block[];
  messages: [number, number, number, number, number, number][];
  critical: Ref[];
  findings: string[];
  spots: Ref[];
  total: number;
  places: [number, number, number, string][];
  cycle: [number, number][];
  rounds: [number, number] | null;
  bound: number | null;
}

type PageData =
  | { kind: "schedule"; schedule: RawSchedule; against: RawSchedule | null; link: Terms }
  | { kind: "program"; program: RawProgram };

/** What the view of a schedule shows: round, filters (-1: all), colours, chosen transfer. */
interface State {
  at: number;
  rank: number;
  peer: number;
  chunk: number;
  by: string;
  chosen: number;
}

/** Ranks that come together, and when, in seconds. */
interface Arrival {
  time: number;
  ranks: number[];
}

/** Where the map of all rounds lies on its canvas, in CSS pixels. */
interface MapGeometry {
  width: number;
  height: number;
  left: number;
  top: number;
  cell: number;
  row: number;
}
