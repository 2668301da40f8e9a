"use strict";
/** Two schedules on one time axis under the same terms; the delay is a slider. Modelled time. */
class CompareView {
  constructor(first, second, link) {
    this.schedules = second ? [first, second] : [first];
    this.link = { ...link };
    this.rank = -1;
    const { byId, element } = Draw;
    byId("bytes").value = `${link.bytes / 2 ** 20}`;
    byId("alpha").value = `${link.alpha * 1e6}`;
    byId("bandwidth").value = `${link.bandwidth / 2 ** 30}`;
    this.longest = Math.max(3 * (link.bytes / link.bandwidth), 1.5 * link.delay, 1e-6);
    byId("delay").value = `${Math.round((1000 * link.delay) / this.longest)}`;
    this.canvases = this.schedules.map(() => element("canvas", "", { role: "img", class: "lane" }));
    byId("lanes").append(...this.canvases);
    for (const id of ["bytes", "alpha", "bandwidth"]) byId(id).addEventListener("input", () => this.#terms());
    byId("delay").addEventListener("input", () => this.#slide());
  }

  /** Moves the delay slider by some of its thousand steps. */
  nudge(steps) {
    Draw.byId("delay").value = `${Number(Draw.byId("delay").value) + steps}`;
    this.#slide();
  }

  #slide() {
    this.link.delay = (Number(Draw.byId("delay").value) / 1000) * this.longest;
    this.redraw();
  }

  #terms() {
    const value = (id, least, scale) => Math.max(least, Number(Draw.byId(id).value) || 0) * scale;
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
    const runs = this.schedules.map((schedule) => Model.simulate(schedule, link, link.delay));
    const end = Math.max(1e-12, ...runs.map((run) => run.completion));
    this.schedules.forEach((schedule, i) => this.#lanes(this.canvases[i], schedule, runs[i], end));
    this.#table(runs);
    const words = Draw.seconds(link.delay);
    Draw.byId("delaywords").textContent = `${words} late`;
    Draw.byId("delay").setAttribute("aria-valuetext", words);
  }

  #lanes(target, schedule, run, end) {
    const width = Math.max(200, target.clientWidth);
    const row = Math.max(1, Math.min(12, 150 / schedule.ranks));
    const height = 18 + row * schedule.ranks + 16;
    const context = Draw.canvas(target, width, height);
    const x = (time) => 34 + ((width - 44) * time) / end;
    const [reduce, copy] = Draw.palette();
    for (let rank = 0; rank < schedule.ranks; rank++) {
      context.fillStyle = Draw.named("line");
      context.fillRect(x(run.come[rank]), 18 + (rank + 0.5) * row, x(run.through[rank]) - x(run.come[rank]), 1);
    }
    for (let at = 0; at < run.starts.length; at++) {
      const dst = schedule.table[5 * at + 1];
      const isCopy = schedule.table[5 * at + 4] !== Model.REDUCE;
      context.globalAlpha = this.rank < 0 || this.rank === dst || this.rank === schedule.table[5 * at] ? 1 : 0.25;
      context.fillStyle = isCopy ? copy : reduce;
      const tall = Math.max(1, (row - (row > 3 ? 1 : 0)) * (isCopy ? 0.5 : 1));
      const wide = x(run.ends[at]) - x(run.starts[at]);
      context.fillRect(x(run.starts[at]), 18 + (dst + 1) * row - tall, Math.max(0.5, wide - (wide > 4 ? 1 : 0)), tall);
    }
    context.globalAlpha = 1;
    this.#marks(context, schedule, run, x, height);
    const words = `${schedule.name}: ${Draw.seconds(run.post)} after the last arrival`;
    target.setAttribute("aria-label", words);
  }

  #marks(context, schedule, run, x, height) {
    const last = run.come.reduce((a, b) => Math.max(a, b), 0);
    const line = (time, colour, dash) => {
      context.strokeStyle = Draw.named(colour);
      context.lineWidth = 2;
      context.setLineDash(dash);
      context.beginPath();
      context.moveTo(x(time), 4);
      context.lineTo(x(time), height - 12);
      context.stroke();
    };
    line(last, "late", []);
    line(last + Model.bandwidthBound(schedule, this.link, this.link.delay), "bound", [6, 4]);
    line(run.completion, "ink", []);
    context.fillStyle = Draw.named("ink");
    context.fillText(schedule.name.slice(0, 40), 34, 12);
    context.textAlign = "right";
    const words = `post ${Draw.seconds(run.post)}`;
    context.fillText(words, Math.max(x(run.completion) - 4, 200), 12);
    context.fillStyle = Draw.named("soft");
    context.fillText(Draw.seconds(run.completion), Math.max(x(run.completion), 200), height - 2);
    context.textAlign = "left";
    context.fillText("0", 34, height - 2);
    context.setLineDash([]);
  }

  #table(runs) {
    const bound = Model.bandwidthBound(this.schedules[0], this.link, this.link.delay);
    const cells = (texts) => {
      const row = Draw.element("tr");
      row.append(...texts.map((text) => Draw.element("td", text)));
      return row;
    };
    const ratio = (value) => (bound > 0 ? (value / bound).toFixed(3) : "-");
    const rows = this.schedules.map((s, i) => cells([s.name, s.phaseRounds.join(" + "), Draw.seconds(runs[i].post), ratio(runs[i].post)]));
    rows.push(cells(["bound (bandwidth only)", "", Draw.seconds(bound), ratio(bound)]));
    Draw.byId("times").tBodies[0].replaceChildren(...rows);
  }
}
