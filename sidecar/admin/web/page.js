
// Keeps the page fresh. The sidecar renders all of it; this program asks for it every two seconds, takes over the parts that have changed,
// and fetches the owners of the vnodes only when they are others.
(() => {
  const EVERY = 2000, PATIENCE = 8000; // milliseconds
  const $ = (selector) => document.querySelector(selector);
  const figure = $("#ring"), drawing = new Drawing(figure), input = $("#key"), status = $("#status");
  const tip = figure.querySelector(".tip"), centre = figure.querySelector(".centre");
  const live = [...document.querySelectorAll("[data-live]")];
  const rendered = new Map(live.map((e) => [e.dataset.live, e.innerHTML])); // as the sidecar sent it
  let drawn = "", epoch = $("[data-epoch]").dataset.epoch, failing = false, timer, running = false, again = false;

  function say(text, bad) {
    if (status.textContent !== text) status.textContent = text;
    status.classList.toggle("bad", Boolean(bad));
  }

  async function get(url, accept) {
    const response = await fetch(url, { headers: { Accept: accept }, signal: AbortSignal.timeout(PATIENCE) });
    if (!response.ok) throw new Error(`the sidecar answers ${response.status}`);
    return response;
  }

  // adopt takes over what has changed, part by part, so that the focus, what is selected and what a screen reader is at stay where they are.
  function adopt(fresh) {
    for (const e of live) {
      const other = fresh.querySelector(`[data-live="${e.dataset.live}"]`);
      if (!other) continue;
      for (const name of ["tag", "epoch"]) if (other.dataset[name]) e.dataset[name] = other.dataset[name];
      if (rendered.get(e.dataset.live) === other.innerHTML) continue;
      rendered.set(e.dataset.live, other.innerHTML);
      const focused = e.contains(document.activeElement) ? document.activeElement.closest("[data-pick]") : null;
      e.replaceChildren(...other.childNodes);
      dress(e);
      if (focused) {
        const same = [...e.querySelectorAll("[data-pick]")].find((p) => p.dataset.pick === focused.dataset.pick && p.dataset.name === focused.dataset.name);
        (same ? same.querySelector("button") : e).focus({ preventScroll: true });
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
    point();
  }

  async function refresh() {
    if (running) { // one at a time; what was asked for meanwhile comes right after
      again = true;
      return;
    }
    running = true;
    clearTimeout(timer);
    try {
      const response = await get("/ring" + location.search, "text/html");
      adopt(new DOMParser().parseFromString(await response.text(), "text/html"));
      await draw();
      const now = $("[data-epoch]").dataset.epoch;
      if (now !== epoch) say(`The ring has changed: epoch ${now} has replaced epoch ${epoch}, at ${new Date().toLocaleTimeString()}.`);
      else if (failing) say(`The sidecar answers again, since ${new Date().toLocaleTimeString()}.`);
      epoch = now;
      failing = false;
    } catch (error) {
      if (!failing) say(`The sidecar has not answered since ${new Date().toLocaleTimeString()} (${error.message}): what is shown is old.`, true);
      failing = true;
    }
    running = false;
    const soon = again;
    again = false;
    timer = setTimeout(refresh, soon ? 0 : EVERY);
  }

  $("#lookup-form").addEventListener("submit", (event) => {
    event.preventDefault();
    history.replaceState(null, "", input.value === "" ? "/ring" : "/ring?" + new URLSearchParams({ key: input.value }));
    refresh();
  });

  function under(event) {
    const box = drawing.canvas.getBoundingClientRect(), half = box.width / 2;
    return drawing.ring && drawing.at((event.clientX - box.left - half) / half, (event.clientY - box.top - half) / half);
  }
  drawing.canvas.addEventListener("pointermove", (event) => {
    const hit = under(event);
    tip.hidden = !hit;
    drawing.canvas.style.cursor = hit ? "pointer" : "";
    if (!hit) return;
    tip.textContent = `${drawing.ownerOf(hit.fleet, hit.vnode) ?? "nobody"} · vnode ${hit.vnode.toLocaleString("en")}`;
    const box = drawing.canvas.getBoundingClientRect(), x = event.clientX - box.left, y = event.clientY - box.top;
    tip.style.top = `${y + 16}px`;
    tip.style.left = `${Math.max(0, Math.min(x + 12, box.width - tip.offsetWidth))}px`;
  });
  drawing.canvas.addEventListener("pointerleave", () => { tip.hidden = true; });
  drawing.canvas.addEventListener("click", (event) => {
    const hit = under(event);
    const owner = hit && drawing.ownerOf(hit.fleet, hit.vnode);
    if (owner !== null) pick(hit.fleet, owner);
  });
  new ResizeObserver(() => requestAnimationFrame(() => drawing.paint())).observe(drawing.canvas);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => drawing.paint());
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) clearTimeout(timer);
    else refresh();
  });

  draw().catch(() => {}).finally(() => { timer = setTimeout(refresh, EVERY); });
})();
