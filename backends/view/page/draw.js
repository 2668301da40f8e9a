"use strict";
/** Helpers for the page: elements, canvases in device pixels, colours for light and dark. */
const Draw = (() => {
  const LIGHT = ["#0067a8", "#b84d00", "#007355", "#a03a80", "#7a5c00", "#5a4fcf", "#505050", "#0c6f8a"];
  const DARK = ["#5fb8f0", "#f2a33c", "#3ecfa0", "#f09aca", "#f0e04a", "#aba5ff", "#cfcfcf", "#58d4ea"];
  const LIGHT_AGES = ["#5b1b8b", "#40469a", "#2b6a94", "#1a7f79", "#2c7d42", "#5d6c00"];
  const DARK_AGES = ["#d8a6ff", "#a9b4ff", "#7cc8f5", "#5fdcd0", "#7fe08f", "#d5e05a"];
  const night = window.matchMedia("(prefers-color-scheme: dark)");

  const byId = (id) => document.getElementById(id);

  /** An HTML element with text, never markup. */
  function element(tag, text = "", attributes = {}) {
    const made = document.createElement(tag);
    made.textContent = text;
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    return made;
  }

  /** An SVG element. */
  function shape(tag, attributes = {}, text = "") {
    const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    if (text) made.textContent = text;
    return made;
  }

  /** A cleared 2D context of `width` by `height` CSS pixels. */
  function canvas(target, width, height) {
    const scale = window.devicePixelRatio || 1;
    const [w, h] = [Math.round(width * scale), Math.round(height * scale)];
    if (target.width !== w || target.height !== h) {
      target.width = w;
      target.height = h;
      target.style.height = `${height}px`;
    }
    const context = target.getContext("2d");
    context.setTransform(scale, 0, 0, scale, 0, 0);
    context.clearRect(0, 0, width, height);
    context.font = "11px Helvetica, Arial, sans-serif";
    return context;
  }

  /** A colour that the style sheet names. */
  function named(name) {
    return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
  }

  const palette = () => (night.matches ? DARK : LIGHT);
  const ages = () => (night.matches ? DARK_AGES : LIGHT_AGES);
  const chunkColour = (chunk) => palette()[chunk % palette().length];

  /** Seconds for people. */
  function seconds(value) {
    const [scale, unit] = value >= 1 ? [1, "s"] : value >= 1e-3 ? [1e3, "ms"] : [1e6, "µs"];
    return `${(value * scale).toPrecision(3)} ${unit}`;
  }

  /** Chunks for people, as `4` or `4-6`. */
  function run(move) {
    return move.count === 1 ? `${move.first}` : `${move.first}-${move.first + move.count - 1}`;
  }

  return { night, byId, element, shape, canvas, named, palette, ages, chunkColour, seconds, run };
})();
