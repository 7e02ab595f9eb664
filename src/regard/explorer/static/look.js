// Attention, looked at. One module without dependencies; everything happens below one element.
//
// render({model, el}): model.get("data") is what regard.explorer.payload makes. A page may hold
// any number of these; no ids are used, and no text is ever read as HTML.
//
// Where data may change, model.on("change:data", act) is told of it. Where there is someone to ask,
// data.ask({side, map, layer, head}) promises the exact steps of a head. Where data.grows, its last
// token is new, and shown.

const COLOURS = ["#3d85c6", "#e07b39", "#45a567", "#b067b5", "#c9a227", "#7f8c8d", "#c0504d", "#4bacc6"];

export function render({ model, el }) {
  let data = model.get("data");
  const state = { view: "model", side: 0, map: 0, layer: 0, head: 0, shown: null, locked: null };
  const root = make("div", { class: "regard-look" });
  const section = make("section", { "aria-label": data.title });
  root.append(section);
  const heading = make("h2", {}, data.title);
  const bar = make("div", { class: "bar" });
  const view = make("div", { class: "view", tabindex: "0", "aria-label": "attention" });
  const said = make("p", { class: "said", role: "status" });
  section.append(heading, bar, view, said);
  el.append(root);
  const say = (text) => { said.textContent = text; };

  function update(changes) {
    if ("view" in changes) state.locked = null; // each view locks something else
    Object.assign(state, changes);
    bar.replaceChildren(...controls(data, state, update));
    view.replaceChildren(VIEWS[state.view].draw(data, state, update, say));
  }
  view.addEventListener("keydown", (event) => {
    const change = steered(event.key, data, state);
    if (change) { event.preventDefault(); update(change); view.focus(); }
  });
  update({});
  model.on?.("change:data", () => {
    data = model.get("data");
    section.setAttribute("aria-label", data.title);
    heading.textContent = data.title;
    update(kept(data, state));
  });
  return () => root.remove();
}

// What is chosen

const current = (data, state) => data.sides[state.side].maps[state.map];

// What was chosen, as far as other data have it too.
function kept(data, state) {
  const at = (x, all) => Math.min(x, all.length - 1);
  const side = at(state.side, data.sides);
  const map = at(state.map, data.sides[side].maps);
  const { layers, queries } = data.sides[side].maps[map];
  const layer = at(state.layer, layers);
  const head = at(state.head, layers[layer].heads);
  const fits = [...(state.shown ?? [])].every((h) => h < layers[layer].heads.length);
  const locked = data.grows && state.view === "heads" ? ["queries", queries.length - 1] : null;
  return { side, map, layer, head, locked, shown: fits ? state.shown : null, query: data.grows ? undefined : state.query };
}

function steered(key, data, state) {
  if (key === "Escape") return { locked: null, view: state.view === "matrix" ? "model" : state.view };
  const map = current(data, state);
  const [layers, heads] = [map.layers.length, map.layers[0].heads.length];
  const by = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[key];
  if (!by || state.view === "neuron") return null;
  const clamp = (x, n) => Math.min(Math.max(x, 0), n - 1);
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
  neuron: { title: "Step by step", possible: (data, state) => Boolean(data.ask) || detailsOf(data, state).length > 0, draw: drawNeuron },
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
      grid.append(open);
    });
  });
  return grid;
}

function drawMatrix(data, state, update, say) {
  const map = current(data, state);
  const head = map.layers[state.layer].heads[state.head];
  const [rows, columns] = [map.queries.length, map.keys.length];
  const cell = Math.max(4, Math.min(22, Math.floor(720 / Math.max(rows, columns))));
  const canvas = picture(map, head, columns * cell, rows * cell);
  canvas.setAttribute("role", "img");
  canvas.setAttribute("aria-label", `weights of layer ${map.layers[state.layer].name}, head ${head.name}; rows are queries`);
  const place = (event) => {
    const box = canvas.getBoundingClientRect();
    const at = (x, low, size, n) => Math.min(Math.max(Math.floor(((x - low) / size) * n), 0), n - 1);
    return [at(event.clientY, box.top, box.height, rows), at(event.clientX, box.left, box.width, columns)];
  };
  const tell = (i, j) => say(`${quoted(map.queries[i])} (${i}) looks at ${quoted(map.keys[j])} (${j}): ${told(map, head, i, j)}`);
  canvas.addEventListener("mousemove", (event) => { if (!state.locked) tell(...place(event)); });
  canvas.addEventListener("click", (event) => {
    state.locked = state.locked ? null : place(event);
    tell(...place(event));
  });
  if (state.locked) tell(...state.locked);
  const framed = parted(canvas, map.second, cell);
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
  const lines = draw("g", {});
  const labels = { queries: [], keys: [] };
  const show = (side, at) => {
    lines.replaceChildren(...linesOf(map, layer, chosen, side, at, left, right, height));
    for (const [name, all] of Object.entries(labels)) all.forEach((label, i) => label.toggleAttribute("data-lit", name === side && i === at));
    if (at !== null) say(summary(map, layer, chosen, side, at));
  };
  const unlocked = () => (state.locked ? show(...state.locked) : show("queries", null));
  for (const [side, x, anchor] of [["queries", left - 6, "end"], ["keys", right + 6, "start"]]) {
    map[side].forEach((token, i) => {
      const label = draw("text", { x, y: height * i + 15, "text-anchor": anchor, tabindex: "0", role: "button" });
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
  }
  svg.append(lines);
  box.append(chips, svg);
  unlocked();
  return box;
}

function linesOf(map, layer, chosen, side, at, left, right, height) {
  const found = [];
  layer.heads.forEach((head, h) => {
    if (!chosen.has(h)) return;
    for (let i = 0; i < map.queries.length; i++) for (let j = 0; j < map.keys.length; j++) {
      if (at !== null && (side === "queries" ? i : j) !== at) continue;
      const weight = weightOf(map, head, i, j);
      if (Math.abs(weight) < 0.02) continue;
      found.push(draw("line", { x1: left, y1: height * i + 11, x2: right, y2: height * j + 11, stroke: COLOURS[h % COLOURS.length], "stroke-width": 2, "stroke-opacity": Math.min(1, Math.abs(weight)) }));
    }
  });
  return found;
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

// Instead of steps that aren't there, a word until they are.
function asked(data, state, update) {
  const box = make("p", {}, "The steps of this head are on their way …");
  const { side, map, layer, head } = state;
  data.ask({ side, map, layer, head }).then(
    (detail) => {
      data.sides[side].details.push(detail);
      if (box.isConnected) update({});
    },
    (error) => { box.textContent = error.message; },
  );
  return box;
}

function detailsOf(data, state) {
  return (data.sides[state.side].details ?? []).filter((one) => one.map === state.map);
}

function drawNeuron(data, state, update, say) {
  const details = detailsOf(data, state);
  const detail = details.find((one) => one.layer === state.layer && one.head === state.head);
  const box = make("div", {});
  if (!detail && data.ask) return asked(data, state, update);
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
  head.raw ??= Uint8Array.from(atob(head.values), (letter) => letter.charCodeAt(0));
  return head.raw;
}

function floats(text) {
  return new Float32Array(Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0)).buffer);
}

function told(map, head, i, j) {
  return `${weightOf(map, head, i, j).toFixed(4)} ± ${(rowScale(head, i)[1] / 2).toFixed(4)}`;
}

function picture(map, head, width, height) {
  const [rows, columns] = [map.queries.length, map.keys.length];
  const canvas = make("canvas", { width: columns, height: rows, style: `width: ${width}px; height: ${height}px` });
  const image = new ImageData(columns, rows);
  for (let i = 0; i < rows; i++) for (let j = 0; j < columns; j++) {
    const weight = weightOf(map, head, i, j);
    const [red, green, blue] = weight < 0 ? [224, 123, 57] : [61, 133, 198];
    image.data.set([red, green, blue, Math.min(255, Math.abs(weight) * 255)], 4 * (i * columns + j));
  }
  canvas.getContext("2d").putImageData(image, 0, 0);
  return canvas;
}

function strip(numbers) {
  const most = Math.max(...numbers.map(Math.abs), 1e-9);
  const canvas = make("canvas", { width: numbers.length, height: 1, style: `width: ${Math.min(240, 4 * numbers.length)}px; height: 12px`, role: "img", "aria-label": "entries of q ∘ k" });
  const image = new ImageData(numbers.length, 1);
  numbers.forEach((x, e) => image.data.set([...(x < 0 ? [224, 123, 57] : [61, 133, 198]), (255 * Math.abs(x)) / most], 4 * e));
  canvas.getContext("2d").putImageData(image, 0, 0);
  return canvas;
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

const quoted = (token) => `“${token}”`;
const shown = (x) => (Number.isFinite(x) ? x.toPrecision(4) : x < 0 ? "−∞" : String(x));
