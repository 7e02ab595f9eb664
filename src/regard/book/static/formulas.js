// Formulas, on the page and on slides.

// Chromium makes roots as wide as with its widest root sign; this takes the gap after them away.
function tighten(root) {
  for (const sqrt of [...root.querySelectorAll("msqrt")].reverse()) {
    sqrt.style.marginRight = "";
    const inside = sqrt.lastElementChild.getBoundingClientRect(), outside = sqrt.getBoundingClientRect();
    const gap = outside.right - inside.right;
    if (gap > 1) sqrt.style.marginRight = `${-gap}px`;
  }
}

// What scrolls sideways is reached by the Tab key.
function reach(root) {
  for (const box of root.querySelectorAll(".scroll, .formula, .line, .said, .option, p, pre")) {
    const scrolls = box.scrollWidth > box.clientWidth + 1 && getComputedStyle(box).overflowX === "auto";
    if (scrolls) box.tabIndex = 0;
    else box.removeAttribute("tabindex");
  }
}
