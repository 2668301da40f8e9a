"use strict";
/** What is said of the round, rank and chunk in view: ring of ranks, transfers, holdings, spread. */
class Panels {
  static MOST_ROWS = 64;

  /** @param {ScheduleView} view */
  constructor(view) {
    this.view = view;
    const rows = Draw.rows("moves");
    rows.addEventListener("click", (event) => this.#pick(event));
    rows.addEventListener("keydown", (event) => {
      if (event.key === "Enter" || event.key === " ") this.#pick(event);
    });
  }

  /** Draws all panels for the view's state. */
  draw() {
    const { view } = this;
    view.replay.goTo(Math.min(view.schedule.rounds.length, view.state.at + 1));
    const moves = view.moves();
    this.#ring(moves);
    this.#table(moves);
    this.#rank();
    this.#spread();
  }

  /**
   * Chooses the transfer of a row, and keeps the focus there: the rows are made anew.
   * @param {Event} event
   */
  #pick(event) {
    const row = event.target instanceof Element ? event.target.closest("tr") : null;
    const at = row?.dataset.at;
    if (at === undefined) return;
    event.preventDefault();
    this.view.set({ chosen: Number(at) });
    /** @type {HTMLElement | null} */ (Draw.rows("moves").querySelector(`[data-at="${at}"]`))?.focus();
  }

  /** @param {number} rank */
  #place(rank, radius = 168) {
    const angle = (2 * Math.PI * rank) / this.view.schedule.ranks - Math.PI / 2;
    return [200 + radius * Math.cos(angle), 200 + radius * Math.sin(angle)];
  }

  /** @param {Message[]} moves */
  #ring(moves) {
    const parts = [];
    for (const move of moves) parts.push(this.#arrow(move));
    for (let rank = 0; rank < this.view.schedule.ranks; rank++) parts.push(...this.#node(rank));
    Draw.byId("ring").replaceChildren(...parts);
  }

  #size() {
    return Math.max(3, Math.min(17, 420 / this.view.schedule.ranks));
  }

  /** @param {Message} move */
  #arrow(move) {
    const { view } = this;
    const size = this.#size() + 3;
    const [[x1, y1], [x2, y2]] = [this.#place(move.src), this.#place(move.dst)];
    // Bent towards the middle and a little to the right, so that the two arrows of a swap lie apart.
    const length = Math.hypot(x2 - x1, y2 - y1) || 1;
    const bend = 12 + length * 0.08;
    const [mx, my] = [
      (x1 + x2) / 2 - ((y2 - y1) / length) * bend,
      (y1 + y2) / 2 + ((x2 - x1) / length) * bend,
    ];
    /** @type {(ax: number, ay: number, bx: number, by: number) => [number, number]} */
    const cut = (ax, ay, bx, by) => {
      const d = Math.hypot(bx - ax, by - ay) || 1;
      return [ax + ((bx - ax) / d) * size, ay + ((by - ay) / d) * size];
    };
    const [sx, sy] = cut(x1, y1, mx, my);
    const [ex, ey] = cut(x2, y2, mx, my);
    const angle = (Math.atan2(y2 - my, x2 - mx) * 180) / Math.PI;
    const colour = view.colour(move, view.schedule.rounds[view.state.at]);
    const copy = move.op !== Model.REDUCE;
    const chosen = move.at === view.state.chosen;
    const thick = chosen ? 4 : view.schedule.ranks > 64 ? 1 : 2;
    const words = `${copy ? "copy" : "reduce"} chunk ${Draw.run(move)} from rank ${move.src} to rank ${move.dst}`;
    const group = Draw.shape("g", {
      role: "button",
      "aria-label": words,
      stroke: colour,
      "stroke-width": `${thick}`,
    });
    const path = { d: `M${sx} ${sy}Q${mx} ${my} ${ex} ${ey}`, fill: "none" };
    group.append(
      Draw.shape("title", {}, words),
      Draw.shape("path", { ...path, "stroke-width": "10", stroke: "transparent" }),
    );
    group.append(Draw.shape("path", copy ? { ...path, "stroke-dasharray": "5 4" } : path));
    const tip = { d: "M0 0l-9 -4.5v9z", transform: `translate(${ex} ${ey}) rotate(${angle})` };
    group.append(
      Draw.shape("path", { ...tip, fill: copy ? Draw.named("panel") : colour, "stroke-width": "1.5" }),
    );
    if (view.schedule.ranks <= 24) {
      const at = {
        x: `${(sx + 2 * mx + ex) / 4}`,
        y: `${(sy + 2 * my + ey) / 4 + 4}`,
        "text-anchor": "middle",
        stroke: Draw.named("panel"),
        "stroke-width": "3",
        "paint-order": "stroke",
      };
      group.append(Draw.shape("text", at, Draw.run(move)));
    }
    group.addEventListener("click", () => view.set({ chosen: move.at }));
    return group;
  }

  /** @param {number} rank */
  #node(rank) {
    const { view } = this;
    const { schedule, state } = view;
    const size = this.#size();
    const [x, y] = this.#place(rank);
    const done =
      view.replay.whole[Math.min(schedule.rounds.length, state.at + 1) * schedule.ranks + rank] /
      schedule.chunks;
    const away = view.round && Model.absent(schedule, view.round.phase).has(rank);
    const edge = rank === state.rank ? "accent" : schedule.late.has(rank) ? "late" : "soft";
    /** @type {Record<string, string>} */
    const ring = {
      cx: `${x}`,
      cy: `${y}`,
      r: `${size}`,
      fill: Draw.named("panel"),
      stroke: Draw.named(edge),
      "stroke-width": rank === state.rank ? "4" : "2",
    };
    if (away) ring["stroke-dasharray"] = "2 4";
    const circle = Draw.shape("circle", ring);
    const words = `rank ${rank}${away ? ", not arrived" : ""}: ${Math.round(done * 100)} % of the chunks complete`;
    circle.append(Draw.shape("title", {}, words));
    circle.addEventListener("click", () => view.set({ rank: state.rank === rank ? -1 : rank }));
    const around = 2 * Math.PI * (size / 2);
    const pie = {
      cx: `${x}`,
      cy: `${y}`,
      r: `${size / 2}`,
      fill: "none",
      stroke: Draw.named("good"),
      "stroke-opacity": "0.45",
      "stroke-width": `${Math.max(1, size - 2)}`,
      "stroke-dasharray": `${around * done} ${around}`,
      transform: `rotate(-90 ${x} ${y})`,
      "pointer-events": "none",
    };
    const parts = [circle, Draw.shape("circle", pie)];
    const every = schedule.ranks <= 40 ? 1 : schedule.ranks <= 80 ? 4 : 16;
    if (rank % every === 0 || schedule.late.has(rank)) {
      const [lx, ly] = size >= 10 ? [x, y] : this.#place(rank, 186);
      parts.push(
        Draw.shape(
          "text",
          { x: `${lx}`, y: `${ly + 4}`, "text-anchor": "middle", "pointer-events": "none" },
          `${rank}`,
        ),
      );
    }
    return parts;
  }

  /** @param {Message[]} moves */
  #table(moves) {
    const { view } = this;
    const rows = moves.slice(0, Panels.MOST_ROWS).map((move) => {
      const row = Draw.element("tr", "", { class: "pick", tabindex: "0", "data-at": `${move.at}` });
      if (move.at === view.state.chosen) {
        row.classList.add("chosen");
        row.setAttribute("aria-current", "true");
      }
      const what = move.op === Model.REDUCE ? "⊕ reduce" : "← copy";
      row.append(
        ...[`${move.src}`, `${move.dst}`, Draw.run(move), what].map((text) => Draw.element("td", text)),
      );
      return row;
    });
    if (moves.length > rows.length) {
      const row = Draw.element("tr");
      row.append(
        Draw.element("td", `and ${moves.length - rows.length} more: filter by rank, peer or chunk`, {
          colspan: "4",
        }),
      );
      rows.push(row);
    }
    Draw.rows("moves").replaceChildren(...rows);
    Draw.byId("h-moves").textContent = `Transfers: ${moves.length}`;
    const { chosen } = view.state;
    Draw.byId("raw").textContent =
      chosen >= 0 && view.round
        ? Model.rawLine(view.schedule, view.round, Model.message(view.schedule, chosen))
        : "Choose a transfer for its raw line.";
  }

  #rank() {
    const { view } = this;
    const { schedule } = view;
    const rank = Math.max(0, view.state.rank);
    Draw.byId("h-rank").textContent = `Rank ${rank}${schedule.late.has(rank) ? " (late)" : ""}`;
    /** @type {{sends: string[], receives: string[]}} */
    const says = { sends: [], receives: [] };
    for (let at = view.round?.start ?? 0; at < (view.round?.end ?? 0); at++) {
      const move = Model.message(schedule, at);
      if (move.src === rank) says.sends.push(`chunk ${Draw.run(move)} to ${move.dst}`);
      if (move.dst === rank)
        says.receives.push(
          `${move.op === Model.REDUCE ? "adds" : "copies"} chunk ${Draw.run(move)} from ${move.src}`,
        );
    }
    const parts = Object.entries(says).flatMap(([verb, list]) => [
      Draw.element("dt", verb),
      Draw.element("dd", list.join(", ") || "nothing"),
    ]);
    Draw.byId("does").replaceChildren(...parts);
    this.#holds(rank);
  }

  /** @param {number} rank */
  #holds(rank) {
    const { schedule, replay } = this.view;
    const target = Draw.surface("holds");
    const width = Math.max(120, target.clientWidth);
    const context = Draw.canvas(target, width, 46);
    const cell = width / schedule.chunks;
    let complete = 0;
    for (let chunk = 0; chunk < schedule.chunks; chunk++) {
      const share = replay.contributions(rank, chunk) / schedule.ranks;
      complete += share === 1 ? 1 : 0;
      context.fillStyle = Draw.chunkColour(chunk);
      context.globalAlpha = share === 1 ? 1 : 0.55;
      context.fillRect(chunk * cell, 32 * (1 - share), Math.max(0.5, cell - (cell > 3 ? 1 : 0)), 32 * share);
      context.globalAlpha = 1;
      context.fillStyle = Draw.named("soft");
      if (cell > 16 || chunk % Math.ceil(26 / cell) === 0) context.fillText(`${chunk}`, chunk * cell + 1, 44);
    }
    const words = `after this round: ${complete} of ${schedule.chunks} chunks complete`;
    target.setAttribute("aria-label", `Rank ${rank} ${words}`);
    Draw.byId("held").textContent = `${words}; a bar is the share of ranks whose part is in it`;
  }

  #spread() {
    const { view } = this;
    const { schedule, replay } = view;
    const chunk = Math.max(0, view.state.chunk);
    const count = schedule.rounds.length;
    const holders = Array.from({ length: count + 1 }, (_, i) => replay.holders[i * schedule.chunks + chunk]);
    const born = holders.findIndex((n) => n > 0);
    /** @param {number} i */
    const x = (i) => 34 + (296 * i) / Math.max(1, count);
    /** @param {number} n */
    const y = (n) => 170 - (150 * Math.log2(Math.max(0.5, n) * 2)) / Math.log2(schedule.ranks * 2);
    /** @type {(values: number[], from: number) => string} */
    const stairs = (values, from) =>
      values.map((n, i) => `${i ? "L" : "M"}${x(from + i).toFixed(1)} ${y(n).toFixed(1)}`).join("");
    const doubling =
      born < 0
        ? []
        : Array.from({ length: count + 1 - born }, (_, i) =>
            Math.min(schedule.ranks, holders[born] * 2 ** i),
          );
    const parts = [];
    for (let n = 1; n <= schedule.ranks; n *= schedule.ranks > 32 ? 4 : 2) {
      parts.push(
        Draw.shape("line", { x1: "34", x2: "330", y1: `${y(n)}`, y2: `${y(n)}`, stroke: Draw.named("line") }),
      );
      parts.push(Draw.shape("text", { x: "28", y: `${y(n) + 4}`, "text-anchor": "end" }, `${n}`));
    }
    if (born >= 0) {
      parts.push(
        Draw.shape("path", {
          d: stairs(doubling, born),
          fill: "none",
          stroke: Draw.named("bound"),
          "stroke-width": "2",
          "stroke-dasharray": "6 4",
        }),
      );
      parts.push(
        Draw.shape("path", {
          d: stairs(holders.slice(born), born),
          fill: "none",
          stroke: Draw.chunkColour(chunk),
          "stroke-width": "3",
        }),
      );
    }
    const now = x(view.state.at + 1);
    parts.push(
      Draw.shape("line", { x1: `${now}`, x2: `${now}`, y1: "16", y2: "176", stroke: Draw.named("ink") }),
    );
    parts.push(Draw.shape("text", { x: "182", y: "194", "text-anchor": "middle" }, "rounds done"));
    Draw.byId("spread").replaceChildren(...parts);
    Draw.byId("h-spread").textContent = `Spread of chunk ${chunk}`;
    const words = `${holders[view.state.at + 1] ?? 0} of ${schedule.ranks} ranks hold chunk ${chunk} complete`;
    Draw.byId("spread").setAttribute("aria-label", words);
    Draw.byId("spreadwords").textContent = `${words}. Dashed: doubling every round, which no chunk can beat.`;
  }
}
