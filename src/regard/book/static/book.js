// The book's page: contents, search and keys. It fetches nothing.
const $ = (selector, root = document) => root.querySelector(selector);
const $$ = (selector, root = document) => [...root.querySelectorAll(selector)];

document.documentElement.classList.add("js");

// ---- pages: one question is shown at a time, and a printout has all of them

const nav = $("#contents"), menu = $(".menu"), main = $("main");
const pages = $$(".page");
const links = new Map($$("li a", nav).map((link) => [link.hash.slice(1), link]));
let current = pages[0];

function title(page) {
  const link = links.get(page.id);
  return ((link && $("b", link)) ?? link ?? $("h2, h3", page)).textContent;
}

function show(page) {
  current = page;
  // Hidden until found: a search in the browser still finds it.
  for (const other of pages) other === page ? other.removeAttribute("hidden") : other.setAttribute("hidden", "until-found");
  for (const [id, link] of links) id === page.id ? link.setAttribute("aria-current", "page") : link.removeAttribute("aria-current");
  const link = links.get(page.id);
  if (link) {
    link.closest("details")?.setAttribute("open", "");
    const box = link.getBoundingClientRect();
    if (box.bottom > innerHeight || box.top < 60) nav.scrollTop += box.top - innerHeight / 2;
  }
  const at = pages.indexOf(page);
  for (const [name, step] of [["previous", -1], ["next", 1]]) {
    const to = pages[at + step], turn = $(`.${name}`);
    turn.hidden = !to;
    if (to) [turn.hash, turn.textContent] = [to.id, step < 0 ? `← ${title(to)}` : `${title(to)} →`];
  }
  measure();
}

function measure() {
  tighten(current);
  reach(current);
}
addEventListener("resize", measure);
document.fonts.ready.then(measure);
for (const details of $$("details", main)) details.addEventListener("toggle", measure);

// Shows what the address names: a page, or an element inside one, which is unfolded.
function open(focus = true) {
  const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
  const page = target === main ? current : target?.closest(".page") ?? $(".page", target ?? main);
  show(page);
  let folded = target?.closest("details:not([open])");
  for (; folded; folded = folded.parentElement.closest("details:not([open])")) folded.open = true;
  if (target && target !== page) target.scrollIntoView();
  else scrollTo(0, 0);
  if (focus && target === page) $("h2, h3", page).focus({ preventScroll: true });
}
addEventListener("hashchange", () => open());
for (const page of pages) page.addEventListener("beforematch", () => show(page));
open(false);

function openMenu(opened) {
  nav.toggleAttribute("data-open", opened);
  menu.setAttribute("aria-expanded", opened);
}
menu.addEventListener("click", () => openMenu(!nav.hasAttribute("data-open")));
nav.addEventListener("click", (event) => { if (event.target.closest("a")) openMenu(false); });

// A printout has what is folded on the screen.
let folded = [];
addEventListener("beforeprint", () => {
  folded = $$("details:not([open], .explorer-view)", main);
  for (const details of folded) details.open = true;
});
addEventListener("afterprint", () => { for (const details of folded) details.open = false; });

// ---- keys

const KEYS = { j: 1, ArrowRight: 1, k: -1, ArrowLeft: -1 };
addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || (event.shiftKey && event.key !== "/")) return;
  if (event.key === "Escape") openMenu(false);
  const scrolls = event.key.startsWith("Arrow") && event.target.closest("[tabindex='0']");
  if (scrolls || event.target.closest("input, select, textarea")) return;
  if (event.key === "/") { event.preventDefault(); openMenu(true); field.focus(); }
  const to = pages[pages.indexOf(current) + KEYS[event.key]];
  if (to) { event.preventDefault(); location.hash = to.id; }
});

// ---- search

const field = $("input", nav), found = $("form output", nav);
// Without the data of views.
const wordsOf = (part) => $$("script", part).reduce((text, data) => text.replace(data.textContent, ""), part.textContent).toLowerCase();
const texts = new Map($$("article").map((part) => [part.id, wordsOf(part)]));

function search() {
  const words = field.value.toLowerCase().split(/\s+/).filter(Boolean);
  let hits = 0;
  for (const [id, text] of texts) {
    const hit = words.every((word) => text.includes(word));
    links.get(id).parentElement.hidden = !hit;
    hits += hit;
  }
  for (const course of $$("details", nav)) {
    course.hidden = !$("li:not([hidden])", course);
    if (words.length) course.open = true;
  }
  found.textContent = words.length ? `${hits} of ${texts.size} pages` : "";
}
field.addEventListener("input", search);
$("form", nav).addEventListener("submit", (event) => {
  event.preventDefault();
  const first = $("details li:not([hidden]) a", nav);
  if (field.value && first) first.click();
});

// ---- views of the explorer: each is the page that all share, with its own data

function look(details) {
  const { page } = JSON.parse($("#explorer-page").textContent);
  $("iframe", details).srcdoc = page.replace('{"title":""}', () => $("script", details).textContent);
}
for (const details of $$(".explorer-view")) details.addEventListener("toggle", () => look(details), { once: true });
