// The generated text: each token is a button that shows what the model might have generated instead.

import { make, roving } from "./look.js";

export function generatedText(section) {
  const [text, table] = [section.querySelector(".text"), section.querySelector(".candidates")];
  let steps = [];
  const clear = () => { steps = []; text.replaceChildren(); table.replaceChildren(); section.hidden = true; };

  // The text so far includes the prompt if that is continued. A character may need several tokens.
  function add({ name, text: whole, candidates }, prompt) {
    const before = steps.length ? steps[steps.length - 1].whole : whole.startsWith(prompt) ? prompt : "";
    let shared = 0;
    while (shared < before.length && before[shared] === whole[shared]) shared++;
    if (!steps.length) text.append(before);
    else steps[steps.length - 1].token.textContent = whole.slice(steps[steps.length - 1].start, shared);
    const token = make("button", { type: "button", "aria-label": `token “${name}”` }, whole.slice(shared));
    const step = { whole, start: shared, token, name, candidates };
    for (const event of ["mouseenter", "focus"]) token.addEventListener(event, () => show(step));
    steps.push(step);
    text.append(token);
    roving(steps.map((one) => one.token), 1, steps.length - 1);
    section.hidden = false;
    show(step);
    text.scrollTop = text.scrollHeight;
  }

  function show(step) {
    for (const one of steps) one.token.toggleAttribute("data-lit", one === step);
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
