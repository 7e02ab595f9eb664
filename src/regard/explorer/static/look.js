// Interactive attention views: one module without dependencies; everything happens below one element.
//
// render({model, el}): model.get("data") is the result of regard.explorer.serialize. A page may hold any
// number of views; they use no ids, and never parse text as HTML.
//
// If the data may change, model.on("change:data", act) reports it. data.ask({panel, map, layer, head}),
// if present, promises the exact scores of a head. With data.grows, the last token is new, and shown.
// data.opens, if present, is the view that opens, with its map, layer and head; data.view is a view to
// change to, also when the data change.

const COLORS = ["#3d85c6", "#e07b39", "#45a567", "#b067b5", "#c9a227", "#c0392b", "#17a2a2", "#7f8c8d", "#8c6239", "#e377c2", "#7a8f2a", "#5a5fcf"];
const [POSITIVE, NEGATIVE] = [[61, 133, 198], [224, 123, 57]]; // the first two, in numbers
const FAINTEST = 0.02; // weights below have no line
const MOST_LINES = 4000;
const [SMALLEST, EDGE, GAP] = [28, 44, 26]; // pixels: of a thumbnail, the label beside a matrix, between parts
const NARROW = 640; // pixels of a view in which parts stand below each other
// How strong a color is: from a share of the largest possible weight to an opacity. The square root
// shows uniform attention to many keys, whose weights are all small.
const CONTRASTS = { "square root": Math.sqrt, linear: (share) => share, "linear, up to the largest": (share) => share };
const [LINEAR, LARGEST] = [1, 2];
const ARROWS = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };

export function render({ model, el }) {
  let data = model.get("data");
  const state = { panel: 0, beside: data.panels.length > 1 ? 1 : null, map: 0, layer: 0, head: 0, shown: null, locked: null, values: 0, contrast: 0, pair: 0, ...data.opens, view: opening(data) };
  state.locked = newest(data, state.view, current(data, state));
  const heading = make("h2", {}, data.title);
  const bar = make("div", { class: "bar" });
  const view = make("div", { class: "view", tabindex: "0", role: "group", "aria-label": "attention" });
  const said = make("p", { class: "said", role: "status" });
  const predicted = make("p", { class: "predicted" });
  const section = make("section", { "aria-label": data.title }, heading, predicted, bar, view, said);
  const root = make("div", { class: "regard-look" }, section);
  el.append(root);
  const say = (text) => { if (said.textContent !== text) said.textContent = text; };
  quietForMice(section, said);

  function update(changes) {
    if (["view", "panel", "beside", "map"].some((one) => one in changes)) state.locked = null; // each has its own
    if ("panel" in changes || "map" in changes) state.shown = null;
    if ("view" in changes) say("");
    Object.assign(state, changes);
    Object.assign(state, within(data, state), { space: (view.clientWidth || 960) - 32 });
    if (!VIEWS[state.view].possible(data, state)) state.view = "model";
    if ("view" in changes) view.scrollTo(0, 0);
    predicted.textContent = predictionOf(data);
    keepingFocus(section, () => {
      bar.replaceChildren(...controls(data, state, update));
      view.replaceChildren(...missingBeside(data, state), VIEWS[state.view].draw(data, state, update, say));
    });
  }
  view.addEventListener("keydown", (event) => {
    const change = steered(event.key, data, state);
    if (change) { event.preventDefault(); update(change); }
  });
  update({});
  let width = section.clientWidth;
  // In the next frame: drawing within the observer's call would resize what it observes.
  const resized = new ResizeObserver(() => requestAnimationFrame(() => {
    if (section.clientWidth === width) return;
    width = section.clientWidth;
    update({});
  }));
  resized.observe(section);
  model.on?.("change:data", () => {
    const before = data.panels.length;
    data = model.get("data");
    section.setAttribute("aria-label", data.title);
    heading.textContent = data.title;
    update(kept(data, state, before));
  });
  return () => { resized.disconnect(); root.remove(); };
}

// The most probable next tokens or labels, of each panel that has some.
function predictionOf(data) {
  const found = data.panels.flatMap((panel, i) => (panel.prediction ? [[panel.prediction, i]] : []));
  const of = (i) => (data.panels.length > 1 ? `${panelName(data, i)}, ` : "");
  return found.map(([{ kind, candidates }, i]) => `${of(i)}${kind}: ${candidates.map(([name, p]) => `${quoted(name)} ${p.toFixed(3)}`).join(", ")}`).join(" · ");
}

// What is chosen

// A single head opens as a matrix, unless a view is named.
function opening(data) {
  const named = data.view ?? data.opens?.view;
  if (named) return named;
  const heads = data.panels.flatMap((panel) => panel.maps).flatMap((map) => map.layers).flatMap((layer) => layer.heads);
  return heads.length === 1 ? "matrix" : "model";
}

const current = (data, state) => data.panels[state.panel].maps[state.map];

// The token that "Heads" shows at first: the newest one, if there is one.
const newest = (data, view, { queries }) => (data.grows && view === "heads" ? ["queries", queries.length - 1] : null);

// New data keep the selection as far as possible; a new panel is shown.
function kept(data, state, before) {
  const panel = clamp(state.panel, data.panels.length);
  const others = [...data.panels.keys()].filter((one) => one !== panel);
  const beside = data.panels.length > before ? others[0] : others.includes(state.beside) ? state.beside : null;
  const { map, layer } = within(data, { ...state, panel });
  const chosen = data.panels[panel].maps[map];
  const view = data.view ?? state.view;
  const fits = [...(state.shown ?? [])].every((h) => h < chosen.layers[layer].heads.length);
  const locked = newest(data, view, chosen);
  return { ...(view !== state.view && { view }), panel, beside, locked, shown: fits ? state.shown : null, query: data.grows ? undefined : state.query, pair: 0 };
}

// Another panel may have fewer maps, layers and heads.
function within(data, state) {
  const maps = data.panels[state.panel].maps;
  const map = clamp(state.map, maps.length);
  const layer = clamp(state.layer, maps[map].layers.length);
  return { map, layer, head: clamp(state.head, maps[map].layers[layer].heads.length) };
}

const shortened = (text) => (text.length > 40 ? `${text.slice(0, 40)}…` : text);

// Panels of one name are distinguished by their texts, and by numbers where these begin alike.
function panelName(data, panel) {
  const { name, text } = data.panels[panel];
  const same = [...data.panels.keys()].filter((one) => data.panels[one].name === name);
  if (same.length === 1) return name;
  const alike = same.filter((one) => shortened(data.panels[one].text) === shortened(text));
  return `${name}${alike.length > 1 ? ` (${alike.indexOf(panel) + 1})` : ""}: ${shortened(text)}`;
}

function steered(key, data, state) {
  if (key === "Escape") return state.locked ? { locked: null } : { view: state.view === "matrix" ? "model" : state.view };
  const map = current(data, state);
  const [layers, heads] = [map.layers.length, mostHeads(map)];
  const by = ARROWS[key];
  if (!by || ["step by step", "positions"].includes(state.view)) return null;
  return { layer: clamp(state.layer + by[0], layers), head: clamp(state.head + by[1], heads) };
}

function controls(data, state, update) {
  const views = Object.entries(VIEWS)
    .filter(([, one]) => one.possible(data, state))
    .map(([name, one]) => pressed(one.title, state.view === name, () => update({ view: name })));
  const all = data.panels.map((_, panel) => panel);
  const others = [null, ...all.filter((panel) => panel !== state.panel)];
  const panels = all.length > 1 ? [
    choice("of", all.map((panel) => panelName(data, panel)), state.panel, (panel) => update({ panel, beside: panel === state.beside ? state.panel : state.beside, pair: 0 })),
    choice("beside", others.map((panel) => (panel === null ? "nothing" : panelName(data, panel))), others.indexOf(state.beside), (chosen) => update({ beside: others[chosen], pair: 0 })),
  ] : [];
  const names = data.panels[state.panel].maps.map((map) => map.name);
  const maps = names.length > 1 ? [choice("attention", names, state.map, (map) => update({ map, layer: 0, head: 0 }))] : [];
  const map = current(data, state);
  const layer = choice("layer", map.layers.map((one) => one.name), state.layer, (layer) => update({ layer }));
  const head = choice("head", map.layers[state.layer].heads.map((one) => one.name), state.head, (head) => update({ head }));
  const values = haveNorms(data, state) ? [choice("values", ["weights", "value-weighted norms"], state.values, (values) => update({ values }))] : [];
  const contrast = choice("contrast", Object.keys(CONTRASTS), state.contrast, (contrast) => update({ contrast }));
  const own = { model: [contrast], heads: [layer], matrix: [layer, head, ...values, contrast], "step by step": [layer, head], word: [layer, head], positions: [] };
  return [...views, ...panels, ...maps, ...own[state.view]];
}

// The views

const VIEWS = {
  model: { title: "Model", possible: () => true, draw: drawModel },
  heads: { title: "Heads", possible: () => true, draw: drawHeads },
  matrix: { title: "Matrix", possible: () => true, draw: drawMatrix },
  "step by step": { title: "Step by step", possible: (data, state) => Boolean(data.ask) || detailsOf(data, state).length > 0, draw: drawSteps },
  word: { title: "Word", possible: (data, state) => comparedIn(data, state) !== null, draw: drawWord },
  positions: { title: "Positions", possible: (data, state) => (current(data, state).positions ?? []).length > 0, draw: drawPositions },
};

// Panels side by side
//
// A difference is a map too, and so are norms: their heads have a value for each query and key, and
// a bound for what the bytes of weights leave open, in place of bytes.

// The map that is chosen; that of the other panel, if one is to stand beside it; what they differ by,
// if they are of one shape.
function mapsOf(data, state, kind = (map) => map) {
  const map = current(data, state);
  const other = state.beside === null ? null : data.panels[state.beside].maps.find((one) => one.name === map.name);
  const one = { name: panelName(data, state.panel), map: kind(map) };
  if (!other) return [one];
  const two = { name: panelName(data, state.beside), map: kind(other) };
  return alike(map, other) ? [one, two, { name: "difference", map: differenceOf(one, two) }] : [one, two];
}

// A message if the panel beside lacks the chosen kind of attention.
function missingBeside(data, state) {
  const { name } = current(data, state);
  if (state.beside === null || data.panels[state.beside].maps.some((map) => map.name === name)) return [];
  return [make("p", {}, `${panelName(data, state.beside)} has no attention of this kind: ${name}.`)];
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
  const valueText = (i, j) => `${rounded(weightOf(one.map, head, i, j), halfOf(head, i, j))}; ${two.name}: ${rounded(weightOf(two.map, other, i, j), halfOf(other, i, j))}; difference: ${rounded(value(i, j), off(i, j))}`;
  const same = head.blocks && other.blocks && one.map.second === two.map.second;
  return { value, off, valueText, blocks: same ? head.blocks.map((row, a) => row.map((share, b) => share - other.blocks[a][b])) : undefined };
}

// Value-weighted norms: ‖A[i, j] v_j W_O‖ (Kobayashi et al., 2020).
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

const haveNorms = (data, state) =>
  mapsOf(data, state).slice(0, 2).every(({ map }) => map.layers.every((layer) => layer.heads.every((head) => head.lengths)));

// A map of the same words, whose heads have values that are computed from those of another.
function computed(map, of) {
  const heads = (layer, l) => layer.heads.map((head, h) => ({ name: head.name, ...of(map, head, l, h) }));
  return { ...map, layers: map.layers.map((layer, l) => ({ name: layer.name, heads: heads(layer, l) })) };
}

// Each under its name, side by side where they fit.
function framed(maps, content) {
  if (maps.length === 1) return content(maps[0].map, "");
  const figure = ({ name, map }, place) => make("figure", {}, make("figcaption", {}, name), content(map, place ? `, ${name}` : ""));
  return make("div", { class: "panels" }, ...maps.map(figure));
}

// For panels of one shape, one message describes both.
const telling = (maps, map) => maps.find((one) => one.map.signed)?.map ?? map;

function drawModel(data, state, update, say) {
  const maps = mapsOf(data, state);
  const open = (change) => update({ ...panelWith(change, data, state), ...change });
  const drawMap = (map, of) => make("div", {}, legend(map, null, state), drawThumbnails(map, of, widthPer(maps, state), state, open, say));
  return framed(maps, drawMap);
}

// The panel beside the chosen one takes its place to show a head that only it has.
function panelWith({ layer, head }, data, state) {
  const map = current(data, state);
  if (map.layers[layer]?.heads[head]) return {};
  const place = data.panels[state.beside].maps.findIndex((one) => one.name === map.name);
  return { panel: state.beside, beside: state.panel, map: place };
}

// The width of one of several maps side by side, or of each below the other where that is too small.
function widthPer(maps, { space }) {
  const share = Math.floor((space - 26 * (maps.length - 1)) / maps.length);
  return share < 300 ? space : share;
}

const mostHeads = (map) => Math.max(...map.layers.map((layer) => layer.heads.length));

// A button for each head, which opens its matrix.
function drawThumbnails(map, of, space, state, update, say) {
  const heads = mostHeads(map);
  const size = Math.max(SMALLEST, Math.min(240, Math.floor((space - 48) / heads) - 3));
  const height = Math.max(SMALLEST, Math.min(4 * size, Math.round((size * map.queries.length) / map.keys.length)));
  const widest = map.layers.find((layer) => layer.heads.length === heads);
  const labels = ["layer", ...widest.heads.map((head) => (size < 60 ? head.name : `head ${head.name}`))].map((name) => make("span", { class: "label" }, name));
  const grid = make("div", { class: "grid", style: `grid-template-columns: auto repeat(${heads}, auto)` }, ...labels);
  const buttons = []; // with holes where a layer has fewer heads
  map.layers.forEach((layer, l) => {
    grid.append(make("span", { class: "label", style: "grid-column: 1" }, layer.name));
    layer.heads.forEach((head, h) => {
      const name = `layer ${layer.name}, head ${head.name}`;
      const open = make("button", { "aria-label": `open ${name}${of}` }, picture(map, head, size, height, state));
      open.addEventListener("click", () => {
        const [view, from] = [open.closest(".view"), state.view];
        update({ view: "matrix", layer: l, head: h });
        if (from === "model") view.querySelector("[role=application]").focus({ preventScroll: true });
      });
      const describeAt = () => say(map.signed ? `${name}: the strongest color is a difference of ${mostOf(map, head, state).toFixed(4)}` : name);
      open.addEventListener("mouseenter", describeAt);
      open.addEventListener("focus", () => {
        if (state.view === "model") Object.assign(state, { layer: l, head: h });
        describeAt();
      });
      if (state.view === "matrix" && l === state.layer && h === state.head) open.setAttribute("aria-current", "true");
      buttons[l * heads + h] = open;
      grid.append(open);
    });
  });
  roving(buttons, heads, state.layer * heads + state.head);
  return grid;
}

// What colors mean, and which axis is which.
function legend(map, head, state) {
  const computed = map.signed || map.layers[0].heads[0].value;
  const most = head ? mostOf(map, head, state) : 1;
  const own = head === null && (computed || state.contrast === LARGEST);
  const end = own ? "largest of each head" : most === 1 ? "1" : shown(most);
  const colors = imageOf(1, 64, table(1, 64, (_, e) => (map.signed ? e / 31.5 - 1 : e / 63)), 1, state.contrast);
  const [kind, start] = [map.signed ? "difference" : computed ? "norm" : "weight", map.signed ? `−${end}` : "0"];
  const span = (text) => make("span", {}, text);
  const axes = head === null ? [span("rows: queries, columns: keys")] : [];
  return make("div", { class: "legend" }, span(kind), span(start), drawn(colors, 128, 12, { "aria-hidden": "true" }), span(end), ...axes);
}

function drawMatrix(data, state, update, say) {
  const maps = mapsOf(data, state, state.values === 1 && haveNorms(data, state) ? normsOf : undefined);
  if (maps.length === 1 && maps[0].map.layers.length * mostHeads(maps[0].map) > 1) return drawAmongHeads(maps[0].map, state, update, say);
  return framed(maps, (map, of) => drawCells(map, of, telling(maps, map), widthPer(maps, state), state, say));
}

// The matrix of a head, and all heads in the width that it leaves, or below it.
function drawAmongHeads(map, state, update, say) {
  const { space } = state;
  const least = mostHeads(map) * (SMALLEST + 3) + 48; // pixels of all thumbnails
  const part = Math.floor(Math.min(0.6 * space, space - least - GAP));
  const beside = space >= NARROW && (sizesOf(map, part).named || !sizesOf(map, space).named);
  const share = beside ? part : space;
  const rest = beside ? space - widthOfCells(map, part) - GAP : space;
  return make("div", { class: "among" }, drawCells(map, "", map, share, state, say), drawThumbnails(map, "", rest, state, update, say));
}

// The sides of a matrix's cells and the width of the words beside it, which are left out where they don't fit.
function sizesOf(map, space) {
  const columns = map.keys.length;
  const names = widthOf(map.queries, space);
  const [narrow, wide] = [names, 0].map((taken) => Math.min(40, Math.floor((space - taken - EDGE) / columns)));
  const named = narrow >= 11;
  return { names, named, cell: named ? narrow : Math.max(2, wide) };
}

function widthOfCells(map, space) {
  const { names, named, cell } = sizesOf(map, space);
  return EDGE + (named ? names : 0) + cell * map.keys.length;
}

function drawCells(map, of, valueText, space, state, say) {
  const head = map.layers[state.layer]?.heads[state.head];
  if (!head) return make("p", {}, "No such head in this model.");
  const describeAt = (i, j) => describe(valueText, valueText.layers[state.layer].heads[state.head], i, j);
  const [rows, columns] = [map.queries.length, map.keys.length];
  const { names, named, cell } = sizesOf(map, space);
  const canvas = picture(map, head, columns * cell, rows * cell, state);
  canvas.setAttribute("role", "application");
  canvas.setAttribute("aria-label", `weights of layer ${map.layers[state.layer].name}, head ${head.name}; rows are queries${of}`);
  const frame = parted(canvas, map.second, cell);
  frame.append(cells(canvas, [rows, columns], state, describeAt, say));
  const style = `line-height: ${cell}px; font-size: ${Math.min(cell, 13)}px`;
  const tokens = (all, side) => (named ? all.map((token) => make("div", { class: "token", style: `${side}: ${cell}px; ${style}` }, token)) : []);
  const grid = make("div", { class: "grid cells" });
  grid.append(make("span", { class: "label upright" }, "queries"), make("div", { class: "queries", style: `max-width: ${names}px` }, ...tokens(map.queries, "height")), frame);
  grid.append(make("span", {}), make("span", {}), make("div", { class: "keys" }, ...tokens(map.keys, "width")));
  grid.append(make("span", {}), make("span", {}), make("span", { class: "label" }, "keys"));
  return make("div", {}, legend(map, head, state), grid, ...(head.blocks ? [sharesOf(head.blocks, map.signed)] : []));
}

// The width of the widest token, in bold as where it is lit, as far as it fits.
function widthOf(tokens, space) {
  const pen = document.createElement("canvas").getContext("2d");
  pen.font = "bold 13px system-ui, sans-serif";
  const widths = tokens.map((token) => pen.measureText(token).width);
  return Math.min(Math.ceil(Math.max(...widths)) + 14, Math.floor(space / 3));
}

// The share of weight within and between two texts.
function sharesOf(shares, signed) {
  const pairOf = (share, a, b) => [make("th", { scope: "row" }, `${"AB"[a]}→${"AB"[b]}`), make("td", {}, `${signed && share > 0 ? "+" : ""}${share.toFixed(3)}`)];
  const rows = shares.map((row, a) => make("tr", {}, ...row.flatMap((share, b) => pairOf(share, a, b))));
  return make("table", { "aria-label": "shares of weight between the texts", class: "shares" }, ...rows);
}

// A frame around a canvas; of two texts read as one, with lines between the four blocks.
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
  const chipOf = (head, h) => {
    const chip = pressed(head.name, chosen.has(h), () => {
      const next = new Set(chosen);
      next.has(h) ? next.delete(h) : next.add(h);
      update({ shown: next });
    });
    chip.setAttribute("aria-label", `head ${head.name}`);
    chip.style.borderLeft = `6px solid ${colorOf(h)}`;
    return chip;
  };
  const [maps, linked] = [mapsOf(data, state), []];
  return make("div", {}, make("div", { class: "bar" }, ...layer.heads.map(chipOf)), framed(maps, (one) => {
    const together = maps.length === 2 ? [] : linked; // what stands at the same place is shown together
    return one.layers[state.layer] ? drawLines(one, widthPer(maps, state), state, chosen, together, say) : make("p", {}, "No such layer in this model.");
  }));
}

// Tokens left and right, with lines between them. `linked` are the functions that show a token.
function drawLines(map, space, state, chosen, linked, say) {
  const layer = map.layers[state.layer];
  const box = make("div", {});
  const height = 20;
  const left = widthOf([...map.queries, ...map.keys], space);
  const right = Math.max(left + 100, Math.min(space - left, left + 360));
  const svg = draw("svg", { width: right + left, height: height * Math.max(map.queries.length, map.keys.length) + 8, role: "group", "aria-label": "queries left, keys right" });
  const [resting, lines] = [draw("g", {}), draw("g", {})]; // of all words, and of one
  const lined = (weights) => linesOf(weights, map, layer, say, [left, right, height]);
  const all = weightsOf(map, layer, chosen, "queries", null);
  resting.append(...lined(all));
  const labels = { queries: [], keys: [] };
  linked.push((axis, at) => {
    resting.setAttribute("display", at === null ? "inline" : "none");
    lines.replaceChildren(...(at === null ? [] : lined(weightsOf(map, layer, chosen, axis, at))));
    for (const [name, all] of Object.entries(labels)) all.forEach((label, i) => {
      label.toggleAttribute("data-lit", name === axis && i === at);
      const locked = String(state.locked !== null && state.locked[0] === name && state.locked[1] === i);
      if (label.getAttribute("aria-pressed") !== locked) label.setAttribute("aria-pressed", locked);
    });
  });
  const show = (axis, at) => {
    for (const one of linked) one(axis, at);
    if (at !== null) say(summary(map, layer, chosen, axis, at));
  };
  const unlocked = () => (state.locked && state.locked[1] < map[state.locked[0]].length ? show(...state.locked) : show("queries", null));
  for (const [axis, x, anchor] of [["queries", left - 6, "end"], ["keys", right + 6, "start"]]) {
    map[axis].forEach((token, i) => {
      const label = draw("text", { x, y: height * i + 15, "text-anchor": anchor, role: "button" });
      label.textContent = token;
      label.setAttribute("aria-label", `${axis === "queries" ? "from" : "to"} ${quoted(token)}, position ${i}`);
      const lock = () => {
        state.locked = state.locked && state.locked[0] === axis && state.locked[1] === i ? null : [axis, i];
        show(axis, i);
      };
      for (const kind of ["mouseenter", "focus"]) label.addEventListener(kind, () => { if (!state.locked) show(axis, i); });
      label.addEventListener("mouseleave", unlocked);
      label.addEventListener("click", lock);
      label.addEventListener("keydown", (event) => { if (event.key === "Enter" || event.key === " ") { event.preventDefault(); event.stopPropagation(); lock(); } });
      labels[axis].push(label);
      svg.append(label);
    });
    roving(labels[axis], 1);
  }
  svg.append(resting, lines);
  if (all.length > MOST_LINES) box.append(make("p", { class: "said" }, `The strongest ${MOST_LINES} of ${all.length} lines are drawn. Hover over a token for all of its lines.`));
  const caption = (name, width) => make("span", { style: `width: ${width}px` }, name);
  box.append(make("div", { class: "captions", style: `width: ${right + left}px` }, caption("queries", left), caption("keys", left - 6)), svg);
  unlocked();
  return box;
}

// At most as many lines as a browser draws smoothly.
function linesOf(weights, map, layer, say, [left, right, height]) {
  return weights.slice(0, MOST_LINES).map(([weight, h, i, j]) => {
    const line = draw("line", { x1: left, y1: height * i + 11, x2: right, y2: height * j + 11, stroke: colorOf(map.signed ? Number(weight < 0) : h), "stroke-width": 2, "stroke-opacity": Math.min(1, Math.abs(weight)) });
    line.addEventListener("mouseenter", () => say(`${describe(map, layer.heads[h], i, j)}, head ${layer.heads[h].name}`));
    return line;
  });
}

// Weights large enough for a line, strongest first, each with its head, query and key.
function weightsOf(map, layer, chosen, axis, at) {
  const [queries, keys] = ["queries", "keys"].map((one) => (at !== null && one === axis ? [at] : [...map[one].keys()]));
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

function summary(map, layer, chosen, axis, at) {
  const tokens = axis === "queries" ? map.keys : map.queries;
  const heads = layer.heads.filter((_, h) => chosen.has(h)); // a layer may have fewer heads than are chosen
  const sums = tokens.map((_, other) => {
    const sum = heads.reduce((sum, head) => sum + (axis === "queries" ? weightOf(map, head, at, other) : weightOf(map, head, other, at)), 0);
    return [sum / Math.max(heads.length, 1), other];
  });
  const most = sums.sort((a, b) => (map.signed ? Math.abs(b[0]) - Math.abs(a[0]) : b[0] - a[0])).slice(0, 3);
  const names = most.map(([weight, i]) => `${quoted(tokens[i])} ${weight.toFixed(2)}`).join(", ");
  const verb = map.signed ? "differs most at" : axis === "queries" ? "attends most to" : "gets most attention from";
  return `${quoted(map[axis][at])} ${verb} ${names} (mean of ${heads.length} heads)`;
}

// A message until the exact scores have arrived.
function asked(data, state, update) {
  const box = make("p", {}, "Loading the exact scores of this head …");
  const { panel, map, layer, head } = state;
  data.ask({ panel, map, layer, head }).then(
    (detail) => {
      data.panels[panel].details.push(detail);
      if (box.isConnected) update({});
    },
    (error) => { box.textContent = error.message; },
  );
  return box;
}

function detailsOf(data, state) {
  return (data.panels[state.panel].details ?? []).filter((one) => one.map === state.map);
}

function drawSteps(data, state, update, say) {
  const details = detailsOf(data, state);
  const detail = details.find((one) => one.layer === state.layer && one.head === state.head);
  if (!detail && data.ask) return asked(data, state, update);
  if (!detail) {
    const named = (one) => `layer ${current(data, state).layers[one.layer].name}, head ${current(data, state).layers[one.layer].heads[one.head].name}`;
    const where = details.map((one) => pressed(named(one), false, () => update({ layer: one.layer, head: one.head })));
    return make("div", {}, make("p", {}, "Exact scores are available for:"), ...where);
  }
  const map = current(data, state);
  const query = Math.min(state.query ?? map.queries.length - 1, map.queries.length - 1);
  const box = make("div", {}, choice("query", map.queries.map((token, i) => `${i}: ${token}`), query, (chosen) => update({ query: chosen })));
  if (detail.implied) box.append(make("p", {}, "This mechanism has no scores; the weights are those that it implies."));
  const vectors = (text, n) => rowsOf(floats(text), n);
  const said = (name, numbers) => say(`${name}: ${numbers.map((x) => x.toFixed(2)).join(" ")}`);
  const rotated = detail.before.q !== undefined;
  const [q, k, v] = [vectors(detail.q, map.queries.length)[query], vectors(detail.k, map.keys.length), vectors(detail.v, map.keys.length)];
  const outside = [
    ...(rotated ? [["q", vectors(detail.before.q, map.queries.length)[query]]] : []),
    [rotated ? "q, rotated" : "q", q],
    ["output: Σ weight · v", vectors(detail.output, map.queries.length)[query]],
  ];
  const before = rotated ? [["k", vectors(detail.before.k, map.keys.length)]] : [];
  const gates = detail.gates.map(({ name, values }) => [name, vectors(values, map.keys.length)]);
  const columns = [...before, [rotated ? "k, rotated" : "k", k], ["q ∘ k", k.map((one) => one.map((x, e) => q[e] * x))]];
  const steps = stepsOf(detail, query, map, columns[columns.length - 1][1]);
  // Where not all columns fit, the numbers are in view before the table is scrolled.
  const narrow = state.space < NARROW;
  const ordered = (key, vectors, numbers, ...rest) => [key, ...(narrow ? [...numbers, ...vectors] : [...vectors, ...numbers]), ...rest];
  const number = (x) => shown(x, narrow ? 3 : 4);
  const names = ordered("key", columns.map(([name]) => name), detail.steps.map((step) => step.name), ...gates.map(([name]) => name), "v");
  const top = make("tr", {}, ...names.map((name) => make("th", { scope: "col" }, name)));
  const cellOf = (name, numbers) => {
    const cell = make("td", {}, strip(numbers, name));
    cell.addEventListener("mouseenter", () => said(name, numbers));
    return cell;
  };
  const rowOf = (token, j) => {
    const gateOf = ([name, all]) => (all[j].length === 1 ? make("td", {}, number(all[j][0])) : cellOf(`${name} at ${quoted(token)}`, all[j]));
    return make("tr", {}, ...ordered(
      make("th", { scope: "row", class: "token", title: token }, `${j}: ${token}`),
      columns.map(([name, all]) => cellOf(`${name} of ${quoted(token)}`, all[j])),
      steps.map((values) => make("td", {}, number(values[j]))),
      ...gates.map(gateOf),
      cellOf(`v of ${quoted(token)}`, v[j]),
    ));
  };
  const rowAround = ([name, numbers]) => make("tr", {}, make("th", { scope: "row" }, name), cellOf(`${name} of ${quoted(map.queries[query])}`, numbers));
  box.append(make("table", { "aria-label": "vectors of the query" }, ...outside.map(rowAround)));
  box.append(make("table", { class: "steps" }, make("thead", {}, top), make("tbody", {}, ...map.keys.map(rowOf))));
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

// The comparison of the two panels shown; `here` and `there` are their places in it.
function comparedIn(data, state) {
  for (const one of data.words ?? []) {
    const [here, there] = [one.panels.indexOf(state.panel), one.panels.indexOf(state.beside)];
    if (here >= 0 && there >= 0 && one.kinds[here] === state.map) return { one, here, there };
  }
  return null;
}

function drawWord(data, state, update, say) {
  const { one, here, there } = comparedIn(data, state);
  const [map, other] = [here, there].map((at) => data.panels[one.panels[at]].maps[one.kinds[at]]);
  state.pair = clamp(state.pair, one.pairs.length);
  const pair = one.pairs[state.pair];
  const texts = [[state.panel, map, here], [state.beside, other, there]];
  const choices = texts.map(([panel, { queries }, at]) => drawChoice(panelName(data, panel), queries, one.pairs, at, state.pair, (pair) => update({ pair })));
  const word = quoted(map.queries[pair[here]]);
  const where = (l, h) => `layer ${map.layers[l].name}, head ${map.layers[l].heads[h].name}`;
  const [cosines, distances] = [floats(one.cosines), floats(one.distances)];
  const heads = map.layers[0].heads.length;
  const at = (l, h, part) => ((state.pair * map.layers.length + l) * heads + h) * 3 + part;
  const comparedAt = (...place) => `cosine ${cosines[at(...place)].toFixed(4)}, length of the difference ${shown(distances[at(...place)])}`;
  const grids = ["q", "k", "v"].map((name, part) => {
    const valueText = (l, h) => `${name} of ${word} in ${where(l, h)}: ${comparedAt(l, h, part)}`;
    return drawCosines(name, map, state, (l, h) => cosines[at(l, h, part)], (l, h) => say(valueText(l, h)), update);
  });
  const vectors = drawVectors(one, [here, there], map, state, [...texts.map(([panel]) => panelName(data, panel)), word], say);
  const chosen = ["q", "k", "v"].map((name, part) => `${name}: ${comparedAt(state.layer, state.head, part)}`);
  say(`${word} in ${where(state.layer, state.head)}: ${chosen.join("; ")}`);
  return make("div", {}, ...choices, make("div", { class: "panels" }, ...grids), vectors);
}

// A text in which shared words are buttons.
function drawChoice(name, tokens, pairs, at, chosen, choose) {
  const buttonOf = (token, i) => {
    const fitting = pairs.findIndex((pair) => pair[at] === i && pair[1 - at] === pairs[chosen][1 - at]);
    const any = fitting >= 0 ? fitting : pairs.findIndex((pair) => pair[at] === i);
    if (any < 0) return make("span", { class: "token" }, token);
    const button = pressed(token, pairs[chosen][at] === i, () => choose(any));
    button.setAttribute("aria-label", `${quoted(token)}, position ${i} in ${name}`);
    return button;
  };
  return make("p", { class: "words", role: "group", "aria-label": `the word in ${name}` }, make("span", { class: "label" }, name), ...tokens.map(buttonOf));
}

// A number for each layer and head, in the color of its sign.
function drawCosines(name, map, state, value, describeAt, update) {
  const cellOf = (l, h) => {
    const cosine = value(l, h);
    const share = Math.round(Math.abs(cosine) * 45);
    const cell = make("td", { style: `background: color-mix(in srgb, ${colorOf(Number(cosine < 0))} ${share}%, transparent)` }, cosine.toFixed(2));
    cell.toggleAttribute("data-chosen", l === state.layer && h === state.head);
    cell.addEventListener("mouseenter", () => describeAt(l, h));
    cell.addEventListener("click", () => update({ layer: l, head: h }));
    return cell;
  };
  const heads = map.layers[0].heads.map((head) => make("th", { scope: "col", "aria-label": `head ${head.name}` }, head.name));
  const top = make("tr", {}, make("th", { scope: "col" }, "layer"), ...heads);
  const rows = map.layers.map((layer, l) => make("tr", {}, make("th", { scope: "row" }, layer.name), ...layer.heads.map((_, h) => cellOf(l, h))));
  return make("table", { class: "cosines" }, make("caption", {}, `cosine of ${name}`), make("thead", {}, top), make("tbody", {}, ...rows));
}

// The word's vectors in the chosen head: on either panel, and what they differ by.
function drawVectors(one, panels, map, state, [name, other, word], say) {
  if (state.pair !== 0) return make("p", { class: "said" }, "Vectors are available for one word: choose this one with --word.");
  const layer = map.layers[state.layer];
  const caption = make("caption", {}, `${word} in layer ${layer.name}, head ${layer.heads[state.head].name}`);
  const top = make("tr", {}, ...["vector", name, other, "difference"].map((title) => make("th", { scope: "col" }, title)));
  const heads = map.layers.length * layer.heads.length;
  const rowOf = (part, p) => {
    const [first, second] = panels.map((panel) => rowsOf(floats(one.vectors[panel][p]), heads)[state.layer * layer.heads.length + state.head]);
    const difference = first.map((x, e) => x - second[e]);
    const most = Math.max(...[...first, ...second].map(Math.abs));
    const cellOf = ([title, numbers]) => {
      const cell = make("td", {}, strip(numbers, `${part}, ${title}`, most));
      cell.addEventListener("mouseenter", () => say(`${part}, ${title}: ${numbers.map((x) => x.toFixed(2)).join(" ")}`));
      return cell;
    };
    return make("tr", {}, make("th", { scope: "row" }, part), ...[[name, first], [other, second], ["difference", difference]].map(cellOf));
  };
  return make("table", {}, caption, make("thead", {}, top), make("tbody", {}, ...["q", "k", "v"].map(rowOf)));
}

// Positions

function drawPositions(data, state, update, say) {
  const map = current(data, state);
  const partsOf = (picture) => {
    const most = Math.max(...picture.matrices.map((matrix) => largest(numbersIn(picture, matrix))));
    const matrices = picture.matrices.map((matrix) => drawMatrixOf(picture, matrix, most, map, say));
    return [make("h3", {}, `${picture.name}: ${picture.rows} × ${picture.columns}; the strongest color is ${shown(most)}`), make("div", { class: "panels" }, ...matrices)];
  };
  return make("div", {}, ...map.positions.flatMap(partsOf));
}

const numbersIn = ({ shape: [rows, columns] }, matrix) => weightsIn({ queries: { length: rows }, keys: { length: columns } }, matrix);

function drawMatrixOf(picture, matrix, most, map, say) {
  const [rows, columns] = picture.shape;
  const value = (i, j) => weightOf({ keys: { length: columns } }, matrix, i, j);
  const size = (n, space) => n * Math.max(1, Math.min(12, Math.floor(space / n)));
  const image = imageOf(rows, columns, numbersIn(picture, matrix), most);
  const canvas = drawn(image, size(columns, 360), size(rows, 360), { role: "application", "aria-label": `${picture.name}: ${matrix.name}` });
  const words = { query: map.queries, key: map.keys, position: map.queries };
  const place = (kind, i) => `${kind} ${i}${words[kind] ? ` ${quoted(words[kind][i])}` : ""}`;
  const describeAt = (i, j) => `${matrix.name}, ${place(picture.rows, picture.first + i)}, ${place(picture.columns, j)}: ${rounded(value(i, j), halfOf(matrix, i, j))}`;
  const frame = parted(canvas);
  frame.append(cells(canvas, [rows, columns], { locked: null }, describeAt, say));
  return make("figure", {}, make("figcaption", {}, matrix.name), frame);
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

function valueText(map, head, i, j) {
  return head.valueText ? head.valueText(i, j) : rounded(weightOf(map, head, i, j), halfOf(head, i, j));
}

// What was computed lies within what is shown: half a step is rounded up, and leaves some for the
// rounding of the weight itself.
function rounded(value, half) {
  const digits = half > 0 ? Math.min(Math.max(4, 1 - Math.floor(Math.log10(half))), 20) : 4;
  const unit = 10 ** -digits;
  const off = half > 0 ? Math.ceil(half / unit + 0.5) * unit : 0;
  return `${value.toFixed(digits)} ± ${off.toFixed(digits)}`;
}

function describe(map, head, i, j) {
  return `${quoted(map.queries[i])} (${i}) attends to ${quoted(map.keys[j])} (${j}): ${valueText(map, head, i, j)}`;
}

function picture(map, head, width, height, state) {
  const [rows, columns] = [map.queries.length, map.keys.length];
  if (head.contrast !== state.contrast) head.image = imageOf(rows, columns, weightsIn(map, head), mostOf(map, head, state), state.contrast);
  head.contrast = state.contrast;
  return drawn(head.image, width, height);
}

function drawn(image, width, height, attributes = {}) {
  const canvas = make("canvas", { width: image.width, height: image.height, style: `width: ${width}px; height: ${height}px`, ...attributes });
  canvas.getContext("2d").putImageData(image, 0, 0);
  return canvas;
}

// The number with the strongest color: 1 for weights, or the largest of a head.
function mostOf(map, head, state) {
  if (!head.value && state.contrast !== LARGEST) return 1;
  return (head.most ??= largest(weightsIn(map, head)));
}

// All weights of a head, in a plain loop: a call for each would take most of the time until a page is seen.
function weightsIn(map, head) {
  const [rows, columns] = [map.queries.length, map.keys.length];
  if (head.value) return table(rows, columns, head.value);
  const [found, raw] = [new Float32Array(rows * columns), bytesOf(head)];
  for (let i = 0; i < rows; i++) {
    const [low, step] = rowScale(head, i);
    for (let at = i * columns; at < (i + 1) * columns; at++) found[at] = low + step * raw[at];
  }
  return found;
}

function table(rows, columns, value) {
  const found = new Float32Array(rows * columns);
  for (let i = 0; i < rows; i++) for (let j = 0; j < columns; j++) found[i * columns + j] = value(i, j);
  return found;
}

const largest = (numbers) => numbers.reduce((most, x) => Math.max(most, Math.abs(x)), 1e-9);

// A pixel a number: its color is the sign, its opacity the size.
function imageOf(rows, columns, numbers, most, contrast = LINEAR) {
  const [image, opacity] = [new ImageData(columns, rows), Object.values(CONTRASTS)[contrast]];
  const pixels = image.data;
  for (let at = 0; at < numbers.length; at++) {
    const [red, green, blue] = numbers[at] < 0 ? NEGATIVE : POSITIVE;
    pixels[4 * at] = red;
    pixels[4 * at + 1] = green;
    pixels[4 * at + 2] = blue;
    pixels[4 * at + 3] = opacity(Math.abs(numbers[at]) / most) * 255;
  }
  return image;
}

// The first colors are set, for most models; further hues go around the circle.
const colorOf = (h) => COLORS[h] ?? `hsl(${Math.round(h * 137.5) % 360} 55% 50%)`;

function strip(numbers, name, strongest = 0) {
  const most = strongest || Math.max(...numbers.map(Math.abs), 1e-9);
  const label = `entries of ${name}: ${[...numbers].map((x) => x.toFixed(2)).join(" ")}`;
  return drawn(imageOf(1, numbers.length, numbers, most), Math.min(160, 4 * numbers.length), 12, { role: "img", "aria-label": label });
}

// Keys, the focus and what is said

// Cells of a canvas: pointing or arrows go from one to the next, a click or Enter locks it.
// Gives the mark that stands over the cell, to be laid over the canvas.
function cells(canvas, [rows, columns], state, describeAt, say) {
  const mark = make("div", { class: "mark", hidden: "" });
  let at = state.locked ?? [0, 0];
  function go(i, j) {
    at = [clamp(i, rows), clamp(j, columns)];
    if (state.locked) state.locked = at;
    mark.hidden = false;
    mark.style.cssText = `left: ${(100 * at[1]) / columns}%; top: ${(100 * at[0]) / rows}%; width: ${100 / columns}%; height: ${100 / rows}%`;
    say(describeAt(...at) + (state.locked ? ", locked" : ""));
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
    if (by) {
      go(at[0] + by[0], at[1] + by[1]);
      mark.scrollIntoView({ block: "nearest", inline: "nearest" });
    } else if (event.key === "Enter" || event.key === " ") lock();
    else return;
    event.preventDefault();
    event.stopPropagation();
  });
  if (state.locked && at[0] < rows && at[1] < columns) go(...at); // a panel of another shape may lack the cell
  return mark;
}

// One stop of the Tab key for a grid of things; arrows go on from there.
function roving(items, columns, first = 0) {
  const stopAt = (item) => items.forEach((one) => one.setAttribute("tabindex", one === item ? "0" : "-1"));
  stopAt(items[first] ?? items.find(Boolean));
  items.forEach((item, i) => {
    item.addEventListener("focus", () => stopAt(item));
    item.addEventListener("keydown", (event) => {
      const by = ARROWS[event.key];
      if (!by) return;
      event.preventDefault();
      event.stopPropagation();
      const step = by[0] * columns + by[1];
      let next = i + step;
      while (next >= 0 && next < items.length && !items[next]) next += step; // a layer may have fewer heads
      items[next]?.focus();
    });
  });
}

// Drawing again puts other elements in place of the old ones: the focus goes to the one of the same
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

// Screen readers announce values selected by keyboard, not those under the mouse.
function quietForMice(section, said) {
  const hush = (event) => said.setAttribute("aria-live", event.pointerType === "mouse" ? "off" : "polite");
  for (const kind of ["pointerover", "pointermove", "keydown"]) section.addEventListener(kind, hush, true);
}

// Elements

export function make(name, attributes, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.append(...children);
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
  const select = make("select", { "aria-label": name }, ...options.map((option, i) => make("option", { value: i }, option)));
  select.value = String(chosen);
  select.addEventListener("change", () => act(Number(select.value)));
  return make("label", {}, `${name} `, select);
}

const clamp = (x, n) => Math.min(Math.max(x, 0), n - 1);
// Letters from right to left are isolated: they would reverse the order of the words and numbers around them.
const quoted = (token) => (/[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc]/.test(token) ? `“\u2068${token}\u2069”` : `“${token}”`);
const shown = (x, digits = 4) => (Number.isFinite(x) ? x.toPrecision(digits) : x < 0 ? "−∞" : String(x));
