// Live figures: takes server-sent events and puts their values into the page. Without it every page
// still shows the figures of the moment it was made.
"use strict";
(() => {
  const live = document.querySelector("[data-live]");
  if (!live || !window.EventSource) return;
  const places = new Map();
  for (const place of document.querySelectorAll("[data-figure]")) places.set(place.dataset.figure, place);
  let source = null;
  const start = () => {
    if (source || document.hidden) return;
    source = new EventSource(live.dataset.live);
    source.addEventListener("figures", (event) => {
      const figures = JSON.parse(event.data);
      for (const [name, text] of Object.entries(figures)) {
        const place = places.get(name);
        if (place && place.textContent !== text) place.textContent = text;
      }
      live.textContent = "Live figures, renewed every few seconds.";
    });
    source.addEventListener("end", () => {
      stop();
      live.textContent = "The live figures ended: load the page again.";
    });
    source.onerror = () => { live.textContent = "The live figures stopped; the browser tries again."; };
  };
  const stop = () => { if (source) { source.close(); source = null; } };
  // A page that nobody looks at asks for nothing.
  document.addEventListener("visibilitychange", () => (document.hidden ? stop() : start()));
  start();
})();
