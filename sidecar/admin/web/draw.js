"use strict";

// Draws the ring: two bands, each cut into sections of vnodes that follow one another. The owners of the neighbours of a vnode are others almost everywhere, so
// within its section a vnode has its place by its owner: each server is a ring of its own, as thick as its share, from 3 servers to hundreds.
const Drawing = (() => {
  const VNODES = 65536, ROWS = 256, SECTIONS = VNODES / ROWS, NOBODY = 65535, QUIET = 24;
  const BOTH = { cache: [0.66, 0.94], shard: [0.34, 0.62] };
  const ALONE = { cache: [0.5, 0.94] };
  const FEW = {
    cache: ["#3b7dd8", "#f2942c", "#2aa876", "#d9578c", "#8a63d2", "#c9a227"],
    shard: ["#0f9fb5", "#b5533c", "#7f9a2f", "#5b6bb5", "#a85fa8", "#9a8560"],
  };

  // color is that of the i-th of n servers. Beyond a handful nobody can tell them apart by colour; then choosing one shows its vnodes.
  function color(fleet, i, n) {
    if (n <= FEW[fleet].length) return FEW[fleet][i];
    const from = fleet === "cache" ? 215 : 20;
    if (n > QUIET) return `hsl(${((i / n * 340 + from) % 360).toFixed(1)} 42% ${i % 2 ? 64 : 53}%)`; // neighbours differ, and the colour tells about where in the table
    const [s, l] = [[58, 56], [48, 66], [64, 46]][i % 3];
    return `hsl(${((i * 137.508 + from) % 360).toFixed(1)} ${s}% ${l}%)`;
  }

  // rgba turns any CSS color into the 32 bits of a pixel.
  const probe = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  function rgba(css) {
    probe.clearRect(0, 0, 1, 1);
    probe.fillStyle = css;
    probe.fillRect(0, 0, 1, 1);
    return new Uint32Array(probe.getImageData(0, 0, 1, 1).data.buffer)[0];
  }

  function bytes(base64) {
    return Uint8Array.from(atob(base64), (c) => c.charCodeAt(0));
  }

  // decode turns base64 of little-endian 16-bit numbers into an array.
  function decode(base64) {
    const raw = bytes(base64), out = new Uint16Array(raw.length / 2);
    for (let i = 0; i < out.length; i++) out[i] = raw[2 * i] | raw[2 * i + 1] << 8;
    return out;
  }

  class Drawing {
    constructor(figure) {
      this.canvas = figure.querySelector("canvas");
      this.svg = figure.querySelector("svg");
      this.ring = null; // as fetched, with owners decoded
      this.picked = null; // {fleet, name}
      this.moving = null; // {fleet, bits}: the vnodes that a preview would move
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
      if (bands !== this.bands) this.size = 0; // the pixels stand for other places now
      this.arrange();
      this.paint();
    }

    // preview shows which vnodes would move, by base64 of a bit for each; null: none.
    preview(fleet, bits) {
      this.moving = bits ? { fleet, bits: bytes(bits) } : null;
      this.fewMove = false;
      if (bits) {
        let n = 0;
        for (let v = 0; v < VNODES; v++) n += this.moves(fleet, v);
        this.fewMove = n < VNODES / 30; // too few to be found by their owners' colors
      }
      this.arrange();
      this.paint();
    }

    moves(fleet, vnode) {
      return Boolean(this.moving) && this.moving.fleet === fleet && (this.moving.bits[vnode >> 3] >> (vnode & 7) & 1) === 1;
    }

    // arrange gives each vnode its row within its section: by its owner, and of one owner those that would move at the outer edge.
    arrange() {
      if (!this.ring) return;
      this.order = {};
      for (const fleet of Object.keys(this.bands)) {
        const table = this.ring.table[fleet], order = Uint16Array.from({ length: VNODES }, (_, v) => v);
        const rank = (v) => (table[v] * 2 + this.moves(fleet, v)) * VNODES + v;
        for (let at = 0; at < VNODES; at += ROWS) order.subarray(at, at + ROWS).sort((a, b) => rank(a) - rank(b));
        this.order[fleet] = order;
      }
    }

    // at says what is drawn at a place, given in units of the outer radius from the centre.
    at(x, y) {
      const radius = Math.hypot(x, y);
      for (const [fleet, [inner, outer]] of Object.entries(this.bands)) {
        if (radius < inner || radius >= outer) continue;
        const turn = (Math.atan2(x, -y) / (2 * Math.PI) + 1) % 1;
        const section = Math.min(SECTIONS - 1, Math.floor(turn * SECTIONS));
        const row = Math.min(ROWS - 1, Math.floor((radius - inner) / (outer - inner) * ROWS));
        return { fleet, spot: section * ROWS + row };
      }
      return null;
    }

    // place is the opposite of at: the middle of a vnode's cell.
    place(fleet, vnode) {
      const [inner, outer] = this.bands[fleet], section = Math.floor(vnode / ROWS);
      const row = this.order[fleet].subarray(section * ROWS, (section + 1) * ROWS).indexOf(vnode);
      const turn = (section + 0.5) / SECTIONS * 2 * Math.PI, radius = inner + (row + 0.5) / ROWS * (outer - inner);
      return { turn, radius, x: radius * Math.sin(turn), y: -radius * Math.cos(turn) };
    }

    // enlarged counts the vnodes of the picked server in each section, where it is one of so many that they would be specks: they are drawn as bars then. null: not so.
    enlarged(fleet) {
      const all = this.servers(fleet), i = this.picked && this.picked.fleet === fleet ? all.findIndex((s) => s.name === this.picked.name) : -1;
      if (i < 0 || all.length <= QUIET) return null;
      const counts = new Uint16Array(SECTIONS);
      this.ring.table[fleet].forEach((owner, v) => { counts[Math.floor(v / ROWS)] += owner === i; });
      return { owner: i, counts, scale: Math.floor(ROWS / Math.max(1, ...counts)) };
    }

    // describe says in words what is drawn at a place that at has found, and whose it is; null: nobody's.
    describe({ fleet, spot }) {
      const table = this.ring.table[fleet], i = this.enlarged(fleet)?.owner ?? table[this.order[fleet][spot]], first = spot - spot % ROWS;
      const name = i === NOBODY ? null : this.servers(fleet)[i].name;
      let n = 0, moving = 0;
      for (let v = first; v < first + ROWS; v++) {
        if (table[v] !== i) continue;
        n++;
        moving += this.moves(fleet, v);
      }
      const text = (k) => k.toLocaleString("en");
      return { name, text: `${name ?? "nobody"}: ${n} of the vnodes ${text(first)} to ${text(first + ROWS - 1)}${moving ? `, ${moving} would move` : ""}` };
    }

    // measure works out which place each pixel shows. It is slow, and needed only when the size changes.
    measure(size) {
      const spots = new Int32Array(size * size).fill(-1), cover = new Uint8Array(size * size), half = size / 2;
      const edges = Object.values(this.bands);
      for (let py = 0, p = 0; py < size; py++) {
        for (let px = 0; px < size; px++, p++) {
          const x = (px + 0.5 - half) / half, y = (py + 0.5 - half) / half;
          const hit = this.at(x, y);
          if (!hit) continue;
          spots[p] = hit.spot + (hit.fleet === "cache" ? 0 : VNODES);
          const [inner, outer] = edges[hit.fleet === "cache" ? 0 : 1], radius = Math.hypot(x, y);
          cover[p] = 255 * Math.min(1, Math.min(radius - inner, outer - radius) * half + 0.5); // soft edges
        }
      }
      Object.assign(this, { size, spots, cover });
    }

    // pixels is the color of each place of a band; what is not picked, or would not move, fades into the ground.
    pixels(fleet) {
      const css = getComputedStyle(document.documentElement), value = (name) => rgba(css.getPropertyValue(name));
      const all = this.servers(fleet), colors = new Uint32Array(VNODES).fill(value("--bad")), off = value("--off"), strong = value("--link"); // the last is for nobody
      const out = new Uint32Array(VNODES), bars = this.enlarged(fleet);
      if (bars) return out.map((_, spot) => spot % ROWS < bars.counts[Math.floor(spot / ROWS)] * bars.scale ? strong : off);
      const picked = this.picked && this.servers(this.picked.fleet).some((s) => s.name === this.picked.name);
      all.forEach((s, i) => {
        const mine = !picked || (this.picked.fleet === fleet && this.picked.name === s.name);
        colors[i] = mine ? rgba(color(fleet, i, all.length)) : off;
      });
      const table = this.ring.table[fleet], order = this.order[fleet];
      const lines = all.length <= QUIET; // between owners, for whom the colors do not tell them apart
      const ground = value("--card");
      for (let spot = 0; spot < VNODES; spot++) {
        const v = order[spot], i = table[v];
        out[spot] = !this.moving ? colors[i] : !this.moves(fleet, v) ? fade(colors[i], ground) : this.fewMove ? strong : colors[i];
        if (lines && spot % ROWS > 1 && (table[order[spot - 1]] !== i || table[order[spot - 2]] !== i)) out[spot] = ground;
      }
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
      const ofCache = this.pixels("cache"), ofShard = this.bands.shard ? this.pixels("shard") : ofCache;
      for (let p = 0; p < pixels.length; p++) {
        const spot = this.spots[p];
        if (spot < 0) continue;
        const c = spot < VNODES ? ofCache[spot] : ofShard[spot - VNODES];
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
        const a = quarter * Math.PI / 2, x = 0.975 * Math.sin(a), y = -0.975 * Math.cos(a);
        add("text", { x, y, transform: quarter % 2 ? `rotate(90 ${x} 0)` : "" }, (quarter * VNODES / 4).toLocaleString("en"));
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

  // fade mixes a pixel with the ground, of which most is left.
  function fade(pixel, ground) {
    let out = 0xff000000;
    for (const shift of [0, 8, 16]) out |= Math.round((pixel >>> shift & 255) * 0.22 + (ground >>> shift & 255) * 0.78) << shift;
    return out >>> 0;
  }

  return Drawing;
})();
