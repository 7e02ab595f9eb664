// What the theme leaves to add for keyboards and screen readers.
const scrolling = "pre, .formula, .table-wrapper";

function focusable() {
  for (const box of document.querySelectorAll(scrolling)) {
    if (box.scrollWidth > box.clientWidth) box.tabIndex = 0;
    else box.removeAttribute("tabindex");
  }
}

addEventListener("DOMContentLoaded", () => {
  for (const caption of document.querySelectorAll(".caption[role=heading]")) caption.ariaLevel = "2";
  document.querySelector(".sidebar-drawer")?.setAttribute("aria-label", "Pages");
  document.querySelector(".toc-drawer")?.setAttribute("aria-label", "Sections");
  document.getElementById("search-results")?.insertAdjacentHTML("beforebegin", "<h1>Search</h1>");
  focusable();
});
addEventListener("load", focusable);
addEventListener("resize", focusable);
