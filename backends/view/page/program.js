"use strict";
/** An MSCCL program: thread blocks as rows, steps where their order puts them, what each waits for. */
class ProgramView {
  static NAMES = ["s", "type", "srcbuf", "srcoff", "dstbuf", "dstoff", "cnt", "depid", "deps", "hasdep"];

  constructor(program) {
    this.program = program;
    this.chosen = null;
    this.key = (rank, block, step) => `${rank}/${block}/${step}`;
    this.critical = new Set(program.critical.map((ref) => this.key(...ref)));
    this.wrong = new Map(program.places.map(([rank, block, step, text]) => [this.key(rank, block, step), text]));
    this.cycle = new Set(program.cycle.map(([rank, block]) => `${rank}/${block}`));
    this.from = new Map(program.messages.map((m) => [this.key(...m.slice(3)), m.slice(0, 3)]));
    this.to = new Map(program.messages.map((m) => [this.key(...m.slice(0, 3)), m.slice(3)]));
    this.#head();
    this.#listen();
    this.#path();
    this.redraw();
  }

  #head() {
    const { program } = this;
    const { byId, element } = Draw;
    byId("name").textContent = program.name;
    byId("verdict").textContent = program.total ? `not valid: ${program.total} findings` : "valid";
    byId("verdict").classList.toggle("bad", program.total > 0);
    const rounds = program.rounds ? `; rounds: pre ${program.rounds[0]}, post ${program.rounds[1]}` : "";
    const bound = program.bound === null ? "" : `; bound ${program.bound} post rounds`;
    byId("facts").textContent =
      `${program.ranks} ranks, ${program.chunks} chunks, ${program.channels} channels, ${program.protocol}, ` +
      `${program.inPlace ? "in" : "out of"} place, late: ${program.late.join(", ") || "none"}${rounds}${bound}`;
    byId("findings").append(...program.findings.map((line) => element("li", line)));
    if (program.total > program.findings.length) byId("findings").append(element("li", `and ${program.total - program.findings.length} more`));
    byId("p-rank").append(element("option", "all", { value: "-1" }));
    const ranks = [...new Set(program.blocks.map((block) => block.rank))];
    byId("p-rank").append(...ranks.map((rank) => element("option", `${rank}`, { value: `${rank}` })));
  }

  #listen() {
    const canvas = Draw.byId("blocks");
    for (const id of ["p-rank", "p-path", "p-bad"]) Draw.byId(id).addEventListener("change", () => this.redraw());
    canvas.addEventListener("click", (event) => this.#click(event));
    canvas.addEventListener("keydown", (event) => this.#move(event));
    Draw.night.addEventListener("change", () => this.redraw());
  }

  #path() {
    const items = this.program.critical.map((ref) => {
      const item = Draw.element("li");
      const found = this.#find(...ref);
      const words = `rank ${ref[0]} tb ${ref[1]} step ${ref[2]}: ${found ? this.#words(found) : ""}`;
      const button = Draw.element("button", words, { type: "button" });
      button.addEventListener("click", () => this.choose(...ref));
      item.append(button);
      return item;
    });
    Draw.byId("critical").replaceChildren(...items);
    Draw.byId("h-crit").textContent = `Critical path: ${items.length} messages`;
  }

  #find(rank, id, index) {
    const block = this.program.blocks.find((b) => b.rank === rank && b.id === id);
    const step = block?.steps.find((s) => s[0] === index);
    return step ? { block, step } : null;
  }

  #words({ block, step }) {
    const [, type, srcbuf, srcoff, dstbuf, dstoff, count] = step;
    const sends = ["s", "rcs", "rrs", "rrcs"].includes(type) ? ` to rank ${block.send}` : "";
    const receives = ["r", "rcs", "rrs", "rrc", "rrcs"].includes(type) ? ` from rank ${block.recv}` : "";
    return `${type} ${srcbuf}[${srcoff}] → ${dstbuf}[${dstoff}]${count > 1 ? ` ×${count}` : ""}${receives}${sends}, channel ${block.chan}`;
  }

  /** Whether something is wrong with a step, or with the block or rank that it is in. */
  #fault(block, step) {
    const places = [this.key(block.rank, block.id, step[0]), this.key(block.rank, block.id, -1), this.key(block.rank, -1, -1)];
    return places.map((place) => this.wrong.get(place)).find(Boolean);
  }

  #rows() {
    const rank = Number(Draw.byId("p-rank").value);
    const [path, bad] = [Draw.byId("p-path").checked, Draw.byId("p-bad").checked];
    return this.program.blocks.filter((block) => {
      if (rank >= 0 && block.rank !== rank) return false;
      if (path && !block.steps.some((s) => this.critical.has(this.key(block.rank, block.id, s[0])))) return false;
      return !bad || this.cycle.has(`${block.rank}/${block.id}`) || block.steps.some((s) => this.#fault(block, s));
    });
  }

  /** Chooses a step, shows its raw line and what it waits for. */
  choose(rank, block, step) {
    if (!this.#rows().some((b) => b.rank === rank && b.id === block))
      for (const [id, none] of [["p-rank", "-1"]]) Draw.byId(id).value = none;
    this.chosen = { rank, block, step };
    const found = this.#find(rank, block, step);
    if (!found) return;
    Draw.byId("h-step").textContent = `Rank ${rank} tb ${block} step ${step}`;
    Draw.byId("p-raw").textContent = `<step ${ProgramView.NAMES.map((name, i) => `${name}="${found.step[i]}"`).join(" ")}/>`;
    const key = this.key(rank, block, step);
    const name = (ref) => `rank ${ref[0]} tb ${ref[1]} step ${ref[2]}`;
    const facts = [this.#words(found)];
    if (found.step[7] >= 0) facts.push(`waits for tb ${found.step[7]} step ${found.step[8]} of its rank`);
    if (this.from.has(key)) facts.push(`receives from ${name(this.from.get(key))}`);
    if (this.to.has(key)) facts.push(`sends to ${name(this.to.get(key))}`);
    if (this.critical.has(key)) facts.push("on the critical path");
    const fault = this.#fault(found.block, found.step);
    if (fault) facts.push(fault);
    if (this.cycle.has(`${rank}/${block}`)) facts.push("its block waits in a cycle");
    Draw.byId("p-facts").replaceChildren(...facts.map((fact) => Draw.element("li", fact)));
    this.redraw();
    this.#reveal();
  }

  #reveal() {
    const place = this.places.get(this.key(this.chosen.rank, this.chosen.block, this.chosen.step));
    const scroll = Draw.byId("blocks-scroll");
    if (!place) return;
    if (place.y < scroll.scrollTop || place.y > scroll.scrollTop + scroll.clientHeight - 30) scroll.scrollTop = place.y - 80;
    if (place.x < scroll.scrollLeft || place.x > scroll.scrollLeft + scroll.clientWidth - 40) scroll.scrollLeft = place.x - 200;
  }

  /** Draws all rows that the filters let through. */
  redraw() {
    const rows = this.#rows();
    const last = Math.max(0, ...rows.flatMap((block) => block.steps.map((s) => s[10])));
    const cell = Math.max(14, Math.min(30, 24000 / (last + 1)));
    const [left, row] = [186, 18];
    const [width, height] = [left + (last + 1) * cell + 10, Math.min(16000, rows.length * row + 12)];
    const canvas = Draw.byId("blocks");
    canvas.style.width = `${width}px`;
    const context = Draw.canvas(canvas, width, height);
    this.places = new Map();
    rows.forEach((block, index) => this.#row(context, block, index, { left, row, cell, width, before: rows[index - 1] }));
    this.#edges(context, cell, row);
    canvas.setAttribute("aria-label", `${rows.length} thread blocks; ${this.critical.size} steps on the critical path`);
  }

  #row(context, block, index, g) {
    const y = index * g.row + 4;
    const stuck = this.cycle.has(`${block.rank}/${block.id}`);
    context.fillStyle = Draw.named(stuck ? "bound" : this.program.late.includes(block.rank) ? "late" : "ink");
    const ends = [block.recv >= 0 ? `${block.recv}→` : "", block.send >= 0 ? `→${block.send}` : ""].join(" ");
    context.fillText(`rank ${block.rank} tb ${block.id}  ${ends} ch ${block.chan}${stuck ? " cycle" : ""}`, 4, y + 12);
    context.fillStyle = Draw.named("line");
    if (!g.before || g.before.rank !== block.rank) context.fillRect(0, y - 2, g.width, 1);
    for (const step of block.steps) {
      const key = this.key(block.rank, block.id, step[0]);
      const x = g.left + step[10] * g.cell;
      this.places.set(key, { x, y, block, step });
      const fault = this.#fault(block, step);
      context.fillStyle = fault ? Draw.named("bound") : this.critical.has(key) ? "#d98b2b" : Draw.named("line");
      context.fillRect(x, y, g.cell - 2, g.row - 4);
      context.fillStyle = fault ? Draw.named("panel") : this.critical.has(key) ? "#1c2430" : Draw.named("ink");
      context.fillText(fault ? `!${step[1]}` : step[1], x + 2, y + 11, g.cell - 4);
    }
  }

  #edges(context, cell, row) {
    if (!this.chosen) return;
    const { rank, block, step } = this.chosen;
    const key = this.key(rank, block, step);
    const here = this.places.get(key);
    if (!here) return;
    const line = (from, to, dash) => {
      const [a, b] = [this.places.get(from), this.places.get(to)];
      if (!a || !b) return;
      context.setLineDash(dash);
      context.beginPath();
      context.moveTo(a.x + cell - 2, a.y + row / 2);
      context.lineTo(b.x, b.y + row / 2);
      context.stroke();
    };
    context.strokeStyle = Draw.named("accent");
    context.lineWidth = 2;
    context.strokeRect(here.x - 1, here.y - 1, cell, row - 2);
    if (here.step[7] >= 0) line(this.key(rank, here.step[7], here.step[8]), key, [3, 3]);
    if (this.from.has(key)) line(this.key(...this.from.get(key)), key, []);
    if (this.to.has(key)) line(key, this.key(...this.to.get(key)), []);
    context.setLineDash([]);
  }

  #click(event) {
    for (const { x, y, block, step } of this.places.values())
      if (event.offsetX >= x && event.offsetX < x + 30 && event.offsetY >= y && event.offsetY < y + 16) return this.choose(block.rank, block.id, step[0]);
    return undefined;
  }

  #move(event) {
    const rows = this.#rows();
    if (!event.key.startsWith("Arrow") || !rows.length) return;
    event.preventDefault();
    event.stopPropagation();
    let at = rows.findIndex((b) => this.chosen && b.rank === this.chosen.rank && b.id === this.chosen.block);
    let place = at < 0 ? 0 : rows[at].steps.findIndex((s) => s[0] === this.chosen.step);
    if (at < 0) at = 0;
    else if (event.key === "ArrowDown") at = Math.min(rows.length - 1, at + 1);
    else if (event.key === "ArrowUp") at = Math.max(0, at - 1);
    else place += event.key === "ArrowRight" ? 1 : -1;
    place = Math.max(0, Math.min(rows[at].steps.length - 1, place));
    if (rows[at].steps.length) this.choose(rows[at].rank, rows[at].id, rows[at].steps[place][0]);
  }
}
