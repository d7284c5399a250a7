// Draws what happened in the last quarter of an hour, from /history: lines in SVG, each with its words for who does not see it.
const Charts = (() => {
  const WIDTH = 300, HEIGHT = 64, SPARK = 120, FLAT = 20;
  const LOW = 150, LONG = 50; // milliseconds: the least scale of queues, and a wait that is worth a look
  const svgOf = (tag, attributes, ...children) => {
    const e = document.createElementNS("http://www.w3.org/2000/svg", tag);
    for (const [k, v] of Object.entries(attributes)) e.setAttribute(k, v);
    e.append(...children);
    return e;
  };
  const element = (tag, name, ...children) => {
    const e = document.createElement(tag);
    if (name) e.className = name;
    e.append(...children);
    return e;
  };

  // The ways in which numbers are written.
  function short(n) {
    for (const [unit, name] of [[1e9, " G"], [1e6, " M"], [1e4, " k"]]) {
      if (n >= unit) {
        const scale = name === " k" ? 1e3 : unit;
        return (n / scale).toLocaleString("en", { maximumSignificantDigits: 3 }) + name;
      }
    }
    return n.toLocaleString("en", { maximumFractionDigits: n < 10 ? 1 : 0 });
  }
  const percent = (n) => (100 * n).toLocaleString("en", { maximumFractionDigits: n > 0.99 && n < 1 ? 2 : 1 }) + " %";
  const duration = (ms) => ms >= 1000 ? (ms / 1000).toLocaleString("en", { maximumFractionDigits: 1 }) + " s" : `${Math.round(ms)} ms`;

  // path draws the numbers against time; null is where nothing is known.
  function path(at, values, first, last, top, width, height) {
    let out = "", pen = "M";
    values.forEach((v, i) => {
      if (v === null) {
        pen = "M";
        return;
      }
      const x = (at[i] - first) / (last - first) * width, y = height - Math.min(1, v / top) * height;
      // A number that stands alone is a short line, else nobody would see it.
      out += `${pen}${x.toFixed(1)} ${y.toFixed(1)}` + (pen === "M" && (i + 1 === values.length || values[i + 1] === null) ? "h1" : "");
      pen = "L";
    });
    return out;
  }

  // words are a series for who cannot see it.
  function words(what, values, write) {
    const known = values.filter((v) => v !== null);
    if (known.length === 0) return `${what}: nothing yet.`;
    return `${what}, last 15 minutes: now ${values.at(-1) === null ? "not known" : write(values.at(-1))}, lowest ${write(Math.min(...known))}, highest ${write(Math.max(...known))}.`;
  }

  // chart is one series with its number of now, its scale, and a mark at each change of the ring.
  function chart(figure, history, values, write, floor) {
    const last = history.at.at(-1), first = last - 1000 * history.for_seconds, known = values.filter((v) => v !== null);
    const top = Math.max(floor, ...known), now = values.at(-1);
    figure.querySelector(".now").textContent = now === null || now === undefined ? "–" : write(now);
    figure.querySelector(".range").textContent = known.length ? `${write(Math.min(...known))} to ${write(Math.max(...known))}` : "";
    const svg = figure.querySelector("svg"), line = path(history.at, values, first, last, top, WIDTH, HEIGHT), parts = [];
    history.epoch.forEach((epoch, i) => {
      if (i === 0 || epoch === history.epoch[i - 1]) return;
      const x = (history.at[i] - first) / (last - first) * WIDTH;
      parts.push(svgOf("line", { class: "epoch", x1: x, x2: x, y1: 0, y2: HEIGHT }, svgOf("title", {}, `epoch ${epoch}`)));
    });
    parts.push(svgOf("line", { class: "ground", x1: 0, x2: WIDTH, y1: HEIGHT, y2: HEIGHT }), svgOf("path", { class: "line", d: line }));
    svg.replaceChildren(...parts);
    svg.setAttribute("aria-label", words(figure.dataset.what, values, write));
  }

  const rates = (history, counts) => counts.map((n, i) => n / Math.max(0.001, history.seconds[i]));
  const orNull = (values) => values.map((v) => v < 0 ? null : v);

  // shards is a line for each shard with the age of its queue.
  function shards(list, history) {
    const last = history.at.at(-1), first = last - 1000 * history.for_seconds;
    const queues = history.shards.map((s) => ({ name: s.name, values: orNull(s.queue_ms), shed: s.shed.reduce((sum, n) => sum + Math.max(0, n), 0) }));
    for (const q of queues) q.most = Math.max(0, ...q.values);
    const top = Math.max(LOW, ...queues.map((q) => q.most)); // one scale for all, so that they can be compared
    queues.sort((a, b) => (b.most >= LONG) - (a.most >= LONG)); // those that are well come last
    list.replaceChildren(...queues.map(({ most, ...q }) => {
      const now = q.values.at(-1);
      const svg = svgOf("svg", { viewBox: `0 -1 ${SPARK} ${FLAT + 2}`, preserveAspectRatio: "none", role: "img", "aria-label": words(`Queue of ${q.name}`, q.values, duration) },
        svgOf("line", { class: "ground", x1: 0, x2: SPARK, y1: FLAT, y2: FLAT }), svgOf("path", { class: "line", d: path(history.at, q.values, first, last, top, SPARK, FLAT) }));
      const numbers = element("span", most >= LONG || q.shed ? "numbers warn" : "numbers", most > 0 ? `${now === null ? "–" : duration(now)}, at most ${duration(most)}${q.shed ? `, ${short(q.shed)} refused` : ""}` : "none");
      return element("li", "", element("span", "name", q.name), svg, numbers);
    }));
  }

  // table is the same in numbers, minute by minute, the latest first.
  function table(body, history, requests, ratio, errors) {
    const rows = [], minute = Math.round(60 / history.every_seconds), mean = (values) => {
      const known = values.filter((v) => v !== null);
      return known.length ? known.reduce((a, b) => a + b, 0) / known.length : null;
    };
    for (let end = history.at.length; end > 0; end -= minute) {
      const from = Math.max(0, end - minute), part = (values) => mean(values.slice(from, end));
      const hits = part(ratio), queue = Math.max(0, ...history.shards.map((s) => Math.max(0, ...s.queue_ms.slice(from, end))));
      const row = element("tr", "", element("th", "", new Date(history.at[end - 1]).toLocaleTimeString()));
      row.firstChild.scope = "row";
      for (const text of [short(part(requests)), hits === null ? "–" : percent(hits), short(part(errors)), duration(queue), String(history.epoch[end - 1])]) row.append(element("td", "n", text));
      rows.push(row);
    }
    body.replaceChildren(...rows);
  }

  // show draws all of section anew.
  function show(section, history) {
    const empty = history.at.length === 0;
    section.querySelector(".wait").hidden = !empty;
    section.querySelector(".charts").hidden = empty;
    if (empty) return;
    const requests = rates(history, history.requests), errors = rates(history, history.errors);
    const ratio = history.hits.map((h, i) => h + history.misses[i] > 0 ? h / (h + history.misses[i]) : null);
    const figure = (name) => section.querySelector(`[data-chart="${name}"]`);
    chart(figure("requests"), history, requests, (n) => `${short(n)}/s`, 10);
    chart(figure("ratio"), history, ratio, percent, 1);
    chart(figure("errors"), history, errors, (n) => `${short(n)}/s`, 1);
    figure("errors").classList.toggle("alarm", errors.at(-1) > 0);
    section.querySelector(".queues").hidden = history.shards.length === 0;
    shards(section.querySelector(".queues ul"), history);
    if (section.querySelector("details").open) table(section.querySelector("tbody"), history, requests, ratio, errors);
  }

  return { show };
})();
