// The shadow root keeps the styles of the view and of the page apart.
const host = document.querySelector(".regard-view");
const data = JSON.parse(host.querySelector("script").textContent);
const el = host.attachShadow({ mode: "open" });
el.append(host.querySelector("style"));
render({ model: { get: () => data }, el });
