"use strict";

// Draws the ring: two bands of cells, one cell for each vnode. A vnode's neighbours have other owners almost everywhere, so arcs would be
// thousands of slivers; cells show every vnode as it is, from 3 servers to hundreds.
const Drawing = (() => {
  const VNODES = 65536, ROWS = 64, SECTIONS = VNODES / ROWS, NOBODY = 65535, QUIET = 24;
  const BOTH = { cache: [0.66, 0.92], shard: [0.38, 0.62] };
  const ALONE = { cache: [0.5, 0.92] };
  const FEW = {
    cache: ["#3b7dd8", "#f2942c", "#2aa876", "#d9578c", "#8a63d2", "#c9a227"],
    shard: ["#0f9fb5", "#b5533c", "#7f9a2f", "#5b6bb5", "#a85fa8", "#9a8560"],
  };

  // color is that of the i-th of n servers. Beyond a handful nobody can tell them apart by colour; then choosing one shows its cells.
  function color(fleet, i, n) {
    if (n <= FEW[fleet].length) return FEW[fleet][i];
    const hue = (i * 137.508 + (fleet === "cache" ? 215 : 20)) % 360;
    const [s, l] = n > QUIET ? [30, 60] : [[58, 56], [48, 66], [64, 46]][i % 3]; // the more there are, the quieter
    return `hsl(${hue.toFixed(1)} ${s}% ${l}%)`;
  }

  // rgba turns any CSS color into the 32 bits of a pixel.
  const probe = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  function rgba(css) {
    probe.clearRect(0, 0, 1, 1);
    probe.fillStyle = css;
    probe.fillRect(0, 0, 1, 1);
    return new Uint32Array(probe.getImageData(0, 0, 1, 1).data.buffer)[0];
  }

  // decode turns base64 of little-endian 16-bit numbers into an array.
  function decode(base64) {
    const text = atob(base64), out = new Uint16Array(text.length / 2);
    for (let i = 0; i < out.length; i++) out[i] = text.charCodeAt(2 * i) | text.charCodeAt(2 * i + 1) << 8;
    return out;
  }

  class Drawing {
    constructor(figure) {
      this.canvas = figure.querySelector("canvas");
      this.svg = figure.querySelector("svg");
      this.ring = null; // as fetched, with owners decoded
      this.picked = null; // {fleet, name}
      this.size = 0; // of the canvas, in pixels of the screen
    }

    get bands() { return this.ring.shards.length ? BOTH : ALONE; }

    servers(fleet) { return fleet === "cache" ? this.ring.caches : this.ring.shards; }

    colorOf(fleet, name) {
      if (!this.ring) return null;
      const all = this.servers(fleet), i = all.findIndex((s) => s.name === name);
      return i < 0 ? null : color(fleet, i, all.length);
    }

    show(ring) {
      const bands = this.ring && this.bands;
      this.ring = ring;
      ring.table = { cache: decode(ring.owners.cache), shard: decode(ring.owners.shard) };
      if (bands !== this.bands) this.size = 0; // the pixels stand for other vnodes now
      this.paint();
    }

    // at says what is drawn at a place, given in units of the outer radius from the centre.
    at(x, y) {
      const radius = Math.hypot(x, y);
      for (const [fleet, [inner, outer]] of Object.entries(this.bands)) {
        if (radius < inner || radius >= outer) continue;
        const turn = (Math.atan2(x, -y) / (2 * Math.PI) + 1) % 1;
        const section = Math.min(SECTIONS - 1, Math.floor(turn * SECTIONS));
        const row = Math.min(ROWS - 1, Math.floor((radius - inner) / (outer - inner) * ROWS));
        return { fleet, vnode: section * ROWS + row };
      }
      return null;
    }

    // place is the opposite of at: the middle of a vnode's cell.
    place(fleet, vnode) {
      const [inner, outer] = this.bands[fleet];
      const turn = (Math.floor(vnode / ROWS) + 0.5) / SECTIONS * 2 * Math.PI;
      const radius = inner + (vnode % ROWS + 0.5) / ROWS * (outer - inner);
      return { turn, radius, x: radius * Math.sin(turn), y: -radius * Math.cos(turn) };
    }

    // ownerOf is the name of the owner, or null.
    ownerOf(fleet, vnode) {
      const i = this.ring.table[fleet][vnode];
      return i === NOBODY ? null : this.servers(fleet)[i].name;
    }

    // measure works out which vnode each pixel belongs to. It is slow, and needed only when the size changes.
    measure(size) {
      const vnodes = new Int32Array(size * size).fill(-1), cover = new Uint8Array(size * size), half = size / 2;
      const edges = Object.values(this.bands);
      for (let py = 0, p = 0; py < size; py++) {
        for (let px = 0; px < size; px++, p++) {
          const x = (px + 0.5 - half) / half, y = (py + 0.5 - half) / half;
          const hit = this.at(x, y);
          if (!hit) continue;
          vnodes[p] = hit.vnode + (hit.fleet === "cache" ? 0 : VNODES);
          const [inner, outer] = edges[hit.fleet === "cache" ? 0 : 1], radius = Math.hypot(x, y);
          cover[p] = 255 * Math.min(1, Math.min(radius - inner, outer - radius) * half + 0.5); // soft edges
        }
      }
      Object.assign(this, { size, vnodes, cover });
    }

    // palette is the color of each server as pixels; those that are not picked fade into the ground. The last one is for nobody.
    palette(fleet) {
      const css = getComputedStyle(document.documentElement), off = rgba(css.getPropertyValue("--off"));
      const all = this.servers(fleet), out = new Uint32Array(VNODES).fill(rgba(css.getPropertyValue("--bad")));
      const picked = this.picked && this.servers(this.picked.fleet).some((s) => s.name === this.picked.name);
      all.forEach((s, i) => {
        const mine = !picked || (this.picked.fleet === fleet && this.picked.name === s.name);
        // Few cells are hard to find: they are shown in a color that stands out, instead of their own.
        out[i] = !mine ? off : picked && all.length > QUIET ? rgba(css.getPropertyValue("--link")) : rgba(color(fleet, i, all.length));
      });
      return out;
    }

    paint() {
      if (!this.ring) return;
      const wide = this.canvas.clientWidth;
      if (!wide) return; // not shown
      const size = Math.min(1600, Math.round(wide * Math.min(2, window.devicePixelRatio || 1)));
      if (size !== this.size) {
        this.canvas.width = this.canvas.height = size;
        this.measure(size);
      }
      const context = this.canvas.getContext("2d"), image = context.createImageData(size, size), pixels = new Uint32Array(image.data.buffer);
      const { cache, shard } = this.ring.table, ofCache = this.palette("cache"), ofShard = this.palette("shard");
      for (let p = 0; p < pixels.length; p++) {
        const v = this.vnodes[p];
        if (v < 0) continue;
        const c = v < VNODES ? ofCache[cache[v]] : ofShard[shard[v - VNODES]];
        pixels[p] = c & 0x00ffffff | this.cover[p] << 24;
      }
      context.putImageData(image, 0, 0);
    }

    // mark draws a scale around the ring, and a needle and a circle where a key lives on each band.
    mark(spots) {
      const parts = [];
      const add = (tag, attributes, text) => {
        const e = document.createElementNS("http://www.w3.org/2000/svg", tag);
        for (const [k, v] of Object.entries(attributes)) e.setAttribute(k, v);
        if (text) e.textContent = text;
        parts.push(e);
      };
      for (let quarter = 0; quarter < 4; quarter++) {
        const a = quarter * Math.PI / 2;
        add("text", { x: 0.965 * Math.sin(a), y: -0.965 * Math.cos(a), transform: quarter % 2 ? `rotate(90 ${0.965 * Math.sin(a)} 0)` : "" }, (quarter * VNODES / 4).toLocaleString("en"));
      }
      for (const { fleet, vnode } of spots) {
        if (!this.bands[fleet]) continue;
        const [inner, outer] = this.bands[fleet], { turn, x, y } = this.place(fleet, vnode), sin = Math.sin(turn), cos = -Math.cos(turn);
        const line = { x1: inner * sin, y1: inner * cos, x2: outer * sin, y2: outer * cos };
        add("line", { class: "needle-halo", ...line });
        add("line", { class: "needle", ...line });
        add("circle", { class: "spot-halo", cx: x, cy: y, r: 0.024 });
        add("circle", { class: "spot", cx: x, cy: y, r: 0.024 });
        // Caches are pointed at from outside, shards from inside, so that nobody needs the colors to tell which is which.
        const [tip, base] = fleet === "cache" ? [outer + 0.004, outer + 0.05] : [inner - 0.004, inner - 0.05];
        const corner = (r, side) => `${r * sin - side * cos},${r * cos + side * sin}`;
        add("polygon", { class: "pointer", points: [corner(tip, 0), corner(base, 0.022), corner(base, -0.022)].join(" ") });
      }
      this.svg.replaceChildren(...parts);
    }
  }
  return Drawing;
})();
