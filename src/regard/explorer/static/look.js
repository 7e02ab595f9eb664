// Attention, looked at. One module without dependencies; everything happens below one element.
//
// render({model, el}): model.get("data") is what regard.explorer.payload makes. A page may hold
// any number of these; no ids are used, and no text is ever read as HTML.

const COLOURS = ["#3d85c6", "#e07b39", "#45a567", "#b067b5", "#c9a227", "#7f8c8d", "#c0504d", "#4bacc6"];
const [POSITIVE, NEGATIVE] = [[61, 133, 198], [224, 123, 57]]; // the first two, in numbers
const FAINTEST = 0.02; // weights below have no line
const MOST_LINES = 4000;
const ARROWS = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };

export function render({ model, el }) {
  const data = model.get("data");
  const state = { view: "model", side: 0, map: 0, layer: 0, head: 0, shown: null, locked: null };
  const root = make("div", { class: "regard-look" });
  const section = make("section", { "aria-label": data.title });
  root.append(section);
  const heading = make("h2", {}, data.title);
  const bar = make("div", { class: "bar" });
  const view = make("div", { class: "view", tabindex: "0", role: "group", "aria-label": "attention" });
  const said = make("p", { class: "said", role: "status" });
  section.append(heading, bar, view, said);
  el.append(root);
  const say = (text) => { if (said.textContent !== text) said.textContent = text; };
  quietForMice(section, said);

  function update(changes) {
    if (["view", "side", "map"].some((one) => one in changes)) state.locked = null; // each has its own
    if ("side" in changes || "map" in changes) state.shown = null;
    Object.assign(state, changes);
    Object.assign(state, within(data, state));
    if ("view" in changes) view.scrollTo(0, 0);
    keepingFocus(section, () => {
      bar.replaceChildren(...controls(data, state, update));
      view.replaceChildren(VIEWS[state.view].draw(data, state, update, say));
    });
  }
  view.addEventListener("keydown", (event) => {
    const change = steered(event.key, data, state);
    if (change) { event.preventDefault(); update(change); }
  });
  update({});
  return () => root.remove();
}

// What is chosen

const current = (data, state) => data.sides[state.side].maps[state.map];

// Another side may have fewer maps, layers and heads.
function within(data, state) {
  const maps = data.sides[state.side].maps;
  const map = clamp(state.map, maps.length);
  const layer = clamp(state.layer, maps[map].layers.length);
  return { map, layer, head: clamp(state.head, maps[map].layers[layer].heads.length) };
}

function steered(key, data, state) {
  if (key === "Escape") return state.locked ? { locked: null } : { view: state.view === "matrix" ? "model" : state.view };
  const map = current(data, state);
  const [layers, heads] = [map.layers.length, map.layers[0].heads.length];
  const by = ARROWS[key];
  if (!by || state.view === "neuron") return null;
  return { layer: clamp(state.layer + by[0], layers), head: clamp(state.head + by[1], heads) };
}

function controls(data, state, update) {
  const views = Object.entries(VIEWS)
    .filter(([, one]) => one.possible(data, state))
    .map(([name, one]) => pressed(one.title, state.view === name, () => update({ view: name })));
  const sides = data.sides.length > 1
    ? [choice("of", data.sides.map((side) => side.name), state.side, (side) => update({ side }))] : [];
  const names = data.sides[state.side].maps.map((map) => map.name);
  const maps = names.length > 1 ? [choice("attention", names, state.map, (map) => update({ map, layer: 0, head: 0 }))] : [];
  const map = current(data, state);
  const layer = choice("layer", map.layers.map((one) => one.name), state.layer, (layer) => update({ layer }));
  const head = choice("head", map.layers[state.layer].heads.map((one) => one.name), state.head, (head) => update({ head }));
  return [...views, ...sides, ...maps, ...(state.view === "model" ? [] : [layer]), ...(state.view === "matrix" || state.view === "neuron" ? [head] : [])];
}

// The views

const VIEWS = {
  model: { title: "Model", possible: () => true, draw: drawModel },
  heads: { title: "Heads", possible: () => true, draw: drawHeads },
  matrix: { title: "Matrix", possible: () => true, draw: drawMatrix },
  neuron: { title: "Step by step", possible: (data, state) => detailsOf(data, state).length > 0, draw: drawNeuron },
};

function drawModel(data, state, update, say) {
  const map = current(data, state);
  const heads = map.layers[0].heads.length;
  const grid = make("div", { class: "grid", style: `grid-template-columns: auto repeat(${heads}, auto)` });
  grid.append(make("span", { class: "label" }, "layer"));
  for (const head of map.layers[0].heads) grid.append(make("span", { class: "label" }, `head ${head.name}`));
  const size = Math.max(36, Math.min(96, map.queries.length, Math.floor(900 / heads)));
  map.layers.forEach((layer, l) => {
    grid.append(make("span", { class: "label" }, layer.name));
    layer.heads.forEach((head, h) => {
      const name = `layer ${layer.name}, head ${head.name}`;
      const open = make("button", { "aria-label": `open ${name}` }, picture(map, head, size, size));
      open.addEventListener("click", () => update({ view: "matrix", layer: l, head: h }));
      open.addEventListener("mouseenter", () => say(name));
      open.addEventListener("focus", () => { Object.assign(state, { layer: l, head: h }); say(name); });
      grid.append(open);
    });
  });
  roving([...grid.querySelectorAll("button")], heads, state.layer * heads + state.head);
  return grid;
}

function drawMatrix(data, state, update, say) {
  const map = current(data, state);
  const head = map.layers[state.layer].heads[state.head];
  const [rows, columns] = [map.queries.length, map.keys.length];
  const cell = Math.max(4, Math.min(22, Math.floor(720 / Math.max(rows, columns))));
  const canvas = picture(map, head, columns * cell, rows * cell);
  canvas.setAttribute("role", "application");
  canvas.setAttribute("aria-label", `weights of layer ${map.layers[state.layer].name}, head ${head.name}; rows are queries`);
  const mark = cells(canvas, [rows, columns], state, (i, j) => looksAt(map, head, i, j), say);
  const framed = parted(canvas, map.second, cell);
  framed.append(mark);
  const box = make("div", { class: "grid", style: "grid-template-columns: auto auto; align-items: start" });
  const names = (tokens, style) => tokens.map((token) => make("div", { class: "token", style }, token));
  if (cell >= 11) {
    const left = make("div", { style: "text-align: right; padding-right: 4px" });
    left.append(...names(map.queries, `height: ${cell}px; line-height: ${cell}px; font-size: ${Math.min(cell, 13)}px`));
    const below = make("div", { style: `display: flex; height: 7em` });
    below.append(...names(map.keys, `width: ${cell}px; line-height: ${cell}px; writing-mode: vertical-rl; font-size: ${Math.min(cell, 13)}px`));
    box.append(left, framed, make("span", {}), below);
  } else box.append(make("span", {}), framed);
  return box;
}

// Of two texts read as one, lines between the four blocks.
function parted(canvas, second, cell) {
  const frame = make("div", { style: "position: relative; width: max-content; line-height: 0" }, canvas);
  if (second) for (const [edge, other] of [["left", "top: 0; bottom: 0; border-left"], ["top", "left: 0; right: 0; border-top"]])
    frame.append(make("div", { style: `position: absolute; pointer-events: none; ${edge}: ${second * cell}px; ${other}: 1px dashed currentColor` }));
  return frame;
}

function drawHeads(data, state, update, say) {
  const map = current(data, state);
  const layer = map.layers[state.layer];
  const chosen = state.shown ?? new Set(layer.heads.map((_, h) => h));
  const box = make("div", {});
  const chips = make("div", { class: "bar" });
  layer.heads.forEach((head, h) => {
    const chip = pressed(head.name, chosen.has(h), () => {
      const next = new Set(chosen);
      next.has(h) ? next.delete(h) : next.add(h);
      update({ shown: next });
    });
    chip.setAttribute("aria-label", `head ${head.name}`);
    chip.style.borderLeft = `6px solid ${COLOURS[h % COLOURS.length]}`;
    chips.append(chip);
  });
  const [height, left, right] = [20, 170, 430];
  const svg = draw("svg", { width: right + 170, height: height * Math.max(map.queries.length, map.keys.length) + 8, role: "group", "aria-label": "queries left, keys right" });
  const [resting, lines] = [draw("g", {}), draw("g", {})]; // of all words, and of one
  const lined = (weights) => linesOf(weights, map, layer, say, [left, right, height]);
  const all = weightsOf(map, layer, chosen, "queries", null);
  resting.append(...lined(all));
  const labels = { queries: [], keys: [] };
  const show = (side, at) => {
    resting.setAttribute("display", at === null ? "inline" : "none");
    lines.replaceChildren(...(at === null ? [] : lined(weightsOf(map, layer, chosen, side, at))));
    for (const [name, all] of Object.entries(labels)) all.forEach((label, i) => {
      label.toggleAttribute("data-lit", name === side && i === at);
      const locked = String(state.locked !== null && state.locked[0] === name && state.locked[1] === i);
      if (label.getAttribute("aria-pressed") !== locked) label.setAttribute("aria-pressed", locked);
    });
    if (at !== null) say(summary(map, layer, chosen, side, at));
  };
  const unlocked = () => (state.locked ? show(...state.locked) : show("queries", null));
  for (const [side, x, anchor] of [["queries", left - 6, "end"], ["keys", right + 6, "start"]]) {
    map[side].forEach((token, i) => {
      const label = draw("text", { x, y: height * i + 15, "text-anchor": anchor, role: "button" });
      label.textContent = token;
      label.setAttribute("aria-label", `${side === "queries" ? "from" : "to"} ${quoted(token)}, position ${i}`);
      const lock = () => {
        state.locked = state.locked && state.locked[0] === side && state.locked[1] === i ? null : [side, i];
        show(side, i);
      };
      label.addEventListener("mouseenter", () => { if (!state.locked) show(side, i); });
      label.addEventListener("mouseleave", unlocked);
      label.addEventListener("focus", () => { if (!state.locked) show(side, i); });
      label.addEventListener("click", lock);
      label.addEventListener("keydown", (event) => { if (event.key === "Enter" || event.key === " ") { event.preventDefault(); event.stopPropagation(); lock(); } });
      labels[side].push(label);
      svg.append(label);
    });
    roving(labels[side], 1);
  }
  svg.append(resting, lines);
  box.append(chips);
  if (all.length > MOST_LINES) box.append(make("p", { class: "said" }, `The strongest ${MOST_LINES} of ${all.length} lines are drawn. Point at a word for its own.`));
  box.append(svg);
  unlocked();
  return box;
}

// No more lines than a browser draws at once.
function linesOf(weights, map, layer, say, [left, right, height]) {
  return weights.slice(0, MOST_LINES).map(([weight, h, i, j]) => {
    const line = draw("line", { x1: left, y1: height * i + 11, x2: right, y2: height * j + 11, stroke: COLOURS[h % COLOURS.length], "stroke-width": 2, "stroke-opacity": Math.min(1, Math.abs(weight)) });
    line.addEventListener("mouseenter", () => say(`${looksAt(map, layer.heads[h], i, j)}, head ${layer.heads[h].name}`));
    return line;
  });
}

// Weights large enough for a line, strongest first, each with its head, query and key.
function weightsOf(map, layer, chosen, side, at) {
  const [queries, keys] = ["queries", "keys"].map((one) => (at !== null && one === side ? [at] : [...map[one].keys()]));
  const found = [];
  layer.heads.forEach((head, h) => {
    if (!chosen.has(h)) return;
    for (const i of queries) for (const j of keys) {
      const weight = weightOf(map, head, i, j);
      if (Math.abs(weight) >= FAINTEST) found.push([weight, h, i, j]);
    }
  });
  return found.sort(([a], [b]) => Math.abs(b) - Math.abs(a));
}

function summary(map, layer, chosen, side, at) {
  const n = side === "queries" ? map.keys.length : map.queries.length;
  const sums = Array.from({ length: n }, (_, other) => {
    let sum = 0;
    layer.heads.forEach((head, h) => { if (chosen.has(h)) sum += side === "queries" ? weightOf(map, head, at, other) : weightOf(map, head, other, at); });
    return [sum / Math.max(chosen.size, 1), other];
  });
  const most = sums.sort((a, b) => b[0] - a[0]).slice(0, 3);
  const tokens = side === "queries" ? map.keys : map.queries;
  const names = most.map(([weight, i]) => `${quoted(tokens[i])} ${weight.toFixed(2)}`).join(", ");
  return `${quoted(map[side][at])} ${side === "queries" ? "looks most at" : "is looked at most by"} ${names} (mean of ${chosen.size} heads)`;
}

function detailsOf(data, state) {
  return (data.sides[state.side].details ?? []).filter((one) => one.map === state.map);
}

function drawNeuron(data, state, update, say) {
  const details = detailsOf(data, state);
  const detail = details.find((one) => one.layer === state.layer && one.head === state.head);
  const box = make("div", {});
  if (!detail) {
    const named = (one) => `layer ${current(data, state).layers[one.layer].name}, head ${current(data, state).layers[one.layer].heads[one.head].name}`;
    const where = details.map((one) => pressed(named(one), false, () => update({ layer: one.layer, head: one.head })));
    box.append(make("p", {}, "Exact steps were kept for:"), ...where);
    return box;
  }
  const map = current(data, state);
  const query = Math.min(state.query ?? map.queries.length - 1, map.queries.length - 1);
  box.append(choice("query", map.queries.map((token, i) => `${i}: ${token}`), query, (chosen) => update({ query: chosen })));
  const [q, k] = [floats(detail.q), floats(detail.k)];
  const table = make("table", {});
  const head = make("tr", {});
  head.append(...["key", "q ∘ k", ...detail.steps.map((step) => step.name)].map((name) => make("th", { scope: "col" }, name)));
  const body = make("tbody", {});
  const steps = detail.steps.map((step) => floats(step.values));
  map.keys.forEach((token, j) => {
    const row = make("tr", {});
    const product = Array.from({ length: detail.d }, (_, e) => q[query * detail.d + e] * k[j * detail.d + e]);
    row.append(make("th", { scope: "row", class: "token" }, `${j}: ${token}`), make("td", {}, strip(product)));
    for (const values of steps) row.append(make("td", {}, shown(values[query * map.keys.length + j])));
    row.addEventListener("mouseenter", () => say(`q ∘ k with ${quoted(token)}: ${product.map((x) => x.toFixed(2)).join(" ")}`));
    body.append(row);
  });
  const top = make("thead", {});
  top.append(head);
  table.append(top, body);
  box.append(table);
  return box;
}

// Weights

// A weight is low + step · byte of its row; the step of a row is (high − low) / 255.
function weightOf(map, head, i, j) {
  const [low, step] = rowScale(head, i);
  return low + step * bytesOf(head)[i * map.keys.length + j];
}

function rowScale(head, i) {
  head.scaled ??= floats(head.scales);
  const [low, high] = [head.scaled[2 * i], head.scaled[2 * i + 1]];
  return [low, (high - low) / 255];
}

function bytesOf(head) {
  head.raw ??= bytes(head.values);
  return head.raw;
}

function floats(text) {
  return new Float32Array(bytes(text).buffer);
}

// A plain loop: a call for each letter would take most of the time until a page is seen.
function bytes(text) {
  const letters = atob(text);
  const found = new Uint8Array(letters.length);
  for (let i = 0; i < letters.length; i++) found[i] = letters.charCodeAt(i);
  return found;
}

// What was computed lies within what is told: half a step is rounded up, and has room for the
// rounding of the weight itself.
function told(map, head, i, j) {
  const half = rowScale(head, i)[1] / 2;
  const digits = half > 0 ? Math.min(Math.max(4, 1 - Math.floor(Math.log10(half))), 20) : 4;
  const unit = 10 ** -digits;
  const off = half > 0 ? Math.ceil(half / unit + 0.5) * unit : 0;
  return `${weightOf(map, head, i, j).toFixed(digits)} ± ${off.toFixed(digits)}`;
}

function looksAt(map, head, i, j) {
  return `${quoted(map.queries[i])} (${i}) looks at ${quoted(map.keys[j])} (${j}): ${told(map, head, i, j)}`;
}

function picture(map, head, width, height) {
  const [rows, columns] = [map.queries.length, map.keys.length];
  const canvas = make("canvas", { width: columns, height: rows, style: `width: ${width}px; height: ${height}px` });
  head.image ??= imageOf(head, rows, columns);
  canvas.getContext("2d").putImageData(head.image, 0, 0);
  return canvas;
}

// A pixel a weight: its colour is the sign, its opacity the size. Kept, for thumbnails come back.
function imageOf(head, rows, columns) {
  const [image, raw] = [new ImageData(columns, rows), bytesOf(head)];
  for (let i = 0; i < rows; i++) {
    const [low, step] = rowScale(head, i);
    for (let at = i * columns; at < (i + 1) * columns; at++) {
      const weight = low + step * raw[at];
      const [red, green, blue] = weight < 0 ? NEGATIVE : POSITIVE;
      image.data[4 * at] = red;
      image.data[4 * at + 1] = green;
      image.data[4 * at + 2] = blue;
      image.data[4 * at + 3] = Math.abs(weight) * 255;
    }
  }
  return image;
}

function strip(numbers) {
  const most = Math.max(...numbers.map(Math.abs), 1e-9);
  const canvas = make("canvas", { width: numbers.length, height: 1, style: `width: ${Math.min(240, 4 * numbers.length)}px; height: 12px`, role: "img", "aria-label": "entries of q ∘ k" });
  const image = new ImageData(numbers.length, 1);
  numbers.forEach((x, e) => image.data.set([...(x < 0 ? NEGATIVE : POSITIVE), (255 * Math.abs(x)) / most], 4 * e));
  canvas.getContext("2d").putImageData(image, 0, 0);
  return canvas;
}

// Keys, the focus and what is said

// Cells of a canvas: pointing or arrows go from one to the next, a click or Enter locks it.
// Gives the mark that stands over the cell, to be laid over the canvas.
function cells(canvas, [rows, columns], state, tell, say) {
  const mark = make("div", { class: "mark", hidden: "" });
  let at = state.locked ?? [0, 0];
  function go(i, j) {
    at = [clamp(i, rows), clamp(j, columns)];
    if (state.locked) state.locked = at;
    mark.hidden = false;
    mark.style.cssText = `left: ${(100 * at[1]) / columns}%; top: ${(100 * at[0]) / rows}%; width: ${100 / columns}%; height: ${100 / rows}%`;
    say(tell(...at) + (state.locked ? ", locked" : ""));
  }
  function lock() {
    state.locked = state.locked ? null : at;
    go(...at);
  }
  const place = (event) => {
    const box = canvas.getBoundingClientRect();
    return [((event.clientY - box.top) / box.height) * rows, ((event.clientX - box.left) / box.width) * columns].map(Math.floor);
  };
  canvas.setAttribute("tabindex", "0");
  canvas.addEventListener("mousemove", (event) => { if (!state.locked) go(...place(event)); });
  canvas.addEventListener("click", (event) => { if (!state.locked) go(...place(event)); lock(); });
  canvas.addEventListener("focus", () => go(...at));
  canvas.addEventListener("keydown", (event) => {
    const by = ARROWS[event.key];
    if (by) go(at[0] + by[0], at[1] + by[1]);
    else if (event.key === "Enter" || event.key === " ") lock();
    else return;
    event.preventDefault();
    event.stopPropagation();
  });
  if (state.locked) go(...at);
  return mark;
}

// One stop of the Tab key for a grid of things; arrows go on from there.
function roving(items, columns, first = 0) {
  const stopAt = (item) => { for (const one of items) one.setAttribute("tabindex", one === item ? "0" : "-1"); };
  stopAt(items[first]);
  items.forEach((item, i) => {
    item.addEventListener("focus", () => stopAt(item));
    item.addEventListener("keydown", (event) => {
      const by = ARROWS[event.key];
      if (!by) return;
      event.preventDefault();
      event.stopPropagation();
      items[i + by[0] * columns + by[1]]?.focus();
    });
  });
}

// Drawing anew puts other elements in place of the old ones: the focus goes to the one of the same
// name, or to the first in the view.
function keepingFocus(section, redraw) {
  const before = section.getRootNode().activeElement ?? null;
  const held = section.contains(before) ? nameOf(before) : null;
  redraw();
  if (held === null || section.contains(before)) return;
  const same = [...section.querySelectorAll("button, select, [tabindex]")].find((one) => nameOf(one) === held);
  (same ?? section.querySelector(".view [tabindex='0']") ?? section.querySelector(".view")).focus({ preventScroll: true });
}

const nameOf = (element) => element.getAttribute("aria-label") ?? element.textContent;

// A screen reader tells what keys do, and nothing of all that a mouse passes over.
function quietForMice(section, said) {
  const hush = (event) => said.setAttribute("aria-live", event.pointerType === "mouse" ? "off" : "polite");
  for (const kind of ["pointerover", "pointermove", "keydown"]) section.addEventListener(kind, hush, true);
}

// Elements

function make(name, attributes, child) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  if (child !== undefined) element.append(child);
  return element;
}

function draw(name, attributes) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  return element;
}

function pressed(title, on, act) {
  const button = make("button", { type: "button", "aria-pressed": String(on) }, title);
  button.addEventListener("click", act);
  return button;
}

function choice(name, options, chosen, act) {
  const select = make("select", { "aria-label": name });
  options.forEach((option, i) => select.append(make("option", { value: i }, option)));
  select.value = String(chosen);
  select.addEventListener("change", () => act(Number(select.value)));
  const label = make("label", {}, `${name} `);
  label.append(select);
  return label;
}

const clamp = (x, n) => Math.min(Math.max(x, 0), n - 1);
const quoted = (token) => `“${token}”`;
const shown = (x) => (Number.isFinite(x) ? x.toPrecision(4) : x < 0 ? "−∞" : String(x));
