"use strict";
/** An MSCCL program: thread blocks as rows, steps where their order puts them, what each waits for. */
class ProgramView {
  static NAMES = ["s", "type", "srcbuf", "srcoff", "dstbuf", "dstoff", "cnt", "depid", "deps", "hasdep"];
  static ROW = 18;
  static LEFT = 186;

  /** @param {RawProgram} program */
  constructor(program) {
    this.program = program;
    /** @type {{rank: number, block: number, step: number} | null} */
    this.chosen = null;
    this.critical = new Set(program.critical.map((ref) => this.key(...ref)));
    this.wrong = new Map(
      program.places.map(([rank, block, step, text]) => [this.key(rank, block, step), text]),
    );
    this.cycle = new Set(program.cycle.map(([rank, block]) => `${rank}/${block}`));
    /** @type {Map<string, Ref>} */
    this.from = new Map(program.messages.map((m) => [this.key(m[3], m[4], m[5]), [m[0], m[1], m[2]]]));
    /** @type {Map<string, Ref>} */
    this.to = new Map(program.messages.map((m) => [this.key(m[0], m[1], m[2]), [m[3], m[4], m[5]]]));
    this.blocks = new Map(program.blocks.map((block) => [`${block.rank}/${block.id}`, block]));
    /** @type {Block[]} */
    this.shown = [];
    this.cell = 30;
    this.#head();
    this.#listen();
    this.#path();
    this.redraw();
  }

  /**
   * The name of a step.
   * @param {number} rank
   * @param {number} block
   * @param {number} step
   */
  key(rank, block, step) {
    return `${rank}/${block}/${step}`;
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
    byId("findings").append(...program.findings.map((line, at) => this.#finding(line, program.spots[at])));
    if (program.total > program.findings.length)
      byId("findings").append(element("li", `and ${program.total - program.findings.length} more`));
    byId("p-rank").append(element("option", "all", { value: "-1" }));
    const ranks = [...new Set(program.blocks.map((block) => block.rank))];
    byId("p-rank").append(...ranks.map((rank) => element("option", `${rank}`, { value: `${rank}` })));
  }

  /**
   * A line that leads to its place, where it names one that is there.
   * @param {string} line
   * @param {Ref} spot
   */
  #finding(line, spot) {
    const target = this.#target(spot);
    const item = Draw.element("li", target ? "" : line);
    if (target) {
      const button = Draw.element("button", line, { type: "button" });
      button.addEventListener("click", () => this.choose(...target));
      item.append(button);
    }
    return item;
  }

  /**
   * The step that a place stands for: of a block or a rank the first.
   * @param {Ref} spot
   * @returns {Ref | null}
   */
  #target([rank, id, index]) {
    const block = this.program.blocks.find(
      (b) => b.rank === rank && (id < 0 || b.id === id) && b.steps.length > 0,
    );
    if (!block) return null;
    const step = block.steps.find((s) => s[0] === index) ?? block.steps[0];
    return [rank, block.id, step[0]];
  }

  #listen() {
    const canvas = Draw.surface("blocks");
    for (const id of ["p-rank", "p-path", "p-bad"])
      Draw.byId(id).addEventListener("change", () => this.redraw());
    canvas.addEventListener("click", (event) => this.#click(event));
    canvas.addEventListener("keydown", (event) => this.#move(event));
    Draw.byId("blocks-scroll").addEventListener("scroll", () => this.#paint());
    window.addEventListener("resize", () => this.redraw());
    Draw.whenColoursChange(() => this.redraw());
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

  /**
   * @param {number} rank
   * @param {number} id
   * @param {number} index
   */
  #find(rank, id, index) {
    const block = this.blocks.get(`${rank}/${id}`);
    const step = block?.steps.find((s) => s[0] === index);
    return block && step ? { block, step } : null;
  }

  /** @param {{block: Block, step: Step}} found */
  #words({ block, step }) {
    const [, type, srcbuf, srcoff, dstbuf, dstoff, count] = step;
    const sends = ["s", "rcs", "rrs", "rrcs"].includes(type) ? ` to rank ${block.send}` : "";
    const receives = ["r", "rcs", "rrs", "rrc", "rrcs"].includes(type) ? ` from rank ${block.recv}` : "";
    return `${type} ${srcbuf}[${srcoff}] → ${dstbuf}[${dstoff}]${count > 1 ? ` ×${count}` : ""}${receives}${sends}, channel ${block.chan}`;
  }

  /**
   * Whether something is wrong with a step, or with the block or rank that it is in.
   * @param {Block} block
   * @param {Step} step
   */
  #fault(block, step) {
    const places = [
      this.key(block.rank, block.id, step[0]),
      this.key(block.rank, block.id, -1),
      this.key(block.rank, -1, -1),
    ];
    return places.map((place) => this.wrong.get(place)).find(Boolean);
  }

  #rows() {
    const rank = Number(Draw.field("p-rank").value);
    const [path, bad] = [Draw.field("p-path").checked, Draw.field("p-bad").checked];
    return this.program.blocks.filter((block) => {
      if (rank >= 0 && block.rank !== rank) return false;
      if (path && !block.steps.some((s) => this.critical.has(this.key(block.rank, block.id, s[0]))))
        return false;
      return (
        !bad || this.cycle.has(`${block.rank}/${block.id}`) || block.steps.some((s) => this.#fault(block, s))
      );
    });
  }

  /**
   * Chooses a step, shows its raw line and what it waits for; filters that hide it are taken off.
   * @param {number} rank
   * @param {number} block
   * @param {number} step
   */
  choose(rank, block, step) {
    const found = this.#find(rank, block, step);
    if (!found) return;
    if (!this.shown.includes(found.block)) {
      Draw.field("p-rank").value = "-1";
      for (const id of ["p-path", "p-bad"]) Draw.field(id).checked = false;
    }
    this.chosen = { rank, block, step };
    Draw.byId("h-step").textContent = `Rank ${rank} tb ${block} step ${step}`;
    Draw.byId("p-raw").textContent =
      `<step ${ProgramView.NAMES.map((name, i) => `${name}="${found.step[i]}"`).join(" ")}/>`;
    Draw.byId("p-facts").replaceChildren(...this.#facts(found).map((fact) => Draw.element("li", fact)));
    this.redraw();
    this.#reveal();
  }

  /**
   * What there is to say about a step, a line each.
   * @param {{block: Block, step: Step}} found
   */
  #facts(found) {
    const { block, step } = found;
    const key = this.key(block.rank, block.id, step[0]);
    /** @param {Ref} ref */
    const name = (ref) => `rank ${ref[0]} tb ${ref[1]} step ${ref[2]}`;
    const facts = [this.#words(found)];
    if (step[7] >= 0) facts.push(`waits for tb ${step[7]} step ${step[8]} of its rank`);
    const [from, to] = [this.from.get(key), this.to.get(key)];
    if (from) facts.push(`receives from ${name(from)}`);
    if (to) facts.push(`sends to ${name(to)}`);
    if (this.critical.has(key)) facts.push("on the critical path");
    const fault = this.#fault(block, step);
    if (fault) facts.push(fault);
    if (this.cycle.has(`${block.rank}/${block.id}`)) facts.push("its block waits in a cycle");
    return facts;
  }

  /** Scrolls to the chosen step. */
  #reveal() {
    const place = this.#place();
    const scroll = Draw.byId("blocks-scroll");
    if (!place) return;
    const { ROW, LEFT } = ProgramView;
    if (place.y < scroll.scrollTop || place.y > scroll.scrollTop + scroll.clientHeight - 2 * ROW)
      scroll.scrollTop = place.y - 80;
    if (place.x < scroll.scrollLeft + LEFT || place.x > scroll.scrollLeft + scroll.clientWidth - 40)
      scroll.scrollLeft = place.x - LEFT - 40;
    this.#paint();
  }

  /** Where a step lies in the whole drawing: the chosen one, or the one of that name. */
  #place(ref = this.chosen && [this.chosen.rank, this.chosen.block, this.chosen.step]) {
    const [rank, id, index] = ref ?? [-1, -1, -1];
    const found = this.#find(rank, id, index);
    const at = found ? this.shown.indexOf(found.block) : -1;
    if (!found || at < 0) return null;
    return { x: ProgramView.LEFT + found.step[10] * this.cell, y: at * ProgramView.ROW + 4, ...found };
  }

  /** Lays out all rows that the filters let through, and draws those in sight. */
  redraw() {
    this.shown = this.#rows();
    let last = 0;
    for (const block of this.shown) for (const step of block.steps) last = Math.max(last, step[10]);
    this.cell = Math.max(14, Math.min(30, 24000 / (last + 1)));
    const width = ProgramView.LEFT + (last + 1) * this.cell + 10;
    const height = this.shown.length * ProgramView.ROW + 12;
    const [scroll, size] = [Draw.byId("blocks-scroll"), Draw.byId("blocks-size")];
    scroll.style.height = `${Math.min(height + 18, Math.max(120, 0.58 * window.innerHeight))}px`;
    [size.style.width, size.style.height] = [`${width}px`, `${height}px`];
    const words = `${this.shown.length} thread blocks; ${this.critical.size} steps on the critical path`;
    Draw.byId("blocks").setAttribute("aria-label", words);
    this.#paint();
  }

  /** Draws what is in sight: names stay at the left edge, steps move under them. */
  #paint() {
    const scroll = Draw.byId("blocks-scroll");
    const canvas = Draw.surface("blocks");
    const [width, height] = [scroll.clientWidth, scroll.clientHeight];
    canvas.style.width = `${width}px`;
    const context = Draw.canvas(canvas, width, height);
    const { ROW, LEFT } = ProgramView;
    const from = Math.max(0, Math.floor(scroll.scrollTop / ROW) - 1);
    const to = Math.min(this.shown.length, Math.ceil((scroll.scrollTop + height) / ROW) + 1);
    context.translate(0, -scroll.scrollTop);
    for (let at = from; at < to; at++) this.#name(context, at, width);
    context.save();
    context.beginPath();
    context.rect(LEFT - 2, scroll.scrollTop, width, height);
    context.clip();
    context.translate(-scroll.scrollLeft, 0);
    for (let at = from; at < to; at++) this.#steps(context, at, scroll.scrollLeft, width);
    this.#edges(context);
    context.restore();
  }

  /**
   * @param {CanvasRenderingContext2D} context
   * @param {number} at
   * @param {number} width
   */
  #name(context, at, width) {
    const block = this.shown[at];
    const y = at * ProgramView.ROW + 4;
    const stuck = this.cycle.has(`${block.rank}/${block.id}`);
    context.fillStyle = Draw.named(stuck ? "bound" : this.program.late.includes(block.rank) ? "late" : "ink");
    const ends = [block.recv >= 0 ? `${block.recv}→` : "", block.send >= 0 ? `→${block.send}` : ""].join(" ");
    const words = `rank ${block.rank} tb ${block.id}  ${ends} ch ${block.chan}${stuck ? " cycle" : ""}`;
    context.fillText(words, 4, y + 12, ProgramView.LEFT - 10);
    context.fillStyle = Draw.named("line");
    if (at === 0 || this.shown[at - 1].rank !== block.rank) context.fillRect(0, y - 2, width, 1);
  }

  /**
   * @param {CanvasRenderingContext2D} context
   * @param {number} at
   * @param {number} left
   * @param {number} width
   */
  #steps(context, at, left, width) {
    const { ROW, LEFT } = ProgramView;
    const block = this.shown[at];
    const y = at * ROW + 4;
    for (const step of block.steps) {
      const x = LEFT + step[10] * this.cell;
      if (x + this.cell < left + LEFT || x > left + width) continue;
      const fault = this.#fault(block, step);
      const critical = this.critical.has(this.key(block.rank, block.id, step[0]));
      context.fillStyle = fault ? Draw.named("bound") : critical ? "#d98b2b" : Draw.named("line");
      context.fillRect(x, y, this.cell - 2, ROW - 4);
      context.fillStyle = fault ? Draw.named("panel") : critical ? "#1c2430" : Draw.named("ink");
      context.fillText(fault ? `!${step[1]}` : step[1], x + 2, y + 11, this.cell - 4);
    }
  }

  /**
   * What the chosen step waits for, and where its message goes.
   * @param {CanvasRenderingContext2D} context
   */
  #edges(context) {
    const here = this.#place();
    if (!here) return;
    const { ROW } = ProgramView;
    const ref = /** @type {Ref} */ ([here.block.rank, here.block.id, here.step[0]]);
    /** @type {(from: Ref | undefined, to: Ref | undefined, dash: number[]) => void} */
    const line = (from, to, dash) => {
      const [a, b] = [from && this.#place(from), to && this.#place(to)];
      if (!a || !b) return;
      context.setLineDash(dash);
      context.beginPath();
      context.moveTo(a.x + this.cell - 2, a.y + ROW / 2);
      context.lineTo(b.x, b.y + ROW / 2);
      context.stroke();
    };
    context.strokeStyle = Draw.named("accent");
    context.lineWidth = 2;
    context.setLineDash([]);
    context.strokeRect(here.x - 1, here.y - 1, this.cell, ROW - 2);
    const key = this.key(...ref);
    if (here.step[7] >= 0) line([ref[0], here.step[7], here.step[8]], ref, [3, 3]);
    line(this.from.get(key), ref, []);
    line(ref, this.to.get(key), []);
    context.setLineDash([]);
  }

  /** @param {MouseEvent} event */
  #click(event) {
    const scroll = Draw.byId("blocks-scroll");
    const block = this.shown[Math.floor((event.offsetY + scroll.scrollTop - 4) / ProgramView.ROW)];
    if (!block || event.offsetX < ProgramView.LEFT - 2) return;
    const column = Math.floor((event.offsetX + scroll.scrollLeft - ProgramView.LEFT) / this.cell);
    const step = block.steps.find((s) => s[10] === column);
    if (step) this.choose(block.rank, block.id, step[0]);
  }

  /** @param {KeyboardEvent} event */
  #move(event) {
    const rows = this.shown.filter((block) => block.steps.length > 0);
    if (!event.key.startsWith("Arrow") || !rows.length) return;
    event.preventDefault();
    event.stopPropagation();
    const { chosen } = this;
    let at = chosen ? rows.findIndex((b) => b.rank === chosen.rank && b.id === chosen.block) : -1;
    let place = at < 0 ? 0 : rows[at].steps.findIndex((s) => s[0] === chosen?.step);
    if (at < 0) at = 0;
    else if (event.key === "ArrowDown") at = Math.min(rows.length - 1, at + 1);
    else if (event.key === "ArrowUp") at = Math.max(0, at - 1);
    else place += event.key === "ArrowRight" ? 1 : -1;
    place = Math.max(0, Math.min(rows[at].steps.length - 1, place));
    this.choose(rows[at].rank, rows[at].id, rows[at].steps[place][0]);
  }
}
