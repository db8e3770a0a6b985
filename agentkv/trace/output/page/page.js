"use strict";
(() => {
  const report = JSON.parse(document.getElementById("report").textContent);
  const $ = (id) => document.getElementById(id);
  const count = (n) => n.toLocaleString("en");
  const percent = (part, whole) => (whole ? ((100 * part) / whole).toFixed(1) + " %" : "–");
  const clock = (t) =>
    t === null ? "" : Math.abs(t) < 1e8 ? `+${t.toFixed(1)} s` : new Date(t * 1000).toISOString().slice(0, 19).replace("T", " ") + " UTC";

  // -- one cross-hair through every picture over time ------------------------------------------
  const columns = report.timeline;
  const frames = [...document.querySelectorAll(".plots")];
  const hairs = [];
  const readout = $("readout");

  const say = (b) => {
    const parts = [`requests ${count(b.start + 1)}–${count(b.end)}`];
    if (b.time !== null) parts.push("from " + clock(b.time));
    parts.push(`${count(b.prompt_tokens)} prompt tokens`, `${percent(b.cached_tokens, b.prompt_tokens)} reused`);
    let lost = `${percent(b.tokens_lost, b.prompt_tokens)} lost`;
    const why = Object.entries(b.reasons).filter((r) => r[1] > 0).sort((x, y) => y[1] - x[1]).slice(0, 3);
    if (why.length) lost += ` (${why.map(([name, n]) => `${name.replaceAll("_", " ")} ${count(n)}`).join(", ")})`;
    parts.push(lost);
    if (b.measured_cached_tokens !== null) parts.push(`${percent(b.measured_cached_tokens, b.prompt_tokens)} measured`);
    return parts;
  };

  const show = (i) => {
    const n = columns.length;
    i = Math.max(0, Math.min(n - 1, i));
    for (const hair of hairs) {
      hair.hidden = false;
      hair.style.left = (100 * i) / n + "%";
      hair.style.width = 100 / n + "%";
    }
    const parts = say(columns[i]);
    readout.replaceChildren();
    const first = document.createElement("b");
    first.textContent = parts[0];
    readout.append(first, " · " + parts.slice(1).join(" · "));
    for (const frame of frames) {
      frame.setAttribute("aria-valuenow", i + 1);
      frame.setAttribute("aria-valuetext", parts.join(", "));
    }
    at = i;
  };
  let at = columns.length - 1;

  if (frames.length) {
    readout.hidden = false;
    readout.textContent = "Point at a column, or move along with the arrow keys.";
    for (const frame of frames) {
      frame.tabIndex = 0;
      frame.setAttribute("role", "slider");
      frame.setAttribute("aria-label", "Place in the log");
      frame.setAttribute("aria-valuemin", 1);
      frame.setAttribute("aria-valuemax", columns.length);
      frame.setAttribute("aria-valuenow", at + 1);
      frame.setAttribute("aria-valuetext", say(columns[at]).join(", "));
      for (const area of frame.querySelectorAll(".area")) {
        const hair = document.createElement("div");
        hair.className = "hair";
        hair.hidden = true;
        area.append(hair);
        hairs.push(hair);
        const point = (e) => {
          const box = area.getBoundingClientRect();
          show(Math.floor(((e.clientX - box.left) / box.width) * columns.length));
        };
        area.addEventListener("pointermove", point);
        area.addEventListener("pointerdown", point);
      }
      frame.addEventListener("keydown", (e) => {
        const page = Math.max(1, Math.round(columns.length / 10));
        const to = { ArrowRight: at + 1, ArrowUp: at + 1, ArrowLeft: at - 1, ArrowDown: at - 1, Home: 0, End: columns.length - 1, PageUp: at + page, PageDown: at - page }[e.key];
        if (to === undefined) return;
        e.preventDefault();
        show(to);
      });
    }
  }

  // -- the icicle: look at a part of it --------------------------------------------------------
  const icicle = $("icicle");
  if (icicle) {
    const blocks = [...icicle.children];
    const of = (el) => ({ s: +el.dataset.s, t: +el.dataset.t, n: +el.dataset.n, r: +el.dataset.r, p: +el.dataset.p });
    const facts = blocks.map(of);
    const whole = { s: 0, t: 0, wide: +icicle.dataset.wide, high: +icicle.dataset.high };
    const out = $("tree-readout");
    const ticks = [...$("icicle-axis").children];
    let zoomed = -1;
    icicle.classList.add("live");
    out.hidden = false;
    out.textContent = "Point at a block, or move among them with the arrow keys.";
    document.querySelector("#tree .hint").hidden = false;

    const below = (i, root) => {
      for (; i >= 0; i = facts[i].p) if (i === root) return true;
      return root < 0;
    };
    const short = (n) => (n < 1000 ? String(Math.round(n)) : n < 1e6 ? (n / 1000).toFixed(1) + "k" : (n / 1e6).toFixed(1) + "M");
    const zoom = (root) => {
      zoomed = root;
      let view = whole;
      if (root >= 0) {
        const f = facts[root];
        let end = f.s + f.n;
        facts.forEach((g, i) => { if (below(i, root)) end = Math.max(end, g.s + g.n); });
        view = { s: f.s, t: f.t, wide: end - f.s, high: f.r };
      }
      blocks.forEach((el, i) => {
        const f = facts[i];
        const set = (name, v) => el.setAttribute(name, (100 * v).toFixed(3) + "%");
        const seen = below(i, root);
        el.style.display = seen ? "" : "none";
        set("x", (f.s - view.s) / view.wide);
        set("y", (f.t - view.t) / view.high);
        set("width", f.n / view.wide);
        set("height", f.r / view.high);
        let label = el.querySelector("text");
        const room = f.n / view.wide >= 0.045 && f.r / view.high >= 0.034;
        if (room && !label) {
          label = document.createElementNS("http://www.w3.org/2000/svg", "text");
          label.setAttribute("x", 6);
          label.setAttribute("y", 15);
          label.textContent = el.getAttribute("aria-label").replace(/: [^:]*$/, "");
          el.append(label);
        }
        if (label) label.style.display = room ? "" : "none";
      });
      ticks.forEach((tick, i) => { tick.textContent = short(view.s + (view.wide * i) / (ticks.length - 1)); });
    };
    const focus = (i) => {
      blocks.forEach((el, j) => { el.tabIndex = i === j ? 0 : -1; });
      blocks[i].focus({ preventScroll: true });
      tell(i);
    };
    const path = (i) => {
      const names = [];
      for (let j = i; j >= 0; j = facts[j].p) names.unshift(j);
      return names.length;
    };
    const tell = (i) => {
      const first = document.createElement("b");
      first.textContent = blocks[i].getAttribute("aria-label");
      out.replaceChildren(first, ` · level ${path(i)}`);
    };
    const toggle = (i) => zoom(zoomed === i ? facts[i].p : i);
    blocks.forEach((el, i) => {
      el.setAttribute("role", "button");
      el.addEventListener("pointerenter", () => tell(i));
      el.addEventListener("focus", () => tell(i));
      el.addEventListener("click", () => { focus(i); toggle(i); });
    });
    icicle.addEventListener("keydown", (e) => {
      const i = blocks.indexOf(e.target);
      if (i < 0) return;
      const siblings = blocks.map((_, j) => j).filter((j) => facts[j].p === facts[i].p && below(j, zoomed));
      const place = siblings.indexOf(i);
      const child = facts.findIndex((f) => f.p === i);
      let to = null;
      if (e.key === "ArrowLeft") to = i === zoomed ? null : facts[i].p;
      else if (e.key === "ArrowRight") to = child;
      else if (e.key === "ArrowUp") to = siblings[place - 1] ?? null;
      else if (e.key === "ArrowDown") to = siblings[place + 1] ?? null;
      else if (e.key === "Home") to = Math.max(zoomed, 0);
      else if (e.key === "Enter" || e.key === " ") toggle(i);
      else if (e.key === "Escape") {
        if (zoomed < 0) return;
        const up = facts[zoomed].p;
        to = zoomed;
        zoom(up);
      } else return;
      e.preventDefault();
      if (to !== null && to >= 0) focus(to);
    });
  }

  // -- tables that sort ------------------------------------------------------------------------
  for (const head of document.querySelectorAll("th[data-sort]")) {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = head.textContent;
    head.replaceChildren(button);
    button.addEventListener("click", () => {
      const table = head.closest("table");
      const i = [...head.parentNode.children].indexOf(head);
      const up = head.getAttribute("aria-sort") === "descending" || (head.dataset.sort === "text" && !head.hasAttribute("aria-sort"));
      for (const th of head.parentNode.children) th.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", up ? "ascending" : "descending");
      const value = (row) => row.children[i].dataset.v ?? row.children[i].textContent;
      const order = head.dataset.sort === "text"
        ? (a, b) => value(a).localeCompare(value(b), "en", { numeric: true })
        : (a, b) => value(a) - value(b);
      const rows = [...table.tBodies[0].rows].sort((a, b) => (up ? order(a, b) : order(b, a)));
      table.tBodies[0].append(...rows);
    });
  }

  // -- print, links, and the numbers -----------------------------------------------------------
  let closed = [];
  addEventListener("beforeprint", () => {
    closed = [...document.querySelectorAll(".more details:not([open])")];
    for (const d of closed) d.open = true;
  });
  addEventListener("afterprint", () => { for (const d of closed) d.open = false; });

  const open = () => {
    const row = location.hash.startsWith("#cause-") && document.getElementById(location.hash.slice(1));
    if (row) row.nextElementSibling.querySelector("details").open = true;
  };
  addEventListener("hashchange", open);
  open();

  const save = $("save");
  save.hidden = false;
  save.addEventListener("click", () => {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([JSON.stringify(report, null, 2)], { type: "application/json" }));
    link.download = "trace-report.json";
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  });
})();
