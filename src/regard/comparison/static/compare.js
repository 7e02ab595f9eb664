"use strict";
// A table that is sorted and filtered, and charts of the rows that are left.

const data = JSON.parse(document.getElementById("data").textContent);
const COLORS = ["#3d85c6", "#e07b39", "#45a567", "#b067b5", "#c9a227", "#7f8c8d"];
const LONG = 24; // characters of a cell that needs a wide column
const WIDTH = 640, HEIGHT = 320, LEFT = 64, RIGHT = 16, TOP = 28, BOTTOM = 46;

function filled(made, attributes, children) {
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

const element = (name, attributes, ...children) => filled(document.createElement(name), attributes, children);
const drawing = (name, attributes, ...children) => filled(document.createElementNS("http://www.w3.org/2000/svg", name), attributes, children);

const colorOf = (row) => COLORS[data.rows.indexOf(row) % COLORS.length];
const dashOf = (row) => ["", "6 3", "2 3"][Math.floor(data.rows.indexOf(row) / COLORS.length) % 3];
const short = (x, digits = 3) => (Math.abs(x) >= 1e4 || (x && Math.abs(x) < 1e-3) ? x.toExponential(digits - 2) : String(+x.toPrecision(digits)));

// Ticks as texts, with as many digits as tell them apart.
function tickTexts(ticks) {
  const texts = [3, 4, 5, 6, 8, 10, 12].map((digits) => ticks.map((tick) => short(tick, digits)));
  return texts.find((one) => new Set(one).size === ticks.length) ?? texts[0];
}

// State: which column sorts, which way, and what the filter says. At first, the best row is on top.
const state = { column: null, descending: false, filter: "" };

const number = (text) => parseFloat(text.replaceAll(",", ""));

function compareCells(a, b) {
  const [x, y] = [number(a), number(b)];
  if (Number.isNaN(x) && Number.isNaN(y)) return a.localeCompare(b);
  return Number.isNaN(x) ? 1 : Number.isNaN(y) ? -1 : x - y;
}

function shownRows() {
  const words = state.filter.toLowerCase().split(/\s+/).filter(Boolean);
  const rows = data.rows.filter((row) => {
    const text = row.cells.join(" ").toLowerCase();
    return words.every((word) => text.includes(word));
  });
  if (state.column === null) return rows;
  const missing = (row) => row.cells[state.column] === "–";
  return rows.sort((a, b) => {
    if (missing(a) !== missing(b)) return missing(a) ? 1 : -1; // last, whichever way
    const order = compareCells(a.cells[state.column], b.cells[state.column]);
    return state.descending ? -order : order;
  });
}

function drawHead() {
  const cells = data.columns.map((name, column) => {
    const button = element("button", { type: "button" }, name);
    button.addEventListener("click", () => {
      state.descending = state.column === column && !state.descending;
      state.column = column;
      draw();
    });
    return element("th", { scope: "col" }, button);
  });
  document.querySelector("#table thead").replaceChildren(element("tr", {}, ...cells));
}

function drawTable(rows) {
  document.querySelectorAll("#table th").forEach((cell, column) => {
    const order = state.descending ? "descending" : "ascending";
    cell.setAttribute("aria-sort", column === state.column ? order : "none");
  });
  const cell = (text) => element("td", text.length > LONG ? { class: "long" } : {}, text.replace(/\[.*\]/, (one) => one.replace(" ", "\u00a0")));
  const lines = rows.map((row) => element("tr", {}, ...row.cells.map(cell)));
  document.querySelector("#table tbody").replaceChildren(...lines);
  document.getElementById("shown").textContent = `${rows.length} of ${data.rows.length} rows`;
}

// Scales: a function from a value to a place, and the ticks.

function linear(low, high, from, to) {
  if (low === high) [low, high] = [low - 0.5, high + 0.5];
  const place = (x) => from + ((x - low) / (high - low)) * (to - from);
  return { place, ticks: roundNumbers(low, high) };
}

// Multiples of 1, 2 or 5 times a power of ten, of which two to six lie in the range.
function roundNumbers(low, high) {
  const rough = (high - low) / 5, power = 10 ** Math.floor(Math.log10(rough));
  const step = power * [1, 2, 5, 10].find((x) => x * power >= rough);
  const first = Math.ceil(low / step - 1e-9), last = Math.floor(high / step + 1e-9);
  return Array.from({ length: last - first + 1 }, (_, i) => Number(((first + i) * step).toPrecision(12)));
}

function logarithmic(low, high, from, to) {
  const inner = linear(Math.log10(low), Math.log10(high), from, to);
  const powers = roundNumbers(Math.floor(Math.log10(low)), Math.ceil(Math.log10(high))).filter(Number.isInteger);
  const ticksOf = (factors) => powers.flatMap((x) => factors.map((m) => m * 10 ** x)).filter((x) => low <= x && x <= high);
  const choices = [ticksOf([1]), ticksOf([1, 2, 5]), roundNumbers(low, high)];
  return { place: (x) => inner.place(Math.log10(x)), ticks: choices.find((ticks) => ticks.length > 2) ?? choices[2] };
}

function scaleOf(values, from, to, wantsLog) {
  const known = values.filter((x) => x !== null && Number.isFinite(x));
  if (!known.length) return linear(0, 1, from, to);
  const [low, high] = [Math.min(...known), Math.max(...known)];
  return wantsLog && low > 0 && high > low ? logarithmic(low, high, from, to) : linear(low, high, from, to);
}

// A chart: lines of points, each of which says what it is when it is hovered or reached by arrow keys.

function chart({ label, x, y, xName, yName, lines }) {
  const svg = drawing("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, "aria-hidden": "true" });
  svg.append(
    drawing("line", { class: "axis", x1: LEFT, x2: WIDTH - RIGHT, y1: HEIGHT - BOTTOM, y2: HEIGHT - BOTTOM }),
    drawing("line", { class: "axis", x1: LEFT, x2: LEFT, y1: TOP, y2: HEIGHT - BOTTOM }),
    drawing("text", { x: WIDTH - RIGHT, y: HEIGHT - 6, "text-anchor": "end" }, xName),
    drawing("text", { x: 6, y: 16 }, yName),
  );
  const below = tickTexts(x.ticks ?? []), beside = tickTexts(y.ticks);
  for (const [at, text] of x.labels ?? x.ticks.map((tick, i) => [x.place(tick), below[i]]))
    svg.append(drawing("text", { x: at, y: HEIGHT - BOTTOM + 18, "text-anchor": "middle" }, text));
  y.ticks.forEach((tick, i) =>
    svg.append(drawing("text", { x: LEFT - 6, y: y.place(tick) + 4, "text-anchor": "end" }, beside[i])));
  const said = element("p", { class: "said", "aria-live": "polite" }, "Hover a point, or move with the arrow keys.");
  const spots = [];
  const say = (spot) => {
    svg.querySelector("[data-lit]")?.remove();
    said.textContent = spot.text;
    svg.append(drawing("circle", { "data-lit": "", cx: spot.x, cy: spot.y, r: 9, fill: "none", stroke: "currentColor", "pointer-events": "none" }));
  };
  for (const { row, points } of lines) {
    const path = points.map((p, i) => `${i ? "L" : "M"}${p.x.toFixed(1)} ${p.y.toFixed(1)}`).join("");
    svg.append(drawing("path", { d: path, fill: "none", stroke: colorOf(row), "stroke-width": 1.8, "stroke-dasharray": dashOf(row) }));
    for (const point of points) {
      const fill = point.hollow ? "var(--card)" : colorOf(row);
      const dot = drawing("circle", { cx: point.x, cy: point.y, r: point.radius ?? 3, fill, stroke: colorOf(row), "stroke-width": 2 });
      dot.addEventListener("mouseenter", () => say(point));
      svg.append(dot);
      spots.push(point);
    }
  }
  const box = element("div", { tabindex: "0", role: "group", "aria-label": `${label}. Arrow keys move through its points.` }, svg);
  let current = -1;
  box.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    if (!step || !spots.length) return;
    event.preventDefault();
    current = (current + step + spots.length) % spots.length;
    say(spots[current]);
  });
  return element("figure", {}, box, said, legend(lines.map((line) => line.row)));
}

function legend(rows) {
  const entries = [...new Set(rows)].map((row) => {
    const line = drawing("line", { x1: 0, x2: 28, y1: 5, y2: 5, stroke: colorOf(row), "stroke-width": 3, "stroke-dasharray": dashOf(row) });
    return element("li", {}, drawing("svg", { viewBox: "0 0 28 10", "aria-hidden": "true" }, line), row.name);
  });
  return element("ul", { class: "legend" }, ...entries);
}

const section = (title, ...content) => element("section", {}, element("h2", {}, title), ...content);
const bottom = HEIGHT - BOTTOM, right = WIDTH - RIGHT;

function tuning(rows, path, name) {
  const values = [...new Set(rows.flatMap((row) => row.curves[path].values))];
  const numeric = values.every((value) => value && Number.isFinite(Number(value))); // "": the model has no such size
  if (numeric) values.sort((a, b) => a - b);
  const at = new Map();
  const positions = numeric ? scaleOf(values.map(Number), LEFT + 12, right - 24, true) : null;
  values.forEach((value, i) =>
    at.set(value, numeric ? positions.place(Number(value)) : LEFT + 12 + ((i + 0.5) / values.length) * (right - LEFT - 36)));
  const x = { labels: [...at].map(([value, place]) => [place, value || "–"]) };
  const y = scaleOf(rows.flatMap((row) => row.curves[path].means), bottom - 6, TOP + 14);
  const lines = rows.map((row) => {
    const curve = row.curves[path];
    const points = curve.values.flatMap((value, i) => {
      const mean = curve.means[i];
      if (mean === null) return [];
      const isChosen = value === curve.chosen, inWindow = curve.window.includes(value);
      const notes = [inWindow ? "in the window" : "", isChosen ? (curve.edge ? "chosen, at the edge of the grid" : "chosen") : ""];
      const text = `${row.name}, ${name} ${value || "–"}: ${short(mean)}${notes.filter(Boolean).map((note) => `, ${note}`).join("")}`;
      return [{ x: at.get(value), y: y.place(mean), text, radius: isChosen ? 6 : 4, hollow: !inWindow }];
    });
    return { row, points };
  });
  const note = element("p", {}, `Mean validation ${data.score} over seeds. Filled points are in the window: within ${data.within} of the best mean. The largest point is the choice.`);
  const label = `Validation ${data.score} by ${name}`;
  return section(`Tuning of ${name}`, note, chart({ label, x, y, xName: name, yName: data.score, lines }));
}

function learning(rows) {
  const known = rows.filter((row) => row.learning.steps.length);
  if (!known.length) return "";
  const x = scaleOf(known.flatMap((row) => row.learning.steps), LEFT + 6, right - 24);
  const y = scaleOf(known.flatMap((row) => row.learning.losses), bottom - 6, TOP + 14, true);
  const lines = known.map((row) => ({
    row,
    points: row.learning.steps.map((step, i) => ({
      x: x.place(step), y: y.place(row.learning.losses[i]), radius: 1.5,
      text: `${row.name}, step ${step}: loss ${short(row.learning.losses[i])}`,
    })),
  }));
  return section("Learning curves", element("p", {}, "Training loss in nats, mean over the seeds of the chosen values."),
    chart({ label: "Training loss by step", x, y, xName: "step", yName: "loss", lines }));
}

let costShown = "seconds";

function isOptimal(row, rows) {
  return !rows.some((other) => other.test >= row.test && other.costs[costShown] <= row.costs[costShown] &&
    (other.test > row.test || other.costs[costShown] < row.costs[costShown]));
}

function pareto(rows) {
  const known = rows.filter((row) => row.test !== null && row.costs[costShown] !== null);
  const x = scaleOf(known.map((row) => row.costs[costShown]), LEFT + 12, right - 24, true);
  const y = scaleOf(known.map((row) => row.test), bottom - 6, TOP + 14);
  const lines = known.map((row) => {
    const best = isOptimal(row, known);
    const text = `${row.name}: ${data.score} ${short(row.test)}, ${data.costs[costShown]} ${short(row.costs[costShown])}${best ? ", no row is better and cheaper" : ""}`;
    return { row, points: [{ x: x.place(row.costs[costShown]), y: y.place(row.test), text, radius: 6, hollow: !best }] };
  });
  const select = element("select", { id: "cost" }, ...Object.entries(data.costs).map(([key, name]) => {
    const option = element("option", { value: key }, name);
    option.selected = key === costShown;
    return option;
  }));
  select.addEventListener("change", () => {
    costShown = select.value;
    draw();
    document.getElementById("cost").focus();
  });
  const bar = element("p", { class: "bar" }, element("label", { for: "cost" }, "Cost"), select);
  return section("Quality and cost", element("p", {}, "Filled points are Pareto-optimal: no row is better and cheaper. FLOPs/row: floating-point operations of the forward pass of a row; state: that of decoding, for a full context."), bar,
    chart({ label: `Test ${data.score} by ${data.costs[costShown]}`, x, y, xName: data.costs[costShown], yName: data.score, lines }));
}

function draw() {
  const rows = shownRows();
  drawTable(rows);
  const ended = rows.filter((row) => row.test !== null);
  const charts = ended.length ? [...Object.entries(data.tuned).map(([path, name]) => tuning(ended, path, name)), pareto(ended), learning(ended)] : [];
  document.getElementById("charts").replaceChildren(...charts);
}

const failures = document.getElementById("failures");
failures.hidden = !data.failures.length;
failures.querySelector("ul").replaceChildren(...data.failures.map((line) => element("li", {}, line)));
document.getElementById("filter").addEventListener("input", (event) => {
  state.filter = event.target.value;
  draw();
});
drawHead();
draw();
