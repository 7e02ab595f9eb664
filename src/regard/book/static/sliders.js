// Sliders: FORMULAS gives the results at any values of the parameters.

const SIZE = { width: 360, height: 150, left: 6, right: 354, top: 6, bottom: 132 };
const SUPERSCRIPTS = "⁰¹²³⁴⁵⁶⁷⁸⁹";

function filled(element, attributes, children) {
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.append(...children);
  return element;
}

const svg = (name, attributes, ...children) => filled(document.createElementNS("http://www.w3.org/2000/svg", name), attributes, children);

function written(value, digits = 4) {
  if (!Number.isFinite(value)) return "–";
  if (Number.isInteger(value) && Math.abs(value) < 1e6) return String(value);
  const text = Math.abs(value) < 1e6 ? String(+value.toPrecision(digits)) : value.toExponential(digits - 1);
  const power = (sign, exponent) => (sign === "-" ? "⁻" : "") + [...exponent].map((digit) => SUPERSCRIPTS[digit]).join("");
  return text.replace(/(\.\d*?)?0*e([+-])(\d+)/, (_, decimals = "", sign, exponent) => `${decimals === "." ? "" : decimals}·10${power(sign, exponent)}`);
}

// The range of a parameter, from its number field.
function rangeOf(field) {
  const low = +field.min, high = +field.max, log = "log" in field.dataset, whole = field.step === "1";
  const at = (share) => log ? low * (high / low) ** share : low + (high - low) * share;
  const place = (value) => log ? Math.log(value / low) / Math.log(high / low) : (value - low) / (high - low);
  const fit = (value) => Math.min(Math.max(whole ? Math.round(value) : value, low), high);
  const round = (value) => fit(log ? +value.toPrecision(whole ? 9 : 2) : +value.toFixed(6));
  const values = (parts, rounded = fit) => [...new Set(Array.from({ length: parts + 1 }, (_, i) => rounded(at(i / parts))))];
  const parts = log ? 4 * Math.round(Math.log2(high / low)) : whole ? high - low : 100;
  return { place, fit, curve: values(120), stops: values(parts, round) };
}

function startSlider(root) {
  const formula = FORMULAS[root.dataset.formula], log = "log" in root.dataset;
  const fields = $$("input[type=number]", root), sliders = $$("input[type=range]", root), ranges = fields.map(rangeOf);
  const cells = $$("td data", root), colors = $$(".key path", root).map((path) => path.getAttribute("stroke"));
  const now = ranges.map((_, axis) => +fields[axis].value);
  const height = (value) => !Number.isFinite(value) || (log && value <= 0) ? null : log ? Math.log10(value) : value;

  function draw(moved) {
    const { curve, place } = ranges[moved], symbol = fields[moved].dataset.symbol;
    const rows = curve.map((value) => formula(...now.with(moved, value)).map(height));
    const all = rows.flat().filter((value) => value !== null);
    const [low, high] = log ? [Math.min(...all), Math.max(...all)] : [Math.min(0, ...all), Math.max(1, ...all)];
    const x = (value) => SIZE.left + (SIZE.right - SIZE.left) * place(value);
    const y = (value) => SIZE.bottom - (SIZE.bottom - SIZE.top) * (high > low ? (value - low) / (high - low) : 0.5);
    const end = (value) => written(log ? 10 ** value : value, 2);
    const start = svg("text", { x: SIZE.left, y: SIZE.bottom + 13 }, svg("tspan", { class: "symbol" }, symbol));
    start.append(` = ${written(curve[0])}`);
    const at = { x1: x(now[moved]), x2: x(now[moved]), y1: SIZE.top, y2: SIZE.bottom };
    $("figure svg", root).replaceChildren(
      svg("rect", { class: "frame", x: SIZE.left, y: SIZE.top, width: SIZE.right - SIZE.left, height: SIZE.bottom - SIZE.top }),
      svg("line", { class: "now", ...at }),
      ...cells.map((_, which) => svg("polyline", {
        stroke: colors[which],
        points: rows.map((row, i) => row[which] === null ? "" : `${x(curve[i]).toFixed(2)},${y(row[which]).toFixed(2)}`).join(" "),
      })),
      start,
      svg("text", { x: SIZE.right, y: SIZE.bottom + 13, "text-anchor": "end" }, written(curve.at(-1))),
      svg("text", { x: SIZE.left + 4, y: SIZE.top + 11 }, end(high)),
      svg("text", { x: SIZE.left + 4, y: SIZE.bottom - 4 }, end(low)),
    );
    $("figcaption i", root).textContent = symbol;
  }

  function show(moved) {
    sliders.forEach((slider, axis) => slider.setAttribute("aria-valuetext", now[axis]));
    formula(...now).forEach((value, which) => { [cells[which].value, cells[which].textContent] = [value, written(value)]; });
    draw(moved);
  }

  ranges.forEach(({ place, fit, stops }, axis) => {
    const field = fields[axis], slider = sliders[axis];
    const nearest = () => stops.reduce((best, stop, i) => Math.abs(place(stop) - place(now[axis])) < Math.abs(place(stops[best]) - place(now[axis])) ? i : best, 0);
    slider.max = stops.length - 1;
    slider.value = nearest();
    slider.addEventListener("input", () => { field.value = now[axis] = stops[slider.value]; show(axis); });
    field.addEventListener("input", () => {
      if (!field.value) return;
      now[axis] = fit(+field.value);
      slider.value = nearest();
      show(axis);
    });
    field.addEventListener("change", () => { field.value = now[axis]; });
  });
  show(Math.min(1, fields.length - 1));
}
$$(".slider:not(.live)").forEach(startSlider);
