// Draw what holds the memory during one update. Sizes are in MB; x is the number of an event.
const Canvas = (() => {
  const SVG = "http://www.w3.org/2000/svg";
  const UNITS = 1000; // width and height of the drawing, which is stretched to its box

  function svg(name, attributes, ...children) {
    const made = document.createElementNS(SVG, name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    made.append(...children);
    return made;
  }

  const total = (held) => Object.values(held).reduce((sum, sizes) => sum.map((mb, i) => mb + sizes[i]),
    Array(Object.values(held)[0].length).fill(0));

  // Return the path of an area whose height changes at xs, and holds in between.
  function steps(xs, low, high) {
    const there = xs.slice(1).map((x, i) => `H${x}V${high[i + 1]}`).join("");
    const back = xs.slice(0, -1).map((_, i) => `H${xs[xs.length - 1 - i]}V${low[low.length - 2 - i]}`).join("");
    return `M${xs[0]} ${high[0]}${there}V${low.at(-1)}${back}H${xs[0]}Z`;
  }

  // Return four to eight round sizes from 0 up to top.
  function ticks(top) {
    const power = 10 ** Math.floor(Math.log10(top));
    const step = [power / 5, power / 2, power, 2 * power].find((s) => top / s <= 8);
    return Array.from({ length: Math.floor(top / step) + 1 }, (_, n) => n * step);
  }

  const round = (mb) => (mb === 0 ? "0" : mb >= 1000 ? `${+(mb / 1000).toFixed(2)} GB` : `${+mb.toFixed(1)} MB`);

  function scales(moments, top) {
    const last = Math.max(moments.events - 1, 1);
    const x = (event) => +((UNITS * event) / last).toFixed(1);
    const y = (mb) => +Math.max(0, UNITS * (1 - mb / top)).toFixed(1);
    return { x, y };
  }

  function areas(moments, part, top) {
    const { x, y } = scales(moments, top);
    const xs = moments.at.map(x);
    let below = Array(xs.length).fill(0);
    return CATEGORIES.filter((label) => moments[part][label]).map((label) => {
      const above = below.map((mb, i) => mb + moments[part][label][i]);
      const path = svg("path", { d: steps(xs, below.map(y), above.map(y)), "data-category": label });
      path.style.fill = color(label);
      below = above;
      return path;
    });
  }

  // Return the stage before, as an area behind and a line in front.
  function ghost(moments, part, top) {
    if (!moments?.[part]) return [];
    const { x, y } = scales(moments, top);
    const sums = total(moments[part]);
    const d = steps(moments.at.map(x), sums.map(() => UNITS), sums.map(y));
    return [svg("path", { d, class: "ghost" }), svg("path", { d, class: "ghost-line" })];
  }

  function passes(moments) {
    const starts = moments.phases.flatMap((phase, i) => (i && phase === moments.phases[i - 1] ? [] : [i]));
    return starts.map((begin, n) => {
      const from = moments.at[begin];
      const to = n + 1 < starts.length ? moments.at[starts[n + 1]] : moments.events - 1;
      const wide = (100 * (to - from)) / Math.max(moments.events - 1, 1);
      const made = element("div", { class: `pass ${moments.phases[begin]}` }, element("span", {}, moments.phases[begin]));
      made.style.left = `${(100 * from) / Math.max(moments.events - 1, 1)}%`;
      made.style.width = `${wide}%`;
      return made;
    });
  }

  // Fill a box with the drawing of one part, "device" or "host", up to top.
  function draw(box, moments, part, top, before) {
    const behind = ghost(before, part, top);
    const grid = ticks(top).map((mb) => `M0 ${scales(moments, top).y(mb)}H${UNITS}`).join("");
    const picture = svg("svg", { viewBox: `0 0 ${UNITS} ${UNITS}`, preserveAspectRatio: "none", "aria-hidden": "true" },
      svg("path", { d: grid, class: "grid" }), ...behind.slice(0, 1), ...areas(moments, part, top), ...behind.slice(1));
    const marks = ticks(top).map((mb) => {
      const mark = element("span", { class: "tick" }, round(mb));
      mark.style.top = `${100 * (1 - mb / top)}%`;
      return mark;
    });
    const sums = total(moments[part]);
    const most = Math.max(...sums);
    const at = moments.at[sums.indexOf(most)] / Math.max(moments.events - 1, 1);
    const rounded = part === "device" && moments.rounded ? " without rounding" : "";
    const peak = element("span", { class: "top" }, `▼ ${size(most)}${rounded}`);
    // A mark centered on the peak would run over the edge.
    peak.style.cssText = `bottom:${Math.min(100 * (most / top), 100)}%;left:${100 * at}%;translate:${-100 * at}% 0`;
    box.replaceChildren(...passes(moments), picture, ...marks, peak, element("span", { class: "cursor" }));
  }

  return { draw, total };
})();
