// Interactive timelines: at every moment of an update, the pass, the module, the lines at work, and
// what holds the memory. The pointer, touch or the arrow keys choose a moment.
const { categories: CATEGORIES, scripts: MOMENTS } = data("moments");
const Timeline = (() => {
  const PLACES = { device: "on the emulated GPU", host: "on the host" };
  const KEYS = { ArrowLeft: -1, ArrowDown: -1, ArrowRight: 1, ArrowUp: 1, PageDown: -10, PageUp: 10 };
  const LEAST = 0.05; // MB; a category that never holds more is not listed
  const mounted = [];

  const parts = (moments) => ["device", "host"].filter((part) => moments[part]);
  const most = (moments, part = "device") => Math.max(...Canvas.total(moments[part]));
  const passes = ({ phases }) => phases.filter((phase, i) => phase !== phases[i - 1]).length;
  const peak = (moments) => Canvas.total(moments.device).indexOf(most(moments));

  // Return the top of the scale, of a stage and the one before. It must not reveal what is still to
  // be guessed.
  function top({ moments, before, unseen }) {
    const every = Object.values(MOMENTS).filter((other) => other.setting === moments.setting);
    const pair = [unseen ? null : moments, MOMENTS[before]].filter(Boolean);
    const those = pair.length ? pair : every;
    return (unseen ? 1.25 : 1.12) * Math.max(...those.flatMap((each) => parts(each).map((part) => most(each, part))));
  }

  // Return the tensors of a category that are alive after an event, the largest first.
  function largest(moments, part, category, event) {
    const { texts, tensors } = moments;
    const columns = tensors[part];
    const text = (key, n) => (columns[key][n] === null ? "" : texts[columns[key][n]]);
    return columns.nbytes.map((_, n) => n)
      .filter((n) => text("category", n) === category && columns.born[n] <= event && (columns.freed[n] ?? Infinity) > event)
      .sort((a, b) => columns.nbytes[b] - columns.nbytes[a] || columns.born[a] - columns.born[b])
      .slice(0, 10)
      .map((n) => [text("module", n), text("shape", n), text("dtype", n), size(columns.nbytes[n] / 1e6)]);
  }

  class Figure {
    // Prepare a figure for a script, which draw() then shows; before is the script whose ghost is behind it, if any.
    constructor(figure, script, { before } = {}) {
      // In the quiz, unseen means: still to be guessed.
      Object.assign(this, { figure, script, scale: top, moments: MOMENTS[script], category: null, part: "device", unseen: false });
      this.before = before && MOMENTS[before]?.setting === this.moments.setting ? before : null;
      // Stretched to the same width, a forward pass must not lie behind a backward pass.
      this.ghost = this.before && passes(MOMENTS[before]) === passes(this.moments) ? MOMENTS[before] : null;
      this.boxes = parts(this.moments).map((part) => this.box(part));
      const told = element("p", { class: "under" }, "From left to right: allocations and frees in order, not time.");
      one(".canvases", figure).replaceChildren(...this.boxes.flatMap(({ title, box }) => [title, box]), told);
      this.at = peak(this.moments);
    }

    box(part) {
      const title = element("p", { class: "place" }, PLACES[part]);
      const box = element("div", { class: "canvas", role: "slider", tabindex: "0", "aria-valuemin": "0",
        "aria-valuemax": String(this.moments.at.length - 1), "aria-label": `Moment of an update of ${this.script}, ${PLACES[part]}` });
      const scrub = (event) => {
        const { left, width } = box.getBoundingClientRect();
        this.choose(this.nearest((event.clientX - left) / width));
      };
      let pressed = null; // the category where the pointer went down, and its x
      box.addEventListener("pointerdown", (event) => {
        if (this.unseen) return;
        pressed = [event.target.dataset.category, event.clientX];
        box.setPointerCapture(event.pointerId);
        scrub(event);
      });
      box.addEventListener("pointermove", (event) => !this.unseen && box.hasPointerCapture(event.pointerId) && scrub(event));
      // After a capture, a click event would have the whole box as its target.
      box.addEventListener("pointerup", (event) => {
        const [category, x] = pressed ?? [];
        if (category && Math.abs(event.clientX - x) < 4) this.pick(part, category);
        pressed = null;
      });
      box.addEventListener("keydown", (event) => this.key(event));
      return { part, title, box };
    }

    nearest(share) {
      const event = share * (this.moments.events - 1);
      const later = this.moments.at.findIndex((at) => at > event);
      return later < 0 ? this.moments.at.length - 1 : Math.max(later - 1, 0);
    }

    key(event) {
      const last = this.moments.at.length - 1;
      const to = event.key === "Home" ? 0 : event.key === "End" ? last : this.at + KEYS[event.key];
      if (Number.isNaN(to) || this.unseen || modified(event)) return;
      event.preventDefault();
      event.stopPropagation();
      this.choose(Math.min(Math.max(to, 0), last));
    }

    choose(n) {
      Address.set("moment", [this.script, this.moments.at[n], ...(this.category ? [this.part, this.category] : [])].join("@"));
    }

    pick(part, category) {
      const again = this.category === category && this.part === part;
      Object.assign(this, { part, category: again ? null : category });
      this.choose(this.at);
    }

    draw() {
      const scale = this.scale(this);
      for (const { part, box } of this.boxes) Canvas.draw(box, this.moments, part, scale, this.ghost);
      this.show(this.at);
    }

    show(n) {
      this.at = n;
      const { moments } = this;
      const event = moments.at[n];
      const module = moments.modules[n] === null ? null : moments.texts[moments.modules[n]] || "the whole model";
      const phase = moments.phases[n] === "step" ? "step" : `${moments.phases[n]} pass`;
      const together = !this.unseen && size(Canvas.total(moments.device)[n]);
      const lines = [moments.lines[n], moments.chosen[n]];
      const said = [phase, module, together, lines[0] && `line ${lines[0]}: ${this.code(lines[0])}`].filter(Boolean).join(", ");
      for (const { box } of this.boxes) {
        one(".cursor", box).style.left = `${(100 * event) / Math.max(moments.events - 1, 1)}%`;
        box.setAttribute("aria-valuenow", n);
        box.setAttribute("aria-valuetext", said);
      }
      one(".reading", this.figure).replaceChildren(...this.reading(n, phase, module));
      this.light(lines);
    }

    reading(n, phase, module) {
      const { moments } = this;
      const event = (moments.at[n] + 1).toLocaleString("en");
      const told = element("p", { class: "moment" }, element("b", {}, phase), module ? ` in ${module}` : "",
        element("span", { class: "note" }, ` ${event} of ${moments.events.toLocaleString("en")} allocations and frees`));
      const lists = parts(moments).map((part) => this.list(part, n));
      const back = element("button", { type: "button", class: "to-peak" }, "To the peak");
      back.addEventListener("click", () => this.choose(peak(moments)));
      return [told, ...lists, back, ...(this.category ? [this.tensors(n)] : [])];
    }

    list(part, n) {
      const held = this.moments[part];
      const items = CATEGORIES.filter((label) => held[label]?.some((mb) => mb >= LEAST)).map((label) => {
        const pressed = String(this.category === label && this.part === part);
        const swatch = element("i", {});
        swatch.style.background = color(label);
        const button = element("button", { type: "button", "aria-pressed": pressed, "data-category": label },
          swatch, `${label} `, element("b", {}, size(held[label][n])));
        button.addEventListener("click", () => {
          this.pick(part, label);
          one(`.held[data-part=${part}] [data-category="${label}"]`, this.figure).focus();
        });
        return element("li", {}, button);
      });
      const sum = element("li", { class: "sum" }, `${PLACES[part]} `, element("b", {}, size(Canvas.total(held)[n])));
      return element("ul", { class: "held", "data-part": part }, sum, ...items);
    }

    tensors(n) {
      const { moments, part, category } = this;
      const rows = largest(moments, part, category, moments.at[n]);
      if (!rows.length) return element("p", { class: "note" }, `No ${category} are ${PLACES[part]} at this moment.`);
      const cells = (kind, texts) => element("tr", {}, ...texts.map((text) => element(kind, {}, text)));
      const heading = element("thead", {}, cells("th", ["module", "shape", "type", "size"]));
      return element("div", { class: "wide largest" }, element("table", {},
        element("caption", {}, rows.length < 10 ? `All ${category}` : `The ten largest of the ${category}`), heading,
        element("tbody", {}, ...rows.map((texts) => cells("td", texts)))));
    }

    code(line) {
      const text = one(`.source [data-line="${line}"] code`, this.figure)?.textContent ?? "";
      return text.split("  # ")[0].trim();
    }

    // Light up the line that runs, and the one that chose what runs.
    light([running, chosen]) {
      for (const item of all(".source li", this.figure)) {
        const line = Number(item.dataset.line);
        item.classList.toggle("runs", line === running);
        item.classList.toggle("chose", line === chosen);
      }
      const source = one(".source", this.figure);
      // Only what is shown has a position, and asking for it takes long.
      const lit = source?.checkVisibility() && one(".runs, .chose", source);
      if (lit) source.scrollTop = lit.offsetTop - source.clientHeight / 2;
    }
  }

  // Show the moment in the address: SCRIPT@EVENT, or SCRIPT@EVENT@PART@CATEGORY.
  function tell(moment) {
    const [script, event, part, category] = moment.split("@");
    const figure = mounted.find((each) => each.script === script);
    const n = figure?.moments.at.indexOf(Number(event)) ?? -1;
    if (n < 0) return;
    Object.assign(figure, CATEGORIES.includes(category) && parts(figure.moments).includes(part) ? { part, category } : { category: null });
    figure.show(n);
  }

  function start() {
    for (const figure of all("article .moments")) {
      const { script } = figure.dataset;
      const { before } = MOMENTS[script];
      // Beside a stage before that needs far more, this one would be a line at the bottom.
      const far = before && most(MOMENTS[before]) > 5 * most(MOMENTS[script]);
      const made = new Figure(figure, script, { before: far ? null : before });
      mounted.push(made);
      for (const text of all(".of-ghost", figure.parentElement)) text.hidden = !made.ghost;
    }
    mounted.forEach((figure) => figure.draw());
    Address.keep("moment", "", tell);
    // A line has a position only once its stage is shown.
    Address.onArrival(() => mounted.filter(({ figure }) => figure.checkVisibility()).forEach((each) => each.show(each.at)));
  }

  return { start, mounted };
})();
