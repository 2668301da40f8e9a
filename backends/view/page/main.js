"use strict";
/** Opens the page: reads the data that stands in it, makes its view, and listens to keys. */
(() => {
  /** @type {PageData} */
  const data = JSON.parse(Draw.byId("data").textContent ?? "");
  Draw.byId(data.kind).hidden = false;
  if (data.kind === "program") {
    new ProgramView(data.program);
    return;
  }
  const view = new ScheduleView(data);
  /** @type {(key: "at" | "rank" | "chunk", by: number) => () => void} */
  const step = (key, by) => () => view.set({ [key]: view.state[key] + by });
  /** @type {Record<string, () => void>} */
  const keys = {
    " ": () => view.play(),
    ArrowLeft: step("at", -1),
    ArrowRight: step("at", 1),
    ArrowUp: step("rank", -1),
    ArrowDown: step("rank", 1),
    "[": step("chunk", -1),
    "]": step("chunk", 1),
    ",": () => view.compare.nudge(-25),
    ".": () => view.compare.nudge(25),
    Home: () => view.set({ at: 0 }),
    End: () => view.set({ at: view.schedule.rounds.length - 1 }),
    Escape: () => view.clear(),
    "?": () => view.help(),
  };
  document.addEventListener("keydown", (event) => {
    // Fields and buttons keep the keys that they use themselves.
    const target = event.target instanceof Element ? event.target : document.body;
    const own = target.matches("input, select") || (target.matches("button, tr") && event.key === " ");
    if (own || event.ctrlKey || event.metaKey || event.altKey || !Object.hasOwn(keys, event.key)) return;
    event.preventDefault();
    keys[event.key]();
  });
})();
