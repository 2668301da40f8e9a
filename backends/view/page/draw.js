"use strict";
/** Helpers for the page: elements, canvases in device pixels, colours for light, dark and paper. */
const Draw = (() => {
  const LIGHT = ["#0067a8", "#b84d00", "#007355", "#a03a80", "#7a5c00", "#5a4fcf", "#505050", "#0c6f8a"];
  const DARK = ["#5fb8f0", "#f2a33c", "#3ecfa0", "#f09aca", "#f0e04a", "#aba5ff", "#cfcfcf", "#58d4ea"];
  const LIGHT_AGES = ["#5b1b8b", "#40469a", "#2b6a94", "#1a7f79", "#2c7d42", "#5d6c00"];
  const DARK_AGES = ["#d8a6ff", "#a9b4ff", "#7cc8f5", "#5fdcd0", "#7fe08f", "#d5e05a"];
  const night = window.matchMedia("(prefers-color-scheme: dark)");
  const root = document.documentElement;
  /** @type {Map<string, string>} */
  const names = new Map();

  /**
   * The element of that id, which is in the template.
   * @param {string} id
   * @returns {HTMLElement}
   */
  function byId(id) {
    const found = document.getElementById(id);
    if (!found) throw new Error(`no element ${id}`);
    return found;
  }

  /**
   * An input or a choice.
   * @param {string} id
   */
  const field = (id) => /** @type {HTMLInputElement & HTMLSelectElement} */ (byId(id));

  /**
   * A canvas.
   * @param {string} id
   */
  const surface = (id) => /** @type {HTMLCanvasElement} */ (byId(id));

  /**
   * The rows of a table.
   * @param {string} id
   */
  const rows = (id) => /** @type {HTMLTableElement} */ (byId(id)).tBodies[0];

  /**
   * An HTML element with text, never markup.
   * @template {keyof HTMLElementTagNameMap} T
   * @param {T} tag
   * @param {string} text
   * @param {Record<string, string>} attributes
   * @returns {HTMLElementTagNameMap[T]}
   */
  function element(tag, text = "", attributes = {}) {
    const made = document.createElement(tag);
    made.textContent = text;
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    return made;
  }

  /**
   * An SVG element.
   * @param {string} tag
   * @param {Record<string, string>} attributes
   * @param {string} text
   */
  function shape(tag, attributes = {}, text = "") {
    const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    if (text) made.textContent = text;
    return made;
  }

  /**
   * The 2D context of a canvas.
   * @param {HTMLCanvasElement} target
   */
  function context2d(target) {
    const context = target.getContext("2d");
    if (!context) throw new Error("this browser cannot draw");
    return context;
  }

  /**
   * A cleared 2D context of `width` by `height` CSS pixels.
   * @param {HTMLCanvasElement} target
   * @param {number} width
   * @param {number} height
   */
  function canvas(target, width, height) {
    const scale = window.devicePixelRatio || 1;
    const [w, h] = [Math.round(width * scale), Math.round(height * scale)];
    if (target.width !== w || target.height !== h) {
      target.width = w;
      target.height = h;
      target.style.height = `${height}px`;
    }
    const context = context2d(target);
    context.setTransform(scale, 0, 0, scale, 0, 0);
    context.clearRect(0, 0, width, height);
    context.font = "11px Helvetica, Arial, sans-serif";
    return context;
  }

  /** Boxes too many and too small to be drawn one by one: pixels, put on a canvas all at once. */
  class Pixels {
    /**
     * @param {number} width in CSS pixels, as the canvas
     * @param {number} height
     * @param {string[]} colours as `#rrggbb`
     */
    constructor(width, height, colours) {
      this.scale = window.devicePixelRatio || 1;
      this.width = Math.max(1, Math.round(width * this.scale));
      this.height = Math.max(1, Math.round(height * this.scale));
      this.image = new ImageData(this.width, this.height);
      this.words = new Uint32Array(this.image.data.buffer);
      this.colours = Uint32Array.from(colours, Pixels.word);
    }

    /**
     * A colour as the bytes of a pixel in memory: red, green, blue, opaque.
     * @param {string} colour
     */
    static word(colour) {
      const value = parseInt(colour.slice(1), 16);
      const bytes = Uint8Array.of(value >> 16, (value >> 8) & 255, value & 255, 255);
      return new Uint32Array(bytes.buffer)[0];
    }

    /**
     * A box in the colour of that number; at least one pixel.
     * @param {number} x
     * @param {number} y
     * @param {number} width
     * @param {number} height
     * @param {number} colour
     */
    box(x, y, width, height, colour) {
      const { scale } = this;
      const left = Math.max(0, Math.floor(x * scale));
      const top = Math.max(0, Math.floor(y * scale));
      const right = Math.min(this.width, Math.max(left + 1, Math.floor((x + width) * scale)));
      const bottom = Math.min(this.height, Math.max(top + 1, Math.floor((y + height) * scale)));
      const word = this.colours[colour];
      for (let row = top; row < bottom; row++)
        this.words.fill(word, row * this.width + left, row * this.width + right);
    }

    /**
     * Puts all boxes over what is on a canvas.
     * @param {CanvasRenderingContext2D} context
     */
    show(context) {
      const layer = document.createElement("canvas");
      [layer.width, layer.height] = [this.width, this.height];
      context2d(layer).putImageData(this.image, 0, 0);
      context.drawImage(layer, 0, 0, this.width / this.scale, this.height / this.scale);
    }
  }

  /**
   * A colour that the style sheet names.
   * @param {string} name
   */
  function named(name) {
    let found = names.get(name);
    if (found === undefined) {
      found = getComputedStyle(root).getPropertyValue(`--${name}`).trim();
      names.set(name, found);
    }
    return found;
  }

  const dark = () => night.matches && !("print" in root.dataset);
  const palette = () => (dark() ? DARK : LIGHT);
  const ages = () => (dark() ? DARK_AGES : LIGHT_AGES);
  /** @param {number} chunk */
  const chunkColour = (chunk) => palette()[chunk % LIGHT.length];

  /**
   * Calls `redraw` when colours change: day and night, and on paper, which is always light.
   * @param {() => void} redraw
   */
  function whenColoursChange(redraw) {
    const again = () => {
      names.clear();
      redraw();
    };
    night.addEventListener("change", again);
    window.addEventListener("beforeprint", () => {
      root.dataset.print = "";
      again();
    });
    window.addEventListener("afterprint", () => {
      delete root.dataset.print;
      again();
    });
  }

  /**
   * Seconds for people.
   * @param {number} value
   */
  function seconds(value) {
    const [scale, unit] = value >= 1 ? [1, "s"] : value >= 1e-3 ? [1e3, "ms"] : [1e6, "µs"];
    return `${(value * scale).toPrecision(3)} ${unit}`;
  }

  /**
   * Chunks for people, as `4` or `4-6`.
   * @param {{first: number, count: number}} move
   */
  function run(move) {
    return move.count === 1 ? `${move.first}` : `${move.first}-${move.first + move.count - 1}`;
  }

  /**
   * Ranks for people, as `rank 3` or `ranks 2, 5`.
   * @param {number[]} ranks
   */
  function ranks(ranks) {
    const shown = ranks.slice(0, 8).join(", ") + (ranks.length > 8 ? ", …" : "");
    return ranks.length === 1 ? `rank ${shown}` : `ranks ${shown}`;
  }

  const things = { byId, field, surface, rows, element, shape, context2d, canvas, Pixels };
  return { ...things, named, palette, ages, chunkColour, whenColoursChange, seconds, run, ranks };
})();
