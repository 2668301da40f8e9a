"use strict";
/** Two schedules on one time axis under the same terms; the delay is a slider. Modelled time. */
class CompareView {
  /**
   * @param {OpenSchedule} first
   * @param {OpenSchedule | null} second
   * @param {Terms} link
   */
  constructor(first, second, link) {
    this.schedules = second ? [first, second] : [first];
    this.link = { ...link };
    this.rank = -1;
    const { byId, field, element } = Draw;
    field("bytes").value = `${link.bytes / 2 ** 20}`;
    field("alpha").value = `${link.alpha * 1e6}`;
    field("bandwidth").value = `${link.bandwidth / 2 ** 30}`;
    this.longest = Math.max(3 * (link.bytes / link.bandwidth), 1.5 * link.delay, 1e-6);
    field("delay").value = `${Math.round((1000 * link.delay) / this.longest)}`;
    this.canvases = this.schedules.map(() => element("canvas", "", { role: "img", class: "lane" }));
    byId("lanes").append(...this.canvases);
    for (const id of ["bytes", "alpha", "bandwidth"]) byId(id).addEventListener("input", () => this.#terms());
    byId("delay").addEventListener("input", () => this.#slide());
  }

  /**
   * Moves the delay slider by some of its thousand steps.
   * @param {number} steps
   */
  nudge(steps) {
    Draw.field("delay").value = `${Number(Draw.field("delay").value) + steps}`;
    this.#slide();
  }

  #slide() {
    this.link.delay = (Number(Draw.field("delay").value) / 1000) * this.longest;
    this.redraw();
  }

  #terms() {
    /** @type {(id: string, least: number, scale: number) => number} */
    const value = (id, least, scale) => Math.max(least, Number(Draw.field(id).value) || 0) * scale;
    this.link.bytes = value("bytes", 0, 2 ** 20);
    this.link.alpha = value("alpha", 0, 1e-6);
    this.link.bandwidth = value("bandwidth", 1e-3, 2 ** 30);
    this.longest = Math.max(3 * (this.link.bytes / this.link.bandwidth), 1e-6);
    this.#slide();
  }

  /** Simulates and draws both; `rank` is drawn stronger. */
  redraw(rank = this.rank) {
    this.rank = rank;
    const { link } = this;
    // Both meet the same arrivals: those that the first one is made for.
    const come = Model.arrivals(this.schedules[0], link.delay);
    const runs = this.schedules.map((schedule) =>
      Model.simulate(schedule, link, link.delay, schedule.ranks === come.length ? come : undefined),
    );
    const end = Math.max(1e-12, ...runs.map((run) => run.completion));
    this.schedules.forEach((schedule, i) => this.#lanes(this.canvases[i], schedule, runs[i], end));
    this.#table(runs);
    const groups = this.schedules[0].arrivals.length;
    const words = `${Draw.seconds(link.delay)} late${groups > 1 ? ` (${groups} groups, evenly spread)` : ""}`;
    Draw.byId("delaywords").textContent = words;
    Draw.byId("delay").setAttribute("aria-valuetext", words);
  }

  /**
   * @param {HTMLCanvasElement} target
   * @param {OpenSchedule} schedule
   * @param {Simulated} run
   * @param {number} end
   */
  #lanes(target, schedule, run, end) {
    const width = Math.max(200, target.clientWidth);
    const row = Math.max(0.5, Math.min(12, 150 / schedule.ranks));
    const height = 18 + row * schedule.ranks + 16;
    const context = Draw.canvas(target, width, height);
    /** @param {number} time */
    const x = (time) => 34 + ((width - 44) * time) / end;
    context.fillStyle = Draw.named("line");
    for (let rank = 0; rank < schedule.ranks; rank++)
      context.fillRect(
        x(run.come[rank]),
        18 + (rank + 0.5) * row,
        x(run.through[rank]) - x(run.come[rank]),
        Math.min(1, row),
      );
    if (row < 3) this.#fine(context, schedule, run, x, row, width, height);
    else this.#boxes(context, schedule, run, x, row);
    const come = Model.arrivalGroups(run.come);
    this.#marks(context, schedule, run, x, height, come);
    const last = come.map((group) => `${Draw.ranks(group.ranks)} at ${Draw.seconds(group.time)}`).join("; ");
    const words = `${schedule.name}: ${Draw.seconds(run.post)} after the last arrival${last ? `. Arrivals: ${last}` : ""}`;
    target.setAttribute("aria-label", words);
  }

  /**
   * Every message as a box at its receiver; a copy is half as high.
   * @param {CanvasRenderingContext2D} context
   * @param {OpenSchedule} schedule
   * @param {Simulated} run
   * @param {(time: number) => number} x
   * @param {number} row
   */
  #boxes(context, schedule, run, x, row) {
    const [reduce, copy] = Draw.palette();
    for (let at = 0; at < run.starts.length; at++) {
      const dst = schedule.table[5 * at + 1];
      const isCopy = schedule.table[5 * at + 4] !== Model.REDUCE;
      context.globalAlpha =
        this.rank < 0 || this.rank === dst || this.rank === schedule.table[5 * at] ? 1 : 0.25;
      context.fillStyle = isCopy ? copy : reduce;
      const tall = (row - 1) * (isCopy ? 0.5 : 1);
      const wide = x(run.ends[at]) - x(run.starts[at]);
      context.fillRect(
        x(run.starts[at]),
        18 + (dst + 1) * row - tall,
        Math.max(0.5, wide - (wide > 4 ? 1 : 0)),
        tall,
      );
    }
    context.globalAlpha = 1;
  }

  /**
   * The same for very many: pixels, in which a chosen rank has a colour of its own.
   * @param {CanvasRenderingContext2D} context
   * @param {OpenSchedule} schedule
   * @param {Simulated} run
   * @param {(time: number) => number} x
   * @param {number} row
   * @param {number} width
   * @param {number} height
   */
  #fine(context, schedule, run, x, row, width, height) {
    const [reduce, copy] = Draw.palette();
    const pixels = new Draw.Pixels(width, height, [reduce, copy, Draw.named("ink")]);
    const { table } = schedule;
    const origin = x(0);
    const scale = x(1) - origin;
    const { rank } = this;
    for (const chosen of rank < 0 ? [false] : [false, true])
      for (let at = 0; at < run.starts.length; at++) {
        const dst = table[5 * at + 1];
        if (chosen && rank !== dst && rank !== table[5 * at]) continue;
        const from = origin + scale * run.starts[at];
        const wide = scale * (run.ends[at] - run.starts[at]);
        pixels.box(from, 18 + dst * row, wide, row, chosen ? 2 : table[5 * at + 4] === Model.REDUCE ? 0 : 1);
      }
    pixels.show(context);
  }

  /**
   * @param {CanvasRenderingContext2D} context
   * @param {OpenSchedule} schedule
   * @param {Simulated} run
   * @param {(time: number) => number} x
   * @param {number} height
   * @param {Arrival[]} come
   */
  #marks(context, schedule, run, x, height, come) {
    const last = run.completion - run.post;
    /** @type {(time: number, colour: string, dash: number[]) => void} */
    const line = (time, colour, dash) => {
      context.strokeStyle = Draw.named(colour);
      context.lineWidth = 2;
      context.setLineDash(dash);
      context.beginPath();
      context.moveTo(x(time), 4);
      context.lineTo(x(time), height - 12);
      context.stroke();
    };
    for (const group of come) line(group.time, "late", []);
    if (!come.length) line(last, "late", []);
    line(last + Model.bandwidthBound(schedule, this.link, this.link.delay), "bound", [6, 4]);
    line(run.completion, "ink", []);
    context.fillStyle = Draw.named("ink");
    context.fillText(schedule.name.slice(0, 40), 34, 12);
    context.textAlign = "right";
    const words = `post ${Draw.seconds(run.post)}`;
    context.fillText(words, Math.max(x(run.completion) - 4, 200), 12);
    context.fillStyle = Draw.named("soft");
    const end = Math.max(x(run.completion), 200);
    context.fillText(Draw.seconds(run.completion), end, height - 2);
    context.textAlign = "left";
    context.fillText("0", 34, height - 2);
    this.#arrivalWords(context, x, height, come, end - 60);
    context.setLineDash([]);
  }

  /**
   * Who arrives, under each line, as far as there is room.
   * @param {CanvasRenderingContext2D} context
   * @param {(time: number) => number} x
   * @param {number} height
   * @param {Arrival[]} come
   * @param {number} most
   */
  #arrivalWords(context, x, height, come, most) {
    context.fillStyle = Draw.named("late");
    let free = 46;
    for (const group of come) {
      const words = Draw.ranks(group.ranks);
      const wide = context.measureText(words).width;
      const at = Math.max(free, x(group.time) - wide / 2);
      if (at + wide > most || at > x(group.time) + wide) continue;
      context.fillText(words, at, height - 2);
      free = at + wide + 6;
    }
  }

  /** @param {Simulated[]} runs */
  #table(runs) {
    const bound = Model.bandwidthBound(this.schedules[0], this.link, this.link.delay);
    /** @param {string[]} texts */
    const cells = (texts) => {
      const row = Draw.element("tr");
      row.append(...texts.map((text) => Draw.element("td", text)));
      return row;
    };
    /** @param {number} value */
    const ratio = (value) => (bound > 0 ? (value / bound).toFixed(3) : "-");
    const rows = this.schedules.map((s, i) =>
      cells([s.name, s.phaseRounds.join(" + "), Draw.seconds(runs[i].post), ratio(runs[i].post)]),
    );
    rows.push(cells(["bound (bandwidth only)", "", Draw.seconds(bound), ratio(bound)]));
    Draw.rows("times").replaceChildren(...rows);
  }
}
