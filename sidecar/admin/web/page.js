// Keeps the page fresh. The sidecar renders all of it but the drawings; this program asks for it every two seconds, takes over the parts that have changed, and
// fetches the owners of the vnodes only when they are others, and what was in the last quarter of an hour every five seconds.
(() => {
  const EVERY = 2000, RARELY = 30000, HISTORY = 5000, PATIENCE = 8000; // milliseconds
  const $ = (selector) => document.querySelector(selector);
  const figure = $("#ring"), drawing = new Drawing(figure), status = $("#status"), past = $("#history");
  const tip = figure.querySelector(".tip"), centre = figure.querySelector(".centre"), release = $("#release");
  const live = [...document.querySelectorAll("[data-live]")], title = document.title, build = document.documentElement.dataset.build;
  const rendered = new Map(live.map((e) => [e.dataset.live, e.innerHTML])); // as the sidecar sent it
  let drawn = "", epoch = $("[data-epoch]").dataset.epoch, timer, running = false, again = false;
  let page = { url: "", tag: "" }, outlook = ""; // what was taken over last
  let history = null, historyTag = "", historyAt = 0;
  let failures = 0, fresh = new Date(); // when the sidecar answered last

  function say(text, bad) {
    if (status.textContent !== text) status.textContent = text;
    status.classList.toggle("bad", Boolean(bad));
  }

  // get asks the sidecar; null: nothing has changed since tag.
  async function get(url, accept, tag) {
    const headers = { Accept: accept };
    if (tag) headers["If-None-Match"] = tag;
    const response = await fetch(url, { headers, cache: "no-store", signal: AbortSignal.timeout(PATIENCE) });
    if (response.status === 304) return null;
    if (!response.ok) throw new Error(`the sidecar answers ${response.status}`);
    return response;
  }

  // What the keyboard stops at, and what has scroll bars of its own, in a part of the page.
  const stops = (part) => [...part.querySelectorAll("a, button, [tabindex]")];
  const boxes = (part) => [part, ...part.querySelectorAll(".scroll")];

  // adopt takes over what has changed, part by part, so that the focus, what is selected and what a screen reader is at stay where they are.
  function adopt(other) {
    if (other.documentElement.dataset.build !== build) return window.location.reload(); // a sidecar of another version
    for (const e of live) {
      const part = other.querySelector(`[data-live="${e.dataset.live}"]`);
      if (!part) continue;
      for (const name of ["tag", "epoch"]) if (part.dataset[name]) e.dataset[name] = part.dataset[name];
      if (rendered.get(e.dataset.live) === part.innerHTML) continue;
      rendered.set(e.dataset.live, part.innerHTML);
      const active = document.activeElement, inside = active !== e && e.contains(active), picked = inside && active.closest("[data-pick]")?.dataset;
      const place = inside ? stops(e).indexOf(active) : -1, scrolled = boxes(e).map((box) => [box.scrollTop, box.scrollLeft]);
      e.replaceChildren(...part.childNodes);
      boxes(e).forEach((box, i) => [box.scrollTop, box.scrollLeft] = scrolled[i] ?? [0, 0]);
      dress(e);
      if (inside) {
        const same = picked && [...e.querySelectorAll("[data-pick]")].find((p) => p.dataset.pick === picked.pick && p.dataset.name === picked.name)?.querySelector("button");
        (same || stops(e)[place] || e).focus({ preventScroll: true });
      }
    }
  }

  // dress makes buttons of the servers' names, with the color that they have in the drawing.
  function dress(part) {
    for (const cell of part.querySelectorAll("[data-pick]")) {
      const { pick: fleet, name } = cell.dataset, chosen = drawing.picked;
      let button = cell.querySelector("button");
      if (!button) {
        button = document.createElement("button");
        button.type = "button";
        button.className = "pick";
        button.title = name;
        const swatch = document.createElementNS("http://www.w3.org/2000/svg", "svg");
        swatch.setAttribute("class", "swatch");
        swatch.setAttribute("aria-hidden", "true");
        button.append(swatch, name);
        button.addEventListener("click", () => pick(fleet, name));
        cell.replaceChildren(button);
      }
      button.setAttribute("aria-pressed", String(Boolean(chosen && chosen.fleet === fleet && chosen.name === name)));
      button.querySelector("svg").style.background = drawing.colorOf(fleet, name) || "none";
    }
  }

  function pick(fleet, name) {
    const chosen = drawing.picked;
    drawing.picked = chosen && chosen.fleet === fleet && chosen.name === name ? null : { fleet, name };
    release.hidden = !drawing.picked;
    release.textContent = drawing.picked ? `Only ${name} is shown${drawing.enlarged(fleet) ? ", enlarged" : ""}: show all` : "";
    drawing.paint();
    live.forEach(dress);
  }

  // point marks where the key of the key box lives, and writes it into the middle.
  function point() {
    const found = $("#lookup dl"), spots = [], lines = [];
    if (found) {
      const { key, cache, cacheVnode, shard, shardVnode } = found.dataset;
      spots.push({ fleet: "cache", vnode: Number(cacheVnode) });
      lines.push(["big", key], ["", `cache ${cache || "nobody"}`]);
      if (shardVnode !== undefined) {
        spots.push({ fleet: "shard", vnode: Number(shardVnode) });
        lines.push(["", `shard ${shard || "nobody"}`]);
      }
    } else {
      const { caches, shards } = drawing.ring;
      lines.push(["big", `epoch ${drawing.ring.epoch}`], ["dim", `${caches.length} cache servers`], ["dim", `${shards.length} shards`]);
    }
    drawing.mark(spots);
    centre.replaceChildren(...lines.map(([kind, text]) => {
      const line = document.createElement("div");
      line.className = kind;
      line.textContent = text;
      return line;
    }));
  }

  async function draw() {
    const tag = $("[data-tag]").dataset.tag;
    if (tag !== drawn) {
      const response = await get("/ring?format=json", "application/json");
      drawing.show(await response.json());
      drawn = response.headers.get("ETag");
      figure.hidden = false;
      drawing.paint();
      live.forEach(dress);
    }
    const wanted = $("#preview [data-query]"), now = wanted ? `${drawn} ${wanted.dataset.query}` : "";
    if (now !== outlook) {
      if (wanted) {
        const answer = await (await get("/ring/preview?" + wanted.dataset.query, "application/json")).json();
        drawing.preview(answer.fleet, answer.moving);
      } else {
        drawing.preview(null, null);
      }
      outlook = now;
    }
    point();
  }

  async function remember() {
    if (Date.now() - historyAt < HISTORY - EVERY / 2) return;
    const response = await get("/history", "application/json", historyTag);
    historyAt = Date.now();
    if (!response) return;
    historyTag = response.headers.get("ETag");
    history = await response.json();
    Charts.show(past, history);
  }

  // lost says that what is shown is old, and how old.
  function lost(error) {
    failures++;
    document.body.classList.add("lost");
    document.title = `not reached · ${title}`;
    say(`The sidecar has not answered since ${fresh.toLocaleTimeString()} (${error.message}): what is shown is old. It is asked again, at least every ${RARELY / 1000} s.`, true);
  }

  function found() {
    const now = $("[data-epoch]").dataset.epoch, at = new Date();
    if (now !== epoch) say(`The ring has changed: epoch ${now} has replaced epoch ${epoch}, at ${at.toLocaleTimeString()}.`);
    else if (failures) say(`The sidecar answers again, since ${at.toLocaleTimeString()}.`);
    epoch = now;
    fresh = at;
    failures = 0;
    document.body.classList.remove("lost");
    document.title = title;
  }

  async function refresh() {
    clearTimeout(timer);
    if (running) { // one at a time; what was asked for meanwhile comes right after
      again = true;
      return;
    }
    running = true;
    try {
      const url = "/ring" + window.location.search, response = await get(url, "text/html", page.url === url ? page.tag : "");
      if (response) {
        adopt(new DOMParser().parseFromString(await response.text(), "text/html"));
        page = { url, tag: response.headers.get("ETag") };
      }
      await draw();
      await remember();
      found();
    } catch (error) {
      lost(error);
    }
    running = false;
    const soon = again;
    again = false;
    // Who cannot answer is asked less and less often, and not by all pages at once.
    const pause = failures ? Math.min(RARELY, EVERY * 2 ** (failures - 1)) * (0.8 + 0.2 * Math.random()) : EVERY;
    if (!document.hidden) timer = setTimeout(refresh, soon ? 0 : pause);
  }

  // ask changes some of what the page is asked for in its address, and asks. Fields with an empty value are left out.
  function ask(fields) {
    const query = new URLSearchParams(window.location.search);
    for (const [name, value] of Object.entries(fields)) {
      if (value === null) query.delete(name);
      else query.set(name, value);
    }
    const text = query.toString();
    window.history.replaceState(null, "", "/ring" + (text && "?" + text));
    fit();
    refresh();
  }

  $("#lookup-form").addEventListener("submit", (event) => {
    event.preventDefault();
    const key = $("#key").value;
    ask({ key: key === "" ? null : key });
  });
  const proposal = $("#preview-form"), VERBS = ["change", "add", "drain", "weigh"], NOTHING = { change: null, add: null, drain: null, weigh: null, fleet: null, name: null, weight: null };
  function fit() { // the fields that the change needs, and the names that there are
    const { change, fleet } = proposal.elements;
    $("#weight-field").hidden = change.value === "drain";
    proposal.querySelector("[type=reset]").hidden = !VERBS.some((verb) => new URLSearchParams(window.location.search).has(verb));
    proposal.elements.name.setAttribute("list", change.value === "add" ? "" : `names-${fleet.value}`);
  }
  proposal.addEventListener("change", fit);
  proposal.addEventListener("submit", (event) => {
    event.preventDefault();
    const { change, fleet, name, weight } = proposal.elements;
    ask({ ...NOTHING, change: change.value, fleet: fleet.value, name: name.value.trim(), weight: change.value === "drain" ? null : weight.value });
  });
  proposal.addEventListener("reset", (event) => {
    event.preventDefault();
    proposal.elements.name.value = "";
    ask(NOTHING);
  });
  fit();
  past.querySelector("details").addEventListener("toggle", () => history && Charts.show(past, history));

  function under(event) {
    const box = drawing.canvas.getBoundingClientRect(), half = box.width / 2;
    return drawing.ring && drawing.at((event.clientX - box.left - half) / half, (event.clientY - box.top - half) / half);
  }
  drawing.canvas.addEventListener("pointermove", (event) => {
    const hit = under(event);
    tip.hidden = !hit;
    drawing.canvas.style.cursor = hit ? "pointer" : "";
    if (!hit) return;
    tip.textContent = drawing.describe(hit).text;
    const box = drawing.canvas.getBoundingClientRect(), x = event.clientX - box.left, y = event.clientY - box.top;
    tip.style.top = `${y + 16}px`;
    tip.style.left = `${Math.max(0, Math.min(x + 12, box.width - tip.offsetWidth))}px`;
  });
  drawing.canvas.addEventListener("pointerleave", () => { tip.hidden = true; });
  drawing.canvas.addEventListener("click", (event) => {
    const hit = under(event), owner = hit && drawing.describe(hit).name;
    if (owner) pick(hit.fleet, owner);
  });
  release.addEventListener("click", () => pick(drawing.picked.fleet, drawing.picked.name));
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape" && drawing.picked) pick(drawing.picked.fleet, drawing.picked.name);
  });
  new ResizeObserver(() => requestAnimationFrame(() => drawing.paint())).observe(drawing.canvas);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => drawing.paint());
  document.addEventListener("visibilitychange", () => document.hidden ? clearTimeout(timer) : refresh());
  window.addEventListener("online", refresh);

  refresh();
})();
