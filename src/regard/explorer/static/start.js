const data = JSON.parse(document.querySelector("script[type='application/json']").textContent);
render({ model: { get: () => data }, el: document.querySelector("main") });
