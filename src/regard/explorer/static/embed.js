// The shadow root keeps the styles of the view and of the page apart. The first script renders the
// views of the whole page.
for (const host of document.querySelectorAll(".regard-view")) {
  if (host.shadowRoot) continue;
  const data = JSON.parse(host.querySelector("script").textContent);
  const el = host.attachShadow({ mode: "open" });
  el.append(host.querySelector("style"));
  render({ model: { get: () => data }, el });
}
