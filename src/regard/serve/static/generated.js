// The generated text: each token is a button that shows what the model might have generated instead.

import { make } from "./look.js";

const NEIGHBORS = { ArrowRight: "nextElementSibling", ArrowDown: "nextElementSibling", ArrowLeft: "previousElementSibling", ArrowUp: "previousElementSibling" };

export function generatedText(section) {
  const [text, table] = [section.querySelector(".text"), section.querySelector(".candidates")];
  let [last, lit] = [null, null]; // the latest step, and the one whose candidates are shown
  const clear = () => { last = lit = null; text.replaceChildren(); table.replaceChildren(); section.hidden = true; };

  text.addEventListener("keydown", (event) => {
    const neighbor = event.target[NEIGHBORS[event.key]];
    if (neighbor) { event.preventDefault(); neighbor.focus(); }
  });

  // The text so far includes the prompt if that is continued. A character may need several tokens.
  function add({ name, before, text: whole, candidates }) {
    let start = 0;
    while (start < before.length && before[start] === whole[start]) start++;
    if (last) last.token.textContent = whole.slice(last.start, start);
    else text.append(before);
    const token = make("button", { type: "button", "aria-label": `token “${name}”` }, whole.slice(start));
    const step = last = { start, token, name, candidates };
    for (const event of ["mouseenter", "focus"]) token.addEventListener(event, () => show(step));
    text.append(token);
    section.hidden = false;
    show(step);
    text.scrollTop = text.scrollHeight;
  }

  // The token shown is the only stop of the Tab key.
  function show(step) {
    lit?.token.removeAttribute("data-lit");
    lit?.token.setAttribute("tabindex", "-1");
    lit = step;
    step.token.setAttribute("data-lit", "");
    step.token.setAttribute("tabindex", "0");
    table.replaceChildren(make("caption", {}, `probabilities before “${step.name}”`), ...step.candidates.map(([name, probability]) => rowOf(name, probability, name === step.name)));
  }

  return { add, clear };
}

function rowOf(name, probability, chosen) {
  const row = make("tr", {}, make("th", { scope: "row" }, make(chosen ? "strong" : "span", {}, `“${name}”`)));
  const bar = make("span", { class: "share", style: `width: ${100 * probability}%` });
  row.append(make("td", {}, probability.toFixed(3)), make("td", { "aria-hidden": "true" }, bar));
  return row;
}
