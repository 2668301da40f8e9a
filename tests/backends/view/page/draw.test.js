"use strict";
const assert = require("node:assert/strict");
const { test } = require("node:test");
const { load, random } = require("./load.js");

class ImageData {
  constructor(width, height) {
    Object.assign(this, { width, height, data: new Uint8ClampedArray(4 * width * height) });
  }
}

/** Draw on a made-up window; `events` gets the listeners. */
function made(scale = 1, dark = false) {
  const [events, dataset] = [{}, {}];
  const window = {
    devicePixelRatio: scale,
    matchMedia: () => ({ matches: dark, addEventListener: (name, act) => (events[name] = act) }),
    addEventListener: (name, act) => (events[name] = act),
  };
  const document = { documentElement: { dataset }, getElementById: () => null };
  const getComputedStyle = () => ({
    getPropertyValue: (name) => ` ${"print" in dataset ? "paper" : "screen"}${name} `,
  });
  return { ...load(["draw.js"], ["Draw"], { window, document, ImageData, getComputedStyle }), events };
}

test("seconds and chunks for people", () => {
  const { Draw } = made();
  assert.deepEqual([0, 2.5e-6, 0.00281, 1.5, 100].map(Draw.seconds), [
    "0.00 µs",
    "2.50 µs",
    "2.81 ms",
    "1.50 s",
    "100 s",
  ]);
  assert.deepEqual([Draw.run({ first: 4, count: 1 }), Draw.run({ first: 4, count: 3 })], ["4", "4-6"]);
  assert.deepEqual([[3], [2, 5], Array.from({ length: 9 }, (_, i) => i)].map(Draw.ranks), [
    "rank 3",
    "ranks 2, 5",
    "ranks 0, 1, 2, 3, 4, 5, 6, 7, …",
  ]);
});

test("an id that the template lacks is an error, not a null", () => {
  assert.throws(() => made().Draw.byId("nothing"), /no element nothing/);
});

test("paper is light, also at night, and the screen is dark again afterwards", () => {
  const { Draw, events } = made(1, true);
  let redrawn = 0;
  Draw.whenColoursChange(() => redrawn++);
  const night = Draw.palette()[0];
  assert.equal(Draw.named("ink"), "screen--ink");
  events.beforeprint();
  assert.notEqual(Draw.palette()[0], night);
  assert.equal(Draw.named("ink"), "paper--ink");
  events.afterprint();
  assert.equal(Draw.palette()[0], night);
  assert.equal(Draw.named("ink"), "screen--ink");
  assert.equal(redrawn, 2);
});

test("pixels: every box covers its pixels, at least one, and nothing outside", () => {
  const next = random(11);
  for (let turn = 0; turn < 200; turn++) {
    const scale = [1, 1.25, 2][turn % 3];
    const { Draw } = made(scale);
    const [width, height] = [1 + Math.floor(next() * 20), 1 + Math.floor(next() * 20)];
    const pixels = new Draw.Pixels(width, height, ["#0067a8", "#ff8040"]);
    const [x, y] = [next() * width, next() * height];
    const [w, h] = [next() * width * 1.5, next() * height * 1.5];
    pixels.box(x, y, w, h, 1);
    const { data } = pixels.image;
    const inside = (at, from, size) =>
      at >= Math.floor(from * scale) &&
      at < Math.max(Math.floor(from * scale) + 1, Math.floor((from + size) * scale));
    for (let row = 0; row < pixels.height; row++)
      for (let column = 0; column < pixels.width; column++) {
        const pixel = [...data.subarray(4 * (row * pixels.width + column)).subarray(0, 4)];
        const painted = inside(column, x, w) && inside(row, y, h);
        assert.deepEqual(pixel, painted ? [255, 128, 64, 255] : [0, 0, 0, 0]);
      }
  }
});
