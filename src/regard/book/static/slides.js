// Slides: keys go to the next and the previous screen.
const slides = [...document.querySelectorAll(".slide")];
const NEXT = ["ArrowRight", "ArrowDown", "PageDown", " ", "j"], PREVIOUS = ["ArrowLeft", "ArrowUp", "PageUp", "k"];

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
  const { key } = event;
  const to = NEXT.includes(key) ? at() + 1 : PREVIOUS.includes(key) ? at() - 1
    : key === "Home" ? 0 : key === "End" ? slides.length - 1 : null;
  if (to === null) return;
  event.preventDefault();
  show(to);
});

document.fonts.ready.then(() => {
  tighten(document);
  reach(document);
});
