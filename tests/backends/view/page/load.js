"use strict";
// The page's scripts in Node.js, as a browser runs them: one after another, with names in common.
const fs = require("node:fs");
const path = require("node:path");
const vm = require("node:vm");

const PAGE = path.join(__dirname, "../../../../backends/view/page");

/** Runs the scripts of that name on a made-up window; returns what they leave behind under `wanted`. */
exports.load = (names, wanted, surroundings = {}) => {
  const context = vm.createContext({ console, ...surroundings });
  const text = names.map((name) => fs.readFileSync(path.join(PAGE, name), "utf8")).join("\n");
  return vm.runInContext(`${text}\n;({ ${wanted.join(", ")} })`, context);
};

/** Numbers below 1 that are the same in every run. */
exports.random = (seed) => () => {
  seed = (Math.imul(seed, 1664525) + 1013904223) >>> 0;
  return seed / 2 ** 32;
};
