"use strict";
// Everything that comes from the server is put in as text, never as markup.
const $ = (id) => document.getElementById(id);
const EVERY = 2000, TREE_EVERY = 6000, SPAN = 300, SLOTS = 60, SVG = "http://www.w3.org/2000/svg";
const number = new Intl.NumberFormat("en");
const percent = (part, whole) => (whole ? (100 * part / whole).toFixed(1) + " %" : "–");
let samples = [], chosen = null, treeDue = 0, failures = 0;

function make(tag, options = {}, ...children) {
  const found = document.createElement(tag);
  for (const [name, value] of Object.entries(options)) {
    if (name === "text") found.textContent = value;
    else if (name === "className") found.className = value;
    else if (value !== null && value !== undefined) found.setAttribute(name, value);
  }
  found.append(...children);
  return found;
}

async function ask(path) {
  const headers = {}, key = sessionStorage.getItem("agentkv-key");
  if (key) headers.authorization = "Bearer " + key;
  const reply = await fetch(path, { headers, cache: "no-store", signal: AbortSignal.timeout(15000) });
  if (reply.status === 401) { $("login").hidden = false; $("main").hidden = true; throw new Error("It needs a key."); }
  const body = await reply.json();
  if (!reply.ok) throw new Error((body.error && body.error.message) || "HTTP " + reply.status);
  return body;
}

function bar(parts, whole) {
  const svg = document.createElementNS(SVG, "svg");
  svg.setAttribute("class", "bar new");
  svg.setAttribute("viewBox", "0 0 1000 1");
  svg.setAttribute("preserveAspectRatio", "none");
  svg.setAttribute("aria-hidden", "true");
  let at = 0;
  for (const [name, value] of parts) {
    const width = whole ? 1000 * value / whole : 0, rect = document.createElementNS(SVG, "rect");
    for (const [k, v] of [["x", at], ["y", 0], ["width", width], ["height", 1], ["class", name]]) rect.setAttribute(k, v);
    svg.append(rect);
    at += width;
  }
  return svg;
}

const cachedIn = (stats) => Object.values(stats.cached_tokens_total).reduce((a, b) => a + b, 0);

function showNow(stats) {
  const cached = cachedIn(stats), prompt = stats.prompt_tokens_total;
  $("model").textContent = stats.model;
  document.title = stats.model + " · agentkv";
  $("facts").textContent = `· pages of ${stats.page_size} · K/V ${stats.kv_dtype} · eviction ${stats.eviction} · ${number.format(stats.requests_total)} calls`;
  $("rate").textContent = percent(cached, prompt);
  $("rate-what").textContent = "of all prompt tokens reused";
  $("reused").textContent = number.format(cached);
  $("computed").textContent = number.format(prompt - cached);
  $("running").textContent = number.format(stats.num_requests_running);
  $("waiting").textContent = `running, ${number.format(stats.num_requests_waiting)} waiting`;
}

function showMemory(stats) {
  const used = stats.locked_tokens + stats.private_tokens, rows = [];
  const row = (name, parts, whole, said) => rows.push(make("tr", {}, make("th", { scope: "row", text: name }), make("td", {}, bar(parts, whole)), make("td", { className: "n", text: said })));
  row("pool", [["used", used], ["reused", stats.evictable_tokens]], stats.pool_tokens,
    `${number.format(used + stats.evictable_tokens)} of ${number.format(stats.pool_tokens)} tokens` + (stats.pinned_tokens ? `, ${number.format(stats.pinned_tokens)} pinned` : ""));
  for (const [name, tier] of Object.entries(stats.tiers)) {
    if (tier.tokens === undefined) continue;
    const whole = tier.capacity_tokens ?? null;
    if (whole !== null) row(name, [["reused", whole - tier.free_tokens]], whole, `${number.format(whole - tier.free_tokens)} of ${number.format(whole)} tokens`);
    else row(name, [["reused", tier.bytes ?? 0]], tier.capacity_bytes ?? 0, `${number.format(tier.tokens)} tokens, ${((tier.bytes ?? 0) / 2 ** 30).toFixed(2)} of ${((tier.capacity_bytes ?? 0) / 2 ** 30).toFixed(0)} GiB`);
  }
  $("memory").replaceChildren(...rows);
}

function showChart(stats) {
  const now = Date.now() / 1000, cached = cachedIn(stats);
  const last = samples.at(-1);
  // A server that was started anew counts from nothing.
  if (last && stats.prompt_tokens_total < last.prompt) samples = [];
  samples.push({ now, cached, prompt: stats.prompt_tokens_total });
  samples = samples.filter((s) => now - s.now <= SPAN + 10);
  const slots = Array.from({ length: SLOTS }, () => [0, 0]);
  for (let i = 1; i < samples.length; i++) {
    const slot = SLOTS - 1 - Math.floor((now - samples[i].now) / (SPAN / SLOTS));
    if (slot < 0) continue;
    const reused = samples[i].cached - samples[i - 1].cached;
    slots[slot][0] += reused;
    slots[slot][1] += samples[i].prompt - samples[i - 1].prompt - reused;
  }
  const most = Math.max(1, ...slots.map(([a, b]) => a + b)), width = 600 / SLOTS, rects = [];
  slots.forEach(([reused, computed], i) => {
    let base = 120;
    for (const [name, value] of [["lost", computed], ["reused", reused]]) {
      const height = 116 * value / most, rect = document.createElementNS(SVG, "rect");
      base -= height;
      for (const [k, v] of [["x", i * width], ["y", base], ["width", width - 1], ["height", height], ["class", name]]) rect.setAttribute(k, v);
      rects.push(rect);
    }
  });
  $("chart").replaceChildren(...rects);
  const first = samples[0], reused = cached - first.cached, all = stats.prompt_tokens_total - first.prompt;
  $("chart-note").textContent = all
    ? `${percent(reused, all)} of ${number.format(all)} prompt tokens reused since this page was opened, or in the last five minutes.`
    : "No call was admitted since this page was opened.";
}

function showCalls(calls) {
  $("no-calls").hidden = calls.length > 0;
  $("calls").replaceChildren(...calls.map((call) => {
    const miss = call.miss, why = make("td", { className: "why" });
    if (miss) {
      why.append(make("code", { text: miss.reason }), miss.segment ? ` in ${miss.segment}` : "");
      if (miss.was || miss.now) why.append(make("div", { className: "change", text: `“${miss.was ?? ""}” → “${miss.now ?? ""}”` }));
      if (miss.detail) why.append(make("div", { className: "change", text: miss.detail }));
    }
    return make("tr", {},
      make("td", { className: "when", text: new Date(call.time * 1000).toLocaleTimeString() }),
      make("td", { text: call.session ?? "–" }),
      make("td", { className: "n", text: number.format(call.prompt_tokens) }),
      make("td", { className: "when" }, bar([["reused", call.cached_tokens]], call.prompt_tokens), percent(call.cached_tokens, call.prompt_tokens)),
      why);
  }));
}

function showTree(tree) {
  const children = new Map(), byId = new Map(tree.nodes.map((n) => [n.id, n]));
  for (const node of tree.nodes) {
    const above = byId.has(node.parent) ? node.parent : null;
    children.set(above, [...(children.get(above) ?? []), node]);
  }
  const ROW = 14, boxes = [], most = Math.max(1, ...tree.nodes.map((n) => n.start + n.tokens));
  let row = 0;
  const place = (node) => {
    const from = row;
    const below = children.get(node.id) ?? [];
    if (below.length) below.forEach(place);
    else row += 1;
    boxes.push([node, from, row - from]);
  };
  (children.get(null) ?? []).forEach(place);
  const focused = document.activeElement && document.activeElement.dataset ? document.activeElement.dataset.node : null;
  $("tree").replaceChildren(...boxes.map(([node, from, rows]) => {
    const where = node.tiers[0] ?? "gone";
    const said = `tokens ${number.format(node.start)} to ${number.format(node.start + node.tokens)}, ${node.tiers.join(" and ") || "evicted"}, used ${node.uses} times` + (node.pinned ? ", pinned" : "");
    const box = make("button", { type: "button", className: where, title: said, "aria-label": said, "aria-pressed": String(node.id === chosen), "data-node": node.id });
    // Set by script, not in markup: the page's policy allows no inline style.
    Object.assign(box.style, { left: 100 * node.start / most + "%", width: 100 * node.tokens / most + "%", top: from * ROW + "px", height: rows * ROW + "px" });
    box.addEventListener("click", () => choose(node, said));
    return box;
  }));
  $("tree").style.height = Math.max(2, row) * ROW + 2 + "px";
  if (focused) { const again = $("tree").querySelector(`[data-node="${CSS.escape(focused)}"]`); if (again) again.focus(); }
  $("tree-note").textContent = tree.nodes.length
    ? `${number.format(tree.nodes.length)} prefixes, the longest ${number.format(most)} tokens` + (tree.left_out ? `; ${number.format(tree.left_out)} more are not shown.` : ".")
    : "The tree is empty.";
}

async function choose(node, said) {
  chosen = node.id;
  for (const box of $("tree").children) box.setAttribute("aria-pressed", String(box.dataset.node === chosen));
  $("node").hidden = false;
  $("node-title").textContent = node.id.slice(0, 12);
  $("node-facts").textContent = said;
  $("node-text").textContent = "…";
  try {
    const found = await ask(`agentkv/cache/nodes/${encodeURIComponent(node.id)}?text=1`);
    if (chosen === node.id) $("node-text").textContent = found.text + (found.text_cut ? " […]" : "");
  } catch (error) {
    $("node-text").textContent = error.message;
  }
}

async function tick() {
  if (!document.hidden) {
    try {
      const [stats, calls] = await Promise.all([ask("agentkv/cache/stats"), ask("agentkv/calls?limit=30")]);
      $("login").hidden = true;
      $("main").hidden = false;
      showNow(stats);
      showMemory(stats);
      showChart(stats);
      showCalls(calls.calls);
      if (Date.now() >= treeDue) {
        showTree(await ask("agentkv/cache/tree?limit=400"));
        treeDue = Date.now() + TREE_EVERY;
      }
      failures = 0;
      $("state").className = "";
      $("state").textContent = "Live";
    } catch (error) {
      failures += 1;
      $("state").className = "bad";
      $("state").textContent = error.name === "TypeError" ? "The server does not answer; trying again." : error.message;
    }
  }
  setTimeout(tick, Math.min(EVERY * 2 ** failures, 30000));
}

$("login").addEventListener("submit", (event) => {
  event.preventDefault();
  sessionStorage.setItem("agentkv-key", $("key").value.trim());
  $("key").value = "";
  location.reload();
});
tick();
