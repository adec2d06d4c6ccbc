// The chart of memory against time: the Tab key reaches one of its points; from there the arrow
// keys move along an axis.
const Price = (() => {
  const STEPS = { ArrowLeft: ["x", -1], ArrowRight: ["x", 1], ArrowDown: ["y", -1], ArrowUp: ["y", 1] };

  function next(link, key) {
    const [axis, step] = STEPS[key];
    const order = all(".point a").sort((a, b) => a.dataset[axis] - b.dataset[axis]);
    order[order.indexOf(link) + step]?.focus();
  }

  function onlyTabStop(link) {
    for (const other of all(".point a")) other.tabIndex = other === link ? 0 : -1;
  }

  for (const link of all(".point a")) link.addEventListener("focus", () => onlyTabStop(link));
  if (one(".point a")) onlyTabStop(one(".point a"));
  one(".points")?.addEventListener("keydown", (event) => {
    if (event.key in STEPS) {
      event.preventDefault();
      next(document.activeElement, event.key);
    }
  });
})();
