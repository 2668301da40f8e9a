"use strict";
/** The schedule's page: its state (round, filters, choice), the map of all rounds, and what moves it. */
class ScheduleView {
  /** @param {{schedule: RawSchedule, against: RawSchedule | null, link: Terms}} data */
  constructor(data) {
    this.schedule = Model.open(data.schedule);
    this.replay = new Model.Replay(this.schedule);
    this.bound = Model.boundPlace(this.schedule);
    /** @type {State} */
    this.state = { at: 0, rank: -1, peer: -1, chunk: -1, by: "chunk", chosen: -1 };
    this.timer = 0;
    /** Messages in use by round: of the map as it was last painted. @type {number[]} */
    this.busy = [];
    /** @type {HTMLCanvasElement | null} */
    this.picture = null;
    this.panels = new Panels(this);
    this.compare = new CompareView(this.schedule, data.against ? Model.open(data.against) : null, data.link);
    this.#head();
    this.#fill();
    this.#listen();
    this.redraw();
  }

  /**
   * The round that is shown; none in a schedule without rounds.
   * @returns {Round | undefined}
   */
  get round() {
    return this.schedule.rounds[this.state.at];
  }

  #head() {
    const { schedule } = this;
    const late = [...schedule.late].sort((a, b) => a - b).join(", ");
    const counts = schedule.phases.map((p, i) => `${p.name} ${schedule.phaseRounds[i]}`).join(", ");
    const parameters = schedule.parameters.map(([key, value]) => `${key} ${value}`).join(", ");
    const { byId, element } = Draw;
    byId("name").textContent = schedule.name;
    byId("verdict").textContent = schedule.total ? `not valid: ${schedule.total} violations` : "valid";
    byId("verdict").classList.toggle("bad", schedule.total > 0);
    byId("facts").textContent =
      `${schedule.ranks} ranks, ${schedule.chunks} chunks, ${late ? `late: ${late}` : "nobody late"}; rounds: ${counts}; ` +
      `bound ${schedule.bound} post rounds, gap ${schedule.gap}${parameters ? `; ${parameters}` : ""}`;
    for (const violation of schedule.violations) {
      const item = element("li");
      const button = element("button", violation.text, { type: "button" });
      button.addEventListener("click", () => this.#goToViolation(violation));
      item.append(button);
      byId("findings").append(item);
    }
  }

  /** @param {Violation} violation */
  #goToViolation({ phase, round, rank, chunk }) {
    const at = this.schedule.rounds.findIndex((r) => r.phase === phase && r.round === round);
    this.set({ at: at < 0 ? this.schedule.rounds.length - 1 : at, rank, chunk });
  }

  #fill() {
    const { byId, element } = Draw;
    /** @type {(id: string, count: number, all: string) => void} */
    const fill = (id, count, all) => {
      const select = byId(id);
      select.append(element("option", all, { value: "-1" }));
      for (let i = 0; i < Math.min(count, 4096); i++)
        select.append(element("option", `${i}`, { value: `${i}` }));
    };
    fill("rank", this.schedule.ranks, "all");
    fill("peer", this.schedule.ranks, "all");
    fill("chunk", this.schedule.chunks, "all");
    Draw.field("round").max = `${Math.max(0, this.schedule.rounds.length - 1)}`;
  }

  #listen() {
    /** @type {(id: string, event: string, act: () => void) => void} */
    const on = (id, event, act) => Draw.byId(id).addEventListener(event, act);
    /** @param {"round" | "rank" | "peer" | "chunk"} id */
    const number = (id) => Number(Draw.field(id).value);
    on("first", "click", () => this.set({ at: 0 }));
    on("last", "click", () => this.set({ at: this.schedule.rounds.length - 1 }));
    on("back", "click", () => this.set({ at: this.state.at - 1 }));
    on("next", "click", () => this.set({ at: this.state.at + 1 }));
    on("play", "click", () => this.play());
    on("round", "input", () => this.set({ at: number("round") }));
    for (const id of /** @type {const} */ (["rank", "peer", "chunk"]))
      on(id, "change", () => this.set({ [id]: number(id) }));
    on("by", "change", () => this.set({ by: Draw.field("by").value }));
    on("speed", "change", () => {
      if (!this.timer) return;
      this.play();
      this.play();
    });
    on("clear", "click", () => this.clear());
    on("keys", "click", () => this.help());
    for (const id of ["map", "ports"])
      Draw.byId(id).addEventListener("click", (event) => this.#click(event, id));
    window.addEventListener("resize", () => this.redraw());
    Draw.whenColoursChange(() => this.redraw());
  }

  /** Shows everything again. */
  clear() {
    this.set({ rank: -1, peer: -1, chunk: -1, chosen: -1 });
  }

  /** Shows or hides the keys. */
  help() {
    const help = Draw.byId("help");
    help.hidden = !help.hidden;
    Draw.byId("keys").setAttribute("aria-expanded", String(!help.hidden));
  }

  /** Starts or stops playing; at the end it starts over. */
  play() {
    const button = Draw.byId("play");
    if (this.timer) {
      clearInterval(this.timer);
      this.timer = 0;
    } else {
      if (this.state.at >= this.schedule.rounds.length - 1) this.set({ at: 0 });
      this.timer = window.setInterval(
        () => {
          if (this.state.at >= this.schedule.rounds.length - 1) this.play();
          else this.set({ at: this.state.at + 1 });
        },
        1000 / Number(Draw.field("speed").value),
      );
    }
    button.textContent = this.timer ? "pause" : "play";
    button.setAttribute("aria-label", this.timer ? "Pause" : "Play");
    button.setAttribute("aria-pressed", String(Boolean(this.timer)));
  }

  /**
   * Changes the state, and draws what that changes.
   * @param {Partial<State>} change
   */
  set(change) {
    const before = { ...this.state };
    Object.assign(this.state, change);
    const { state, schedule } = this;
    /** @type {(value: number, count: number) => number} */
    const within = (value, count) => (value < -1 ? -1 : Math.min(value, count - 1));
    state.at = Math.max(0, Math.min(state.at, schedule.rounds.length - 1));
    for (const key of /** @type {const} */ (["rank", "peer"]))
      state[key] = within(state[key], schedule.ranks);
    state.chunk = within(state.chunk, schedule.chunks);
    if (state.at !== before.at && change.chosen === undefined) state.chosen = -1;
    const all = /** @type {const} */ (["rank", "peer", "chunk", "by"]).some(
      (key) => state[key] !== before[key],
    );
    this.redraw(all);
  }

  /**
   * Whether the filters let a message through.
   * @param {Message} move
   */
  shows(move) {
    const { rank, peer, chunk } = this.state;
    const ends = [move.src, move.dst];
    if (rank >= 0 && !ends.includes(rank)) return false;
    if (peer >= 0 && !ends.includes(peer)) return false;
    return chunk < 0 || (move.first <= chunk && chunk < move.first + move.count);
  }

  /** The messages of the round that the filters let through. */
  moves() {
    /** @type {Message[]} */
    const found = [];
    if (!this.round) return found;
    for (let at = this.round.start; at < this.round.end; at++) {
      const move = Model.message(this.schedule, at);
      if (this.shows(move)) found.push(move);
    }
    return found;
  }

  /**
   * The colour of a message in a round.
   * @param {Message} move
   * @param {Round} round
   */
  colour(move, round) {
    return this.#colours()[this.#shade(move, round)];
  }

  #colours() {
    return this.state.by === "age" ? Draw.ages() : Draw.palette();
  }

  /**
   * The number of that colour.
   * @param {Message} move
   * @param {Round} round
   */
  #shade(move, round) {
    if (this.state.by === "op") return move.op === Model.REDUCE ? 0 : 1;
    if (this.state.by === "chunk") return move.first % Draw.palette().length;
    const born = this.replay.born[round.phase * this.schedule.chunks + move.first];
    const step = ((round.round - born) * 6) / Math.max(1, this.schedule.phaseRounds[round.phase]);
    return Math.max(0, Math.min(5, Math.floor(step)));
  }

  /** Draws the page; `all`: also the map, which only filters and sizes change. */
  redraw(all = true) {
    const { state, round } = this;
    const label = round ? `${this.schedule.phases[round.phase].name} round ${round.round}` : "no rounds";
    const came = round && round.round === 0 ? Model.arriving(this.schedule, round.phase) : [];
    const arrived = came.length ? `, ${Draw.ranks(came)} arrived` : "";
    Draw.byId("where").textContent = `${label} (${state.at + 1} of ${this.schedule.rounds.length})${arrived}`;
    Draw.field("round").value = `${state.at}`;
    Draw.byId("round").setAttribute("aria-valuetext", label);
    for (const key of /** @type {const} */ (["rank", "peer", "chunk", "by"]))
      Draw.field(key).value = `${state[key]}`;
    if (all || !this.picture) this.#paintMap();
    this.#showMap();
    this.panels.draw();
    if (all) this.compare.redraw(this.state.rank);
  }

  /** @returns {MapGeometry} */
  #geometry() {
    const width = Math.max(200, Draw.byId("map").clientWidth);
    const left = 34;
    const cell = (width - left - 8) / Math.max(1, this.schedule.rounds.length);
    const row = Math.max(1, Math.min(30, 290 / this.schedule.ranks));
    return { width, left, cell, row, top: 38, height: 38 + row * this.schedule.ranks + 4 };
  }

  #paintMap() {
    const g = this.#geometry();
    this.picture = document.createElement("canvas");
    const context = Draw.canvas(this.picture, g.width, g.height);
    // Cells of a pixel or less are put down as pixels: half a million boxes would take half a second.
    const pixels = g.cell < 2 || g.row < 2 ? new Draw.Pixels(g.width, g.height, this.#colours()) : null;
    const busy = this.schedule.rounds.map((round, index) =>
      this.#paintRound(context, g, round, index, pixels),
    );
    pixels?.show(context);
    this.#paintFrame(context, g);
    this.#paintPorts(g, busy);
    const label = `All ${this.schedule.rounds.length} rounds of ${this.schedule.ranks} ranks; the table of transfers says the same for the chosen round`;
    Draw.byId("map").setAttribute("aria-label", label);
  }

  /**
   * @param {CanvasRenderingContext2D} context
   * @param {MapGeometry} g
   * @param {Round} round
   * @param {number} index
   * @param {InstanceType<typeof Draw.Pixels> | null} pixels
   * @returns {[number, number]} how many messages are reduces, and how many copies
   */
  #paintRound(context, g, round, index, pixels) {
    const [x, gap] = [g.left + index * g.cell, g.cell > 4 ? 1 : 0];
    const away = Model.absent(this.schedule, round.phase);
    const every = this.state.rank < 0 && this.state.peer < 0 && this.state.chunk < 0;
    context.fillStyle = Draw.named("late");
    for (const rank of away)
      for (let at = x; at < x + g.cell; at += 4) context.fillRect(at, g.top + (rank + 0.5) * g.row, 1.5, 1.5);
    /** @type {[number, number]} */
    const busy = [0, 0];
    for (let at = round.start; at < round.end; at++) {
      const move = Model.message(this.schedule, at);
      if (!every && !this.shows(move)) continue;
      busy[move.op === Model.REDUCE ? 0 : 1] += 1;
      if (pixels) {
        pixels.box(x, g.top + move.dst * g.row, g.cell, g.row, this.#shade(move, round));
        continue;
      }
      const height = Math.max(1, (g.row - (g.row > 4 ? 1 : 0)) * (move.op === Model.REDUCE ? 1 : 0.45));
      context.fillStyle = this.colour(move, round);
      context.fillRect(x, g.top + (move.dst + 1) * g.row - height, Math.max(1, g.cell - gap), height);
    }
    return busy;
  }

  /**
   * @param {CanvasRenderingContext2D} context
   * @param {MapGeometry} g
   */
  #paintFrame(context, g) {
    const { schedule } = this;
    context.fillStyle = Draw.named("soft");
    context.textAlign = "right";
    const step = Math.ceil(12 / g.row);
    for (let rank = 0; rank < schedule.ranks; rank++) {
      const late = schedule.late.has(rank);
      context.fillStyle = Draw.named(late ? "late" : "soft");
      const crowded = [...schedule.late].some((other) => Math.abs(other - rank) < step);
      if (late || (rank % step === 0 && !crowded))
        context.fillText(`${rank}`, g.left - 6, g.top + (rank + 0.5) * g.row + 4);
    }
    context.textAlign = "left";
    schedule.rounds.forEach((round, index) => {
      if (round.round) return;
      const x = g.left + index * g.cell;
      context.fillStyle = Draw.named("ink");
      context.fillText(schedule.phases[round.phase].name, x + 2, 10);
      context.fillStyle = Draw.named("late");
      if (index) context.fillRect(x - 1, 2, 2, g.height);
      const came = Model.arriving(schedule, round.phase);
      const room = g.cell * schedule.phaseRounds[round.phase] - 4;
      if (came.length && room > 30)
        context.fillText(`${Draw.ranks(came)} arrive${came.length > 1 ? "" : "s"}`, x + 3, 22, room);
    });
    for (const violation of schedule.violations) {
      const at = schedule.rounds.findIndex((r) => r.phase === violation.phase && r.round === violation.round);
      context.fillStyle = Draw.named("bound");
      if (at >= 0) context.fillText("!", g.left + (at + 0.5) * g.cell - 2, 35);
    }
    if (this.bound < 0) return;
    context.strokeStyle = Draw.named("bound");
    context.lineWidth = 2;
    context.setLineDash([6, 4]);
    context.beginPath();
    context.moveTo(g.left + this.bound * g.cell, 12);
    context.lineTo(g.left + this.bound * g.cell, g.height);
    context.stroke();
  }

  /**
   * @param {MapGeometry} g
   * @param {[number, number][]} busy
   */
  #paintPorts(g, busy) {
    const context = Draw.canvas(Draw.surface("ports"), g.width, 44);
    busy.forEach(([adds, copies], index) => {
      const x = g.left + index * g.cell;
      const [a, c] = [(40 * adds) / this.schedule.ranks, (40 * copies) / this.schedule.ranks];
      context.fillStyle = Draw.palette()[0];
      context.fillRect(x, 42 - a, Math.max(1, g.cell - 1), a);
      context.fillStyle = Draw.palette()[1];
      context.fillRect(x, 42 - a - c, Math.max(1, g.cell - 1), c);
    });
    const used = busy.map(([a, c]) => a + c);
    const mean = used.reduce((a, b) => a + b, 0) / Math.max(1, used.length) / this.schedule.ranks;
    Draw.byId("h-ports").textContent =
      `Ports in use: ${(100 * mean).toFixed(0)} % on average, now ${used[this.state.at] ?? 0} of ${this.schedule.ranks}`;
    this.busy = used;
    context.fillStyle = Draw.named("soft");
    context.textAlign = "right";
    context.fillText(`${this.schedule.ranks}`, g.left - 6, 10);
    Draw.byId("ports").setAttribute(
      "aria-label",
      `Out-ports in use in every round; on average ${(100 * mean).toFixed(0)} percent`,
    );
  }

  #showMap() {
    const g = this.#geometry();
    const context = Draw.canvas(Draw.surface("map"), g.width, g.height);
    if (this.picture) context.drawImage(this.picture, 0, 0, g.width, g.height);
    context.strokeStyle = Draw.named("ink");
    context.lineWidth = 2;
    context.strokeRect(
      g.left + this.state.at * g.cell - 1,
      g.top - 2,
      Math.max(3, g.cell + 1),
      g.height - g.top,
    );
    const words = (Draw.byId("h-ports").textContent ?? "").split(", now")[0];
    Draw.byId("h-ports").textContent =
      `${words}, now ${this.busy[this.state.at] ?? 0} of ${this.schedule.ranks}`;
  }

  /**
   * @param {MouseEvent} event
   * @param {string} id
   */
  #click(event, id) {
    const g = this.#geometry();
    const at = Math.floor((event.offsetX - g.left) / g.cell);
    if (at < 0 || at >= this.schedule.rounds.length) return;
    const rank = Math.floor((event.offsetY - g.top) / g.row);
    const round = this.schedule.rounds[at];
    let chosen = -1;
    if (id === "map")
      for (let row = round.start; row < round.end; row++)
        if (this.schedule.table[5 * row + 1] === rank) chosen = row;
    this.set({ at, chosen });
  }
}
