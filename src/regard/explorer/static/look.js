// Attention, looked at. One module without dependencies; everything happens below one element.
//
// render({model, el}): model.get("data") is what regard.explorer.payload makes. A page may hold
// any number of these; no ids are used, and no text is ever read as HTML.
//
// Where data may change, model.on("change:data", act) is told of it. Where there is someone to ask,
// data.ask({side, map, layer, head}) promises the exact steps of a head. Where data.grows, its last
// token is new, and shown.

const COLOURS = ["#3d85c6", "#e07b39", "#45a567", "#b067b5", "#c9a227", "#7f8c8d", "#c0504d", "#4bacc6"];
const [POSITIVE, NEGATIVE] = [[61, 133, 198], [224, 123, 57]]; // the first two, in numbers
const FAINTEST = 0.02; // weights below have no line
const MOST_LINES = 4000;
const ARROWS = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };

export function render({ model, el }) {
  let data = model.get("data");
  const state = { view: opening(data), side: 0, beside: data.sides.length > 1 ? 1 : null, map: 0, layer: 0, head: 0, shown: null, locked: null, values: 0, pair: 0, picture: 0 };
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
    if (["view", "side", "beside", "map"].some((one) => one in changes)) state.locked = null; // each has its own
    if ("side" in changes || "map" in changes) state.shown = null;
    if ("view" in changes) say("");
    Object.assign(state, changes);
    Object.assign(state, within(data, state));
    if (!VIEWS[state.view].possible(data, state)) state.view = "model";
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
  model.on?.("change:data", () => {
    const before = data.sides.length;
    data = model.get("data");
    section.setAttribute("aria-label", data.title);
    heading.textContent = data.title;
    update(kept(data, state, before));
  });
  return () => root.remove();
}

// What is chosen

// Of a single head there is nothing to choose from.
function opening(data) {
  const heads = data.sides.flatMap((side) => side.maps).flatMap((map) => map.layers).flatMap((layer) => layer.heads);
  return heads.length === 1 ? "matrix" : "model";
}

const current = (data, state) => data.sides[state.side].maps[state.map];

// Other data show what was chosen before, as far as they have it; a side that is new is shown.
function kept(data, state, before) {
  const side = clamp(state.side, data.sides.length);
  const others = [...data.sides.keys()].filter((one) => one !== side);
  const beside = data.sides.length > before ? others[0] : others.includes(state.beside) ? state.beside : null;
  const { map, layer } = within(data, { ...state, side });
  const { layers, queries } = data.sides[side].maps[map];
  const fits = [...(state.shown ?? [])].every((h) => h < layers[layer].heads.length);
  const locked = data.grows && state.view === "heads" ? ["queries", queries.length - 1] : null;
  return { side, beside, locked, shown: fits ? state.shown : null, query: data.grows ? undefined : state.query, pair: 0 };
}

// Another side may have fewer maps, layers and heads.
function within(data, state) {
  const maps = data.sides[state.side].maps;
  const map = clamp(state.map, maps.length);
  const layer = clamp(state.layer, maps[map].layers.length);
  return { map, layer, head: clamp(state.head, maps[map].layers[layer].heads.length) };
}

// Sides of one name are told apart by their texts.
function sideName(data, side) {
  const { name, text } = data.sides[side];
  if (data.sides.filter((one) => one.name === name).length === 1) return name;
  return `${name}: ${text.length > 40 ? `${text.slice(0, 40)}…` : text}`;
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
  const all = data.sides.map((_, side) => side);
  const others = [null, ...all.filter((side) => side !== state.side)];
  const sides = all.length > 1 ? [
    choice("of", all.map((side) => sideName(data, side)), state.side, (side) => update({ side, beside: side === state.beside ? state.side : state.beside, pair: 0 })),
    choice("beside", others.map((side) => (side === null ? "nothing" : sideName(data, side))), others.indexOf(state.beside), (chosen) => update({ beside: others[chosen], pair: 0 })),
  ] : [];
  const names = data.sides[state.side].maps.map((map) => map.name);
  const maps = names.length > 1 ? [choice("attention", names, state.map, (map) => update({ map, layer: 0, head: 0 }))] : [];
  const map = current(data, state);
  const layer = choice("layer", map.layers.map((one) => one.name), state.layer, (layer) => update({ layer }));
  const head = choice("head", map.layers[state.layer].heads.map((one) => one.name), state.head, (head) => update({ head }));
  const values = hasNorms(map) ? [choice("values", ["weights", "value-weighted norms"], state.values, (values) => update({ values }))] : [];
  const own = { model: [], heads: [layer], matrix: [layer, head, ...values], neuron: [layer, head], word: [layer, head], positions: [] };
  return [...views, ...sides, ...maps, ...own[state.view]];
}

// The views

const VIEWS = {
  model: { title: "Model", possible: () => true, draw: drawModel },
  heads: { title: "Heads", possible: () => true, draw: drawHeads },
  matrix: { title: "Matrix", possible: () => true, draw: drawMatrix },
  neuron: { title: "Step by step", possible: (data, state) => Boolean(data.ask) || detailsOf(data, state).length > 0, draw: drawNeuron },
  word: { title: "Word", possible: (data, state) => comparedIn(data, state) !== null, draw: drawWord },
  positions: { title: "Positions", possible: (data, state) => (current(data, state).positions ?? []).length > 0, draw: drawPositions },
};

// Sides beside one another
//
// A difference is a map too, and so are norms: their heads have a value for each query and key, and
// a bound for what the bytes of weights leave open, in place of bytes.

// The map that is chosen; that of the other side, if one is to stand beside it; what they differ by,
// if they are of one shape.
function mapsOf(data, state, kind = (map) => map) {
  const map = current(data, state);
  const other = state.beside === null ? null : data.sides[state.beside].maps.find((one) => one.name === map.name);
  const one = { name: sideName(data, state.side), map: kind(map) };
  if (!other) return [one];
  const two = { name: sideName(data, state.beside), map: kind(other) };
  return alike(map, other) ? [one, two, { name: "difference", map: differenceOf(one, two) }] : [one, two];
}

function alike(map, other) {
  const shape = ({ queries, keys, layers }) => [queries.length, keys.length, ...layers.map((layer) => layer.heads.length)].join();
  return shape(map) === shape(other);
}

function differenceOf(one, two) {
  const kept = (one.map.differences ??= new Map());
  if (!kept.has(two.map)) kept.set(two.map, computed(one.map, (map, head, l, h) => ofDifference(one, two, head, two.map.layers[l].heads[h])));
  const both = (tokens, others) => tokens.map((token, i) => (token === others[i] ? token : `${token} ∣ ${others[i]}`));
  const words = { queries: both(one.map.queries, two.map.queries), keys: both(one.map.keys, two.map.keys) };
  return Object.assign(kept.get(two.map), words, { signed: true });
}

function ofDifference(one, two, head, other) {
  const value = (i, j) => weightOf(one.map, head, i, j) - weightOf(two.map, other, i, j);
  const off = (i, j) => halfOf(head, i, j) + halfOf(other, i, j);
  const told = (i, j) => `${rounded(weightOf(one.map, head, i, j), halfOf(head, i, j))}; ${two.name}: ${rounded(weightOf(two.map, other, i, j), halfOf(other, i, j))}; difference: ${rounded(value(i, j), off(i, j))}`;
  const same = head.blocks && other.blocks && one.map.second === two.map.second;
  return { value, off, told, blocks: same ? head.blocks.map((row, a) => row.map((share, b) => share - other.blocks[a][b])) : undefined };
}

// How long what each key adds to the output is: ‖A[i, j] v_j W_O‖ (Kobayashi et al., 2020).
function normsOf(map) {
  return (map.norms ??= computed(map, (_, head) => {
    const size = (i, j) => Math.abs(weightOf(map, head, i, j));
    const length = (j) => weightOf(map, head.lengths, 0, j);
    return {
      value: (i, j) => size(i, j) * length(j),
      off: (i, j) => halfOf(head, i, j) * length(j) + (size(i, j) + halfOf(head, i, j)) * halfOf(head.lengths, 0, j),
      blocks: undefined,
    };
  }));
}

const hasNorms = (map) => map.layers.every((layer) => layer.heads.every((head) => head.lengths));

// A map of the same words, whose heads have values that are computed from those of another.
function computed(map, of) {
  const heads = (layer, l) => layer.heads.map((head, h) => ({ name: head.name, ...of(map, head, l, h) }));
  return { ...map, layers: map.layers.map((layer, l) => ({ name: layer.name, heads: heads(layer, l) })) };
}

// Each under its name, side by side where there is room.
function framed(maps, content) {
  if (maps.length === 1) return content(maps[0].map, "");
  const box = make("div", { class: "sides" });
  maps.forEach(({ name, map }, place) => {
    const figure = make("figure", {}, make("figcaption", {}, name));
    figure.append(content(map, place ? `, ${name}` : ""));
    box.append(figure);
  });
  return box;
}

// Where sides are of one shape, what one head is told to do is told of the other too.
const telling = (maps, map) => maps.find((one) => one.map.signed)?.map ?? map;

function drawModel(data, state, update, say) {
  const maps = mapsOf(data, state);
  return framed(maps, (map, of) => drawGrid(map, of, Math.floor(900 / maps.length), state, update, say));
}

function drawGrid(map, of, width, state, update, say) {
  const heads = map.layers[0].heads.length;
  const grid = make("div", { class: "grid", style: `grid-template-columns: auto repeat(${heads}, auto)` });
  grid.append(make("span", { class: "label" }, "layer"));
  for (const head of map.layers[0].heads) grid.append(make("span", { class: "label" }, width < 900 ? head.name : `head ${head.name}`));
  const size = Math.max(36, Math.min(96, 4 * map.keys.length, Math.floor(width / heads)));
  map.layers.forEach((layer, l) => {
    grid.append(make("span", { class: "label" }, layer.name));
    layer.heads.forEach((head, h) => {
      const name = `layer ${layer.name}, head ${head.name}`;
      const open = make("button", { "aria-label": `open ${name}${of}` }, picture(map, head, size, size));
      open.addEventListener("click", () => update({ view: "matrix", layer: l, head: h }));
      const tell = () => say(map.signed ? `${name}: the strongest colour is a difference of ${mostOf(map, head).toFixed(4)}` : name);
      open.addEventListener("mouseenter", tell);
      open.addEventListener("focus", () => { Object.assign(state, { layer: l, head: h }); tell(); });
      grid.append(open);
    });
  });
  roving([...grid.querySelectorAll("button")], heads, state.layer * heads + state.head);
  return grid;
}

function drawMatrix(data, state, update, say) {
  const norms = state.values === 1 && mapsOf(data, state).slice(0, 2).every(({ map }) => hasNorms(map));
  const maps = mapsOf(data, state, norms ? normsOf : undefined);
  return framed(maps, (map, of) => drawCells(map, of, telling(maps, map), maps.length > 1 ? 420 : 720, state, say));
}

function drawCells(map, of, told, room, state, say) {
  const head = map.layers[state.layer]?.heads[state.head];
  if (!head) return make("p", {}, "There is no such head here.");
  const tell = (i, j) => looksAt(told, told.layers[state.layer].heads[state.head], i, j);
  const [rows, columns] = [map.queries.length, map.keys.length];
  const cell = Math.max(4, Math.min(22, Math.floor(room / Math.max(rows, columns))));
  const canvas = picture(map, head, columns * cell, rows * cell);
  canvas.setAttribute("role", "application");
  canvas.setAttribute("aria-label", `weights of layer ${map.layers[state.layer].name}, head ${head.name}; rows are queries${of}`);
  const mark = cells(canvas, [rows, columns], state, tell, say);
  const frame = parted(canvas, map.second, cell);
  frame.append(mark);
  const box = make("div", { class: "grid", style: "grid-template-columns: auto auto; align-items: start" });
  const names = (tokens, style) => tokens.map((token) => make("div", { class: "token", style }, token));
  if (cell >= 11) {
    const left = make("div", { style: "text-align: right; padding-right: 4px" });
    left.append(...names(map.queries, `height: ${cell}px; line-height: ${cell}px; font-size: ${Math.min(cell, 13)}px`));
    const below = make("div", { style: `display: flex; height: 7em` });
    below.append(...names(map.keys, `width: ${cell}px; line-height: ${cell}px; writing-mode: vertical-rl; font-size: ${Math.min(cell, 13)}px`));
    box.append(left, frame, make("span", {}), below);
  } else box.append(make("span", {}), frame);
  if (head.blocks) box.append(make("span", {}), sharesOf(head.blocks, map.signed));
  return box;
}

// How much of its weight each of two texts gives to itself and to the other.
function sharesOf(shares, signed) {
  const table = make("table", { "aria-label": "shares of weight between the texts", style: "justify-self: start" });
  shares.forEach((row, a) => {
    const line = make("tr", {});
    row.forEach((share, b) => line.append(make("th", { scope: "row" }, `${"AB"[a]}→${"AB"[b]}`), make("td", {}, `${signed && share > 0 ? "+" : ""}${share.toFixed(3)}`)));
    table.append(line);
  });
  return table;
}

// Of two texts read as one, lines between the four blocks.
function parted(canvas, second, cell) {
  const frame = make("div", { style: "position: relative; width: max-content; line-height: 0" }, canvas);
  if (second) for (const [edge, other] of [["left", "top: 0; bottom: 0; border-left"], ["top", "left: 0; right: 0; border-top"]])
    frame.append(make("div", { style: `position: absolute; pointer-events: none; ${edge}: ${second * cell}px; ${other}: 1px dashed currentColor` }));
  if (second && cell >= 11) for (const [a, b] of [[0, 0], [0, 1], [1, 0], [1, 1]])
    frame.append(make("span", { class: "block", style: `left: ${b * second * cell}px; top: ${a * second * cell}px` }, `${"AB"[a]}→${"AB"[b]}`));
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
  const [maps, linked] = [mapsOf(data, state), []];
  box.append(chips, framed(maps, (one) => {
    const together = maps.length === 2 ? [] : linked; // what stands at the same place is shown together
    return one.layers[state.layer] ? drawLines(one, state, chosen, together, say) : make("p", {}, "There is no such layer here.");
  }));
  return box;
}

// Words left and right, with lines between them. `linked` are the functions that show a word.
function drawLines(map, state, chosen, linked, say) {
  const layer = map.layers[state.layer];
  const box = make("div", {});
  const [height, left, right] = [20, 170, 430];
  const svg = draw("svg", { width: right + 170, height: height * Math.max(map.queries.length, map.keys.length) + 8, role: "group", "aria-label": "queries left, keys right" });
  const [resting, lines] = [draw("g", {}), draw("g", {})]; // of all words, and of one
  const lined = (weights) => linesOf(weights, map, layer, say, [left, right, height]);
  const all = weightsOf(map, layer, chosen, "queries", null);
  resting.append(...lined(all));
  const labels = { queries: [], keys: [] };
  linked.push((side, at) => {
    resting.setAttribute("display", at === null ? "inline" : "none");
    lines.replaceChildren(...(at === null ? [] : lined(weightsOf(map, layer, chosen, side, at))));
    for (const [name, all] of Object.entries(labels)) all.forEach((label, i) => {
      label.toggleAttribute("data-lit", name === side && i === at);
      const locked = String(state.locked !== null && state.locked[0] === name && state.locked[1] === i);
      if (label.getAttribute("aria-pressed") !== locked) label.setAttribute("aria-pressed", locked);
    });
  });
  const show = (side, at) => {
    for (const one of linked) one(side, at);
    if (at !== null) say(summary(map, layer, chosen, side, at));
  };
  const unlocked = () => (state.locked && state.locked[1] < map[state.locked[0]].length ? show(...state.locked) : show("queries", null));
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
  if (all.length > MOST_LINES) box.append(make("p", { class: "said" }, `The strongest ${MOST_LINES} of ${all.length} lines are drawn. Point at a word for its own.`));
  box.append(svg);
  unlocked();
  return box;
}

// No more lines than a browser draws at once.
function linesOf(weights, map, layer, say, [left, right, height]) {
  return weights.slice(0, MOST_LINES).map(([weight, h, i, j]) => {
    const line = draw("line", { x1: left, y1: height * i + 11, x2: right, y2: height * j + 11, stroke: COLOURS[map.signed ? Number(weight < 0) : h % COLOURS.length], "stroke-width": 2, "stroke-opacity": Math.min(1, Math.abs(weight)) });
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
  const most = sums.sort((a, b) => (map.signed ? Math.abs(b[0]) - Math.abs(a[0]) : b[0] - a[0])).slice(0, 3);
  const tokens = side === "queries" ? map.keys : map.queries;
  const names = most.map(([weight, i]) => `${quoted(tokens[i])} ${weight.toFixed(2)}`).join(", ");
  const verb = map.signed ? "differs most at" : side === "queries" ? "looks most at" : "is looked at most by";
  return `${quoted(map[side][at])} ${verb} ${names} (mean of ${chosen.size} heads)`;
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
  if (detail.implied) box.append(make("p", {}, "This mechanism has no score for each key: the weights are those that it implies."));
  const vectors = (text, n) => rowsOf(floats(text), n);
  const said = (name, numbers) => say(`${name}: ${numbers.map((x) => x.toFixed(2)).join(" ")}`);
  const turned = detail.before.q !== undefined;
  const [q, k, v] = [vectors(detail.q, map.queries.length)[query], vectors(detail.k, map.keys.length), vectors(detail.v, map.keys.length)];
  const outside = [
    ...(turned ? [["q", vectors(detail.before.q, map.queries.length)[query]]] : []),
    [turned ? "q, turned" : "q", q],
    ["output: Σ weight · v", vectors(detail.output, map.queries.length)[query]],
  ];
  const before = turned ? [["k", vectors(detail.before.k, map.keys.length)]] : [];
  const columns = [...before, [turned ? "k, turned" : "k", k], ["q ∘ k", k.map((one) => one.map((x, e) => q[e] * x))]];
  const steps = stepsOf(detail, query, map, columns[columns.length - 1][1]);
  const top = make("thead", {}, make("tr", {}));
  top.firstChild.append(...["key", ...columns.map(([name]) => name), ...detail.steps.map((step) => step.name), "v"].map((name) => make("th", { scope: "col" }, name)));
  const cellOf = (name, numbers) => {
    const cell = make("td", {}, strip(numbers, name));
    cell.addEventListener("mouseenter", () => said(name, numbers));
    return cell;
  };
  const body = make("tbody", {});
  map.keys.forEach((token, j) => {
    const row = make("tr", {}, make("th", { scope: "row", class: "token" }, `${j}: ${token}`));
    for (const [name, all] of columns) row.append(cellOf(`${name} of ${quoted(token)}`, all[j]));
    for (const values of steps) row.append(make("td", {}, shown(values[j])));
    row.append(cellOf(`v of ${quoted(token)}`, v[j]));
    body.append(row);
  });
  const around = make("table", { "aria-label": "vectors of the query" });
  for (const [name, numbers] of outside) {
    const row = make("tr", {}, make("th", { scope: "row" }, name));
    row.append(cellOf(`${name} of ${quoted(map.queries[query])}`, numbers));
    around.append(row);
  }
  const table = make("table", {}, top);
  table.append(body);
  box.append(around, table);
  return box;
}

// The numbers of a query at each step: given, or hidden where bits say so, or the sum of q ∘ k.
function stepsOf(detail, query, map, products) {
  const found = [];
  for (const { values, hidden } of detail.steps) {
    if (values) found.push(rowsOf(floats(values), map.queries.length)[query]);
    else if (hidden) {
      const bits = bytes(hidden);
      const isHidden = (at) => (bits[at >> 3] >> (at & 7)) & 1;
      found.push(found[found.length - 1].map((x, j) => (isHidden(query * map.keys.length + j) ? -Infinity : x)));
    } else found.push(products.map((one) => one.reduce((sum, x) => sum + x, 0)));
  }
  return found;
}

const rowsOf = (numbers, n) => Array.from({ length: n }, (_, i) => Array.from(numbers.subarray((i * numbers.length) / n, ((i + 1) * numbers.length) / n)));

// One word in two contexts

// What was compared of the two sides that are shown; `here` and `there` are their places in it.
function comparedIn(data, state) {
  for (const one of data.words ?? []) {
    const [here, there] = [one.sides.indexOf(state.side), one.sides.indexOf(state.beside)];
    if (here >= 0 && there >= 0 && one.kinds[here] === state.map) return { one, here, there };
  }
  return null;
}

function drawWord(data, state, update, say) {
  const compared = comparedIn(data, state);
  const { one, here, there } = compared;
  const [map, other] = [here, there].map((at) => data.sides[one.sides[at]].maps[one.kinds[at]]);
  state.pair = clamp(state.pair, one.pairs.length);
  const pair = one.pairs[state.pair];
  const box = make("div", {});
  const texts = [[state.side, map, here], [state.beside, other, there]];
  for (const [side, { queries }, at] of texts) box.append(drawChoice(sideName(data, side), queries, one.pairs, at, state.pair, (pair) => update({ pair })));
  const word = quoted(map.queries[pair[here]]);
  const where = (l, h) => `layer ${map.layers[l].name}, head ${map.layers[l].heads[h].name}`;
  const grids = make("div", { class: "sides" });
  const [cosines, distances] = [floats(one.cosines), floats(one.distances)];
  const heads = map.layers[0].heads.length;
  const at = (l, h, part) => ((state.pair * map.layers.length + l) * heads + h) * 3 + part;
  ["q", "k", "v"].forEach((name, part) => {
    const told = (l, h) => `${name} of ${word} in ${where(l, h)}: cosine ${cosines[at(l, h, part)].toFixed(4)}, length of the difference ${shown(distances[at(l, h, part)])}`;
    grids.append(drawCosines(name, map, state, (l, h) => cosines[at(l, h, part)], (l, h) => say(told(l, h)), update));
  });
  box.append(grids, drawVectors(one, [here, there], map, state, [...texts.map(([side]) => sideName(data, side)), word], say));
  const chosen = ["q", "k", "v"].map((name, part) => `${cosines[at(state.layer, state.head, part)].toFixed(4)} of ${name}`);
  say(`${word} in ${where(state.layer, state.head)}: cosine ${chosen.join(", ")}`);
  return box;
}

// A text whose words that the other one has too can be chosen.
function drawChoice(name, tokens, pairs, at, chosen, choose) {
  const line = make("p", { class: "words", role: "group", "aria-label": `the word in ${name}` }, make("span", { class: "label" }, name));
  tokens.forEach((token, i) => {
    const fitting = pairs.findIndex((pair) => pair[at] === i && pair[1 - at] === pairs[chosen][1 - at]);
    const any = fitting >= 0 ? fitting : pairs.findIndex((pair) => pair[at] === i);
    if (any < 0) line.append(make("span", { class: "token" }, token));
    else {
      const button = pressed(token, pairs[chosen][at] === i, () => choose(any));
      button.setAttribute("aria-label", `${quoted(token)}, position ${i} in ${name}`);
      line.append(button);
    }
  });
  return line;
}

// A number for each layer and head, in the colour of its sign.
function drawCosines(name, map, state, value, tell, update) {
  const table = make("table", { class: "cosines" }, make("caption", {}, `cosine of ${name}`));
  const top = make("tr", {}, make("th", { scope: "col" }, "layer"));
  for (const head of map.layers[0].heads) top.append(make("th", { scope: "col", "aria-label": `head ${head.name}` }, head.name));
  table.append(make("thead", {}, top));
  const body = make("tbody", {});
  map.layers.forEach((layer, l) => {
    const row = make("tr", {}, make("th", { scope: "row" }, layer.name));
    layer.heads.forEach((_, h) => {
      const cosine = value(l, h);
      const share = Math.round(Math.abs(cosine) * 45);
      const cell = make("td", { style: `background: color-mix(in srgb, ${COLOURS[Number(cosine < 0)]} ${share}%, transparent)` }, cosine.toFixed(2));
      cell.toggleAttribute("data-chosen", l === state.layer && h === state.head);
      cell.addEventListener("mouseenter", () => tell(l, h));
      cell.addEventListener("click", () => update({ layer: l, head: h }));
      row.append(cell);
    });
    body.append(row);
  });
  table.append(body);
  return table;
}

// The word's vectors in the chosen head: on either side, and what they differ by.
function drawVectors(one, sides, map, state, [name, other, word], say) {
  if (state.pair !== 0) return make("p", { class: "said" }, "Vectors are kept of one word: name this one as the word to compare.");
  const layer = map.layers[state.layer];
  const table = make("table", {}, make("caption", {}, `${word} in layer ${layer.name}, head ${layer.heads[state.head].name}`));
  const top = make("tr", {});
  top.append(...["vector", name, other, "difference"].map((title) => make("th", { scope: "col" }, title)));
  table.append(make("thead", {}, top));
  const body = make("tbody", {});
  const heads = map.layers.length * layer.heads.length;
  ["q", "k", "v"].forEach((part, p) => {
    const [first, second] = sides.map((side) => rowsOf(floats(one.vectors[side][p]), heads)[state.layer * layer.heads.length + state.head]);
    const difference = first.map((x, e) => x - second[e]);
    const most = Math.max(...[...first, ...second].map(Math.abs));
    const row = make("tr", {}, make("th", { scope: "row" }, part));
    for (const [title, numbers] of [[name, first], [other, second], ["difference", difference]]) {
      const cell = make("td", {}, strip(numbers, `${part}, ${title}`, most));
      cell.addEventListener("mouseenter", () => say(`${part}, ${title}: ${numbers.map((x) => x.toFixed(2)).join(" ")}`));
      row.append(cell);
    }
    body.append(row);
  });
  table.append(body);
  return table;
}

// Positions

function drawPositions(data, state, update, say) {
  const map = current(data, state);
  const box = make("div", {});
  for (const picture of map.positions) {
    const panels = make("div", { class: "sides" });
    const [rows, columns] = picture.shape;
    const most = Math.max(...picture.panels.map((panel) => largest(rows, columns, (i, j) => weightOf({ keys: { length: columns } }, panel, i, j))));
    for (const panel of picture.panels) panels.append(drawPanel(picture, panel, most, map, say));
    box.append(make("h3", {}, `${picture.name}: ${picture.rows} × ${picture.columns}; the strongest colour is ${shown(most)}`), panels);
  }
  return box;
}

function drawPanel(picture, panel, most, map, say) {
  const [rows, columns] = picture.shape;
  const value = (i, j) => weightOf({ keys: { length: columns } }, panel, i, j);
  const size = (n, room) => n * Math.max(1, Math.min(12, Math.floor(room / n)));
  const canvas = drawn(imageOfValues(rows, columns, value, most), size(columns, 360), size(rows, 360));
  canvas.setAttribute("role", "application");
  canvas.setAttribute("aria-label", `${picture.name}: ${panel.name}`);
  const words = { query: map.queries, key: map.keys, position: map.queries };
  const place = (kind, i) => `${kind} ${i}${words[kind] ? ` ${quoted(words[kind][i])}` : ""}`;
  const tell = (i, j) => `${panel.name}, ${place(picture.rows, picture.first + i)}, ${place(picture.columns, j)}: ${rounded(value(i, j), halfOf(panel, i, j))}`;
  const frame = make("div", { style: "position: relative; width: max-content; line-height: 0" }, canvas);
  frame.append(cells(canvas, [rows, columns], { locked: null }, tell, say));
  const figure = make("figure", {}, make("figcaption", {}, panel.name));
  figure.append(frame);
  return figure;
}

// Weights

// A weight is low + step · byte of its row; the step of a row is (high − low) / 255.
function weightOf(map, head, i, j) {
  if (head.value) return head.value(i, j);
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

// Half a step of a byte.
const halfOf = (head, i, j) => (head.off ? head.off(i, j) : rowScale(head, i)[1] / 2);

function told(map, head, i, j) {
  return head.told ? head.told(i, j) : rounded(weightOf(map, head, i, j), halfOf(head, i, j));
}

// What was computed lies within what is told: half a step is rounded up, and has room for the
// rounding of the weight itself.
function rounded(value, half) {
  const digits = half > 0 ? Math.min(Math.max(4, 1 - Math.floor(Math.log10(half))), 20) : 4;
  const unit = 10 ** -digits;
  const off = half > 0 ? Math.ceil(half / unit + 0.5) * unit : 0;
  return `${value.toFixed(digits)} ± ${off.toFixed(digits)}`;
}

function looksAt(map, head, i, j) {
  return `${quoted(map.queries[i])} (${i}) looks at ${quoted(map.keys[j])} (${j}): ${told(map, head, i, j)}`;
}

function picture(map, head, width, height) {
  const [rows, columns] = [map.queries.length, map.keys.length];
  head.image ??= head.value ? imageOfValues(rows, columns, head.value, mostOf(map, head)) : imageOf(head, rows, columns);
  return drawn(head.image, width, height);
}

function drawn(image, width, height) {
  const canvas = make("canvas", { width: image.width, height: image.height, style: `width: ${width}px; height: ${height}px` });
  canvas.getContext("2d").putImageData(image, 0, 0);
  return canvas;
}

// The size of the strongest colour: 1 for weights, the largest of what is computed from them.
const mostOf = (map, head) => (head.most ??= head.value ? largest(map.queries.length, map.keys.length, head.value) : 1);

function largest(rows, columns, value) {
  let most = 1e-9;
  for (let i = 0; i < rows; i++) for (let j = 0; j < columns; j++) most = Math.max(most, Math.abs(value(i, j)));
  return most;
}

function imageOfValues(rows, columns, value, most) {
  const image = new ImageData(columns, rows);
  for (let i = 0; i < rows; i++) for (let j = 0; j < columns; j++) dye(image, i * columns + j, value(i, j) / most);
  return image;
}

// A pixel of a share of the strongest colour.
function dye(image, at, share) {
  const [red, green, blue] = share < 0 ? NEGATIVE : POSITIVE;
  image.data[4 * at] = red;
  image.data[4 * at + 1] = green;
  image.data[4 * at + 2] = blue;
  image.data[4 * at + 3] = Math.abs(share) * 255;
}

// A pixel a weight: its colour is the sign, its opacity the size. Kept, for thumbnails come back.
function imageOf(head, rows, columns) {
  const [image, raw] = [new ImageData(columns, rows), bytesOf(head)];
  for (let i = 0; i < rows; i++) {
    const [low, step] = rowScale(head, i);
    for (let at = i * columns; at < (i + 1) * columns; at++) {
      dye(image, at, low + step * raw[at]);
    }
  }
  return image;
}

function strip(numbers, name, strongest = 0) {
  const most = strongest || Math.max(...numbers.map(Math.abs), 1e-9);
  const canvas = drawn(imageOfValues(1, numbers.length, (_, e) => numbers[e], most), Math.min(160, 4 * numbers.length), 12);
  canvas.setAttribute("role", "img");
  canvas.setAttribute("aria-label", `entries of ${name}`);
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
