// Lessons: views of the live model on the reader's own sentence.

const model = (() => {
  let loaded;
  return () => (loaded ??= loadModel(JSON.parse($("#live-model").textContent)));
})();

const html = (name, attributes = {}, ...children) => filled(document.createElement(name), attributes, children);
const shownToken = (id) => model().tokens[id].replace(" ", "␣").replace("<unknown>", "?");
const rounded = (value, digits = 2) => value.toFixed(digits).replace(/^-(0\.?0*)$/, "$1").replace("-", "−");
const percent = (value) => `${Math.round(100 * value)}\u00a0%`;

// ---- controls: each returns a function that reads its value, which is shown in bold

class Controls {
  constructor(root, text, start, redraw) { Object.assign(this, { root, text, start, redraw }); }

  add(label, input, ...after) {
    input.addEventListener("input", () => this.redraw());
    this.root.append(html("label", {}, label, " ", ...after, input));
    return input;
  }

  range(label, { min, max, step = 1, value, show = String }) {
    const output = html("b"), input = this.add(label, html("input", { type: "range", min, max, step, value }), output);
    return () => {
      output.textContent = show(+input.value);
      input.setAttribute("aria-valuetext", output.textContent);
      return +input.value;
    };
  }

  // The position of a token; at first that of the last one.
  token(label) {
    const output = html("b"), input = this.add(label, html("input", { type: "range", min: 0, max: 1000, value: 1000 }), output);
    return (ids) => {
      input.max = ids.length - 1;
      output.textContent = `${+input.value + 1}: ${shownToken(ids[input.value])}`;
      input.setAttribute("aria-valuetext", output.textContent);
      return +input.value;
    };
  }

  head() {
    const { n_layers, n_heads } = model().config;
    const places = Array.from({ length: n_layers * n_heads }, (_, i) => [Math.floor(i / n_heads) + 1, (i % n_heads) + 1]);
    const options = places.map(([layer, head]) => html("option", { value: `${layer}.${head}` }, `layer ${layer}, head ${head}`));
    const select = this.add("Head", html("select", {}, ...options));
    select.value = this.start;
    return (layers) => {
      const [layer, head] = select.value.split(".");
      return layers[layer - 1][head - 1];
    };
  }

  check(label) {
    const input = html("input", { type: "checkbox" });
    this.add(label, input);
    return () => input.checked;
  }

  button(label, act) {
    const button = html("button", { type: "button" }, label);
    button.addEventListener("click", act);
    this.root.append(button);
    return button;
  }
}

// ---- drawings

// Each token with its weight as a bar.
function bars(ids, weights, name) {
  const cells = ids.map((id, i) => {
    const bar = html("i");
    bar.style.height = `${100 * (weights[i] ?? 0)}%`;
    return html("span", { class: "cell", title: `${shownToken(id)}: ${rounded(weights[i] ?? 0)}` }, html("span", { class: "bar" }, bar), shownToken(id));
  });
  return html("div", { class: "cells", role: "img", "aria-label": name }, ...cells);
}

// A vector as a strip of squares: blue is positive, orange negative, the strongest is `most`.
function strip(vector, most, name) {
  const squares = Array.from(vector, (value, i) => svg("rect", {
    x: 4 * i, y: 0, width: 4, height: 12, class: value > 0 ? "positive" : "negative", "fill-opacity": Math.min(1, Math.abs(value) / most).toFixed(2),
  }));
  const drawing = svg("svg", { class: "strip", viewBox: `0 0 ${4 * vector.length} 12`, role: "img", "aria-label": name });
  drawing.replaceChildren(...squares);
  return drawing;
}

// Weights of a head: a row for each query, a column for each key.
function map(ids, weights, name, labels = true) {
  const before = labels ? 14 : 0, size = 10 * ids.length + before;
  const drawing = svg("svg", { class: labels ? "map" : "map small", viewBox: `0 0 ${size} ${size}`, role: "img", "aria-label": name });
  const square = (i, j, weight) => svg("rect", { x: before + 10 * j, y: before + 10 * i, width: 10, height: 10, "fill-opacity": weight.toFixed(2) });
  const letter = (id, x, y) => svg("text", { x, y, "text-anchor": "middle" }, shownToken(id));
  drawing.replaceChildren(
    svg("rect", { class: "frame", x: before, y: before, width: 10 * ids.length, height: 10 * ids.length }),
    ...weights.flatMap((row, i) => row.flatMap((weight, j) => (weight > 0.01 ? [square(i, j, weight)] : []))),
    ...(labels ? ids.flatMap((id, i) => [letter(id, before + 10 * i + 5, 10), letter(id, 6, before + 10 * i + 8.5)]) : []),
  );
  return drawing;
}

function table(heads, rows) {
  const line = (cells, name, scope) => html("tr", {}, ...cells.map((cell) => html(name, scope, cell)));
  const body = rows.map(([first, ...rest]) => {
    const row = line(rest, "td", {});
    row.prepend(html("th", { scope: "row" }, first));
    return row;
  });
  return html("div", { class: "scroll", role: "group", "aria-label": "numbers" },
    html("table", {}, html("thead", {}, line(heads, "th", { scope: "col" })), html("tbody", {}, ...body)));
}

const say = (text) => html("p", { class: "soft" }, text);

// ---- views: each adds its controls, and returns a function that draws a sentence

const ROWS = 6;
const bits = (weights) => weights.reduce((sum, weight) => sum - (weight ? weight * Math.log2(weight) : 0), 0);
const mean = (values) => values.reduce((a, b) => a + b, 0) / values.length;

const loss = (ids, logits) => (ids.length > 1 ? mean(ids.slice(1).map((id, i) => -Math.log(softmax(logits[i])[id]))) : 0);

const VIEWS = {
  head(controls) {
    const head = controls.head(), token = controls.token("Query");
    return ({ ids, layers }) => {
      const at = token(ids), { q, k, v, scores, weights, output } = head(layers), row = weights[at];
      const shown = ids.map((_, j) => j).slice(0, at + 1).sort((i, j) => row[j] - row[i]).slice(0, ROWS);
      const most = (vectors) => Math.max(...vectors.flatMap((vector) => vector.map(Math.abs)));
      const keys = most([q[at], ...shown.map((j) => k[j])]), values = most([output[at], ...shown.map((j) => v[j])]);
      const rest = at + 1 - shown.length, left = 1 - shown.reduce((sum, j) => sum + row[j], 0);
      return [
        bars(ids, row, `weights of the query ${shownToken(ids[at])}`),
        table(["token", "q, k", "q·k / √d", "weight", "v, output"], [
          [`query ${shownToken(ids[at])}`, strip(q[at], keys, "query"), "", "", ""],
          ...shown.map((j) => [`${j + 1}: ${shownToken(ids[j])}`, strip(k[j], keys, "key"), rounded(scores[at][j]), rounded(row[j]), strip(v[j], values, "value")]),
          ...(rest ? [[`${rest} more`, "", "", rounded(Math.max(0, left)), ""]] : []),
          ["weighted sum", "", "", "1.00", strip(output[at], values, "output")],
        ]),
        say("Bars: weight of each token. Strips: the numbers of a vector, blue positive, orange negative. Rows: the tokens with the largest weights."),
      ];
    };
  },

  scale(controls) {
    const head = controls.head(), token = controls.token("Query");
    const divisor = controls.range("Scores q·k divided by", { min: -4, max: 12, value: 0, show: (power) => rounded(2 ** (power / 2)) });
    return ({ ids, layers }) => {
      const at = token(ids), { q, k, weights } = head(layers), by = 2 ** (divisor() / 2);
      const other = softmax(k.slice(0, at + 1).map((key) => dot(q[at], key) / by));
      const root = Math.sqrt(q[at].length), numbers = (row) => [rounded(Math.max(...row)), `${rounded(bits(row))} bits`];
      return [
        html("p", {}, `Divided by √${q[at].length} = ${rounded(root)}, as trained`), bars(ids, weights[at], "weights of scaled scores"),
        html("p", {}, `Divided by ${rounded(by)}`), bars(ids, other, `weights of scores divided by ${rounded(by)}`),
        table(["divisor", "largest weight", "entropy"], [[`√${q[at].length}`, ...numbers(weights[at].slice(0, at + 1))], [rounded(by), ...numbers(other)]]),
      ];
    };
  },

  mask(controls) {
    const head = controls.head(), visible = controls.check("Show later tokens to the query");
    return ({ ids, layers }) => {
      const { scores, weights } = head(layers), seen = visible();
      return [
        map(ids, seen ? scores.map(softmax) : weights, seen ? "weights without a mask" : "weights with a causal mask"),
        say("A row for each query, a column for each key. Each row sums to 1, with and without the mask."),
      ];
    };
  },

  positions(controls) {
    const head = controls.head(), same = controls.check("Give all tokens position 1");
    controls.button("Shuffle the words", () => {
      const words = controls.text.value.split(" ");
      for (let i = words.length - 1; i > 0; i--) {
        const j = Math.floor(Math.random() * (i + 1));
        [words[i], words[j]] = [words[j], words[i]];
      }
      controls.text.value = words.join(" ");
      controls.redraw();
    });
    return ({ ids, layers }) => {
      const found = same() ? forward(model(), ids, ids.map(() => 0)).layers : layers;
      return [
        map(ids, head(found).weights, same() ? "weights, all tokens at position 1" : "weights with positions"),
        say("A row for each query, a column for each key. At one position, equal characters have equal weights in the first layer."),
      ];
    };
  },

  heads() {
    return ({ ids, layers }) => {
      const maps = layers.flatMap((heads, layer) => heads.map(({ weights }, head) => {
        const name = `layer ${layer + 1}, head ${head + 1}`;
        const share = (weight) => percent(ids.length > 1 ? mean(weights.slice(1).map(weight)) : 0);
        const spaces = (row) => row.reduce((sum, weight, j) => sum + (shownToken(ids[j]) === "␣" ? weight : 0), 0);
        const shares = `previous ${share((row, i) => row[i])}, spaces ${share(spaces)}, first ${share((row) => row[0])}`;
        return html("figure", {}, map(ids, weights, `weights of ${name}`, false), html("figcaption", {}, html("b", {}, name), html("br"), shares));
      }));
      return [html("div", { class: "maps" }, ...maps), say("Mean weights of the previous token, of all spaces and of the first token, from the second query on.")];
    };
  },

  next(controls) {
    const temperature = controls.range("Temperature", { min: 0.1, max: 2, step: 0.1, value: 1, show: (t) => rounded(t, 1) });
    const top = controls.range("Top k", { min: 1, max: 20, value: 20 });
    const sorted = (logits) => [...logits.keys()].sort((i, j) => logits[j] - logits[i]).slice(0, top());
    const chances = (logits) => {
      const kept = sorted(logits), by = temperature();
      return kept.map((id, i) => [id, softmax(kept.map((each) => logits[each] / by))[i]]);
    };
    let written = "", writing = 0;
    const write = (left, prompt) => {
      const ids = encode(model(), prompt + written);
      if (!left || !ids.length || ids.length >= model().config.context_length) return;
      let rest = Math.random();
      const likely = chances(forward(model(), ids).logits.at(-1));
      const [id] = likely.find(([, chance]) => (rest -= chance) <= 0) ?? likely[0];
      if (model().tokens[id].length > 1) return; // a special token ends the text
      written += model().tokens[id];
      controls.redraw(false);
      writing = setTimeout(() => write(left - 1, prompt), 0);
    };
    controls.button("Write 60 characters", () => {
      clearTimeout(writing);
      written = "";
      write(60, controls.text.value);
    });
    return ({ ids, logits, changed }) => {
      if (changed) { clearTimeout(writing); written = ""; }
      const likely = chances(logits.at(-1)).slice(0, ROWS);
      return [
        html("p", { class: "written" }, controls.text.value, html("b", {}, written)),
        table(["next token", "probability"], likely.map(([id, chance]) => {
          const bar = html("i", { class: "chance" });
          bar.style.width = `${100 * chance}%`;
          return [shownToken(id), html("span", { class: "chances" }, percent(chance), bar)];
        })),
        say(`Loss of the text that you typed: ${rounded(loss(ids, logits))} nats per character. A uniform guess: ${rounded(Math.log(model().tokens.length))}.`),
      ];
    };
  },
};

function startLive(root) {
  const text = $("input", root), stage = $(".stage", root);
  const controls = new Controls($(".controls", root), text, root.dataset.head, (changed = true) => {
    const ids = encode(model(), text.value).slice(0, model().config.context_length);
    stage.replaceChildren(...(ids.length ? draw({ ids, changed, ...forward(model(), ids) }) : [say("Type a sentence.")]));
    measure();
  });
  const draw = VIEWS[root.dataset.view](controls);
  text.addEventListener("input", () => controls.redraw());
  for (const button of $$(".examples button", root)) {
    button.addEventListener("click", () => { text.value = button.textContent; controls.redraw(); });
  }
  controls.redraw();
}

// A view starts when its answer is opened for the first time.
for (const root of $$(".live")) root.closest("details").addEventListener("toggle", () => startLive(root), { once: true });
