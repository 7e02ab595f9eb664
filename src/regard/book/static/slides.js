// Slides: keys go to the next and the previous screen; an answer behind a question is shown first.
const slides = [...document.querySelectorAll(".slide")];
const NEXT = ["ArrowRight", "ArrowDown", "PageDown", " ", "j"], PREVIOUS = ["ArrowLeft", "ArrowUp", "PageUp", "k"];

for (const answer of document.querySelectorAll(".question .answer")) {
  const slide = answer.parentElement;
  slide.classList.add("hides");
  const button = document.createElement("button");
  button.textContent = "Answer";
  button.addEventListener("click", () => reveal(slide));
  answer.before(button);
}

function reveal(slide) {
  if (!slide.classList.contains("hides")) return false;
  slide.classList.remove("hides");
  slide.querySelector("button").remove();
  return true;
}

function at() {
  return slides.findLastIndex((slide) => slide.getBoundingClientRect().top < innerHeight / 2);
}

function show(index) {
  const slide = slides[Math.min(Math.max(index, 0), slides.length - 1)];
  slide.scrollIntoView({ behavior: "instant" });
  slide.focus({ preventScroll: true });
  history.replaceState(null, "", `#${slide.id}`);
}

addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const { key, target } = event;
  if (key === " " && target instanceof HTMLButtonElement) return;
  if (key.startsWith("Arrow") && target.closest("[tabindex='0']")) return; // a formula that scrolls
  const next = NEXT.includes(key);
  const to = next ? at() + 1 : PREVIOUS.includes(key) ? at() - 1
    : key === "Home" ? 0 : key === "End" ? slides.length - 1 : null;
  if (to === null) return;
  event.preventDefault();
  if (!(next && reveal(slides[at()]))) show(to);
});

document.fonts.ready.then(() => {
  tighten(document);
  reach(document);
});
