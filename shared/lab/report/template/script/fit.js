// "Will it fit?": what is stored about a model, on the chosen card, the fastest first.
const Fit = (() => {
  const { cards: CARDS, rows: ROWS, open_gb: OPEN_GB } = data("fit");
  const inputs = ["model", "gpus", "at-once", "card"].map((name) => one(`#${name}`));
  const [model, gpus, atOnce, card] = inputs;
  const gb = (number) => `${number.toFixed(1)} GB`;

  // Fill a select with what there is to choose from, [value, text]; keep the choice if it is there.
  function fill(select, choices) {
    const { value } = select;
    select.replaceChildren(...choices.map(([key, text]) => element("option", { value: key }, text)));
    if (choices.some(([key]) => String(key) === value)) select.value = value;
  }

  const distinct = (rows, key) => [...new Set(rows.map((row) => row[key]))].sort((a, b) => a - b);

  function time({ ms, unit, at_least: least }) {
    return ms === null ? "not emulated" : `${least ? "at least " : ""}${ms.toPrecision(3)} ms`;
  }

  function table(rows, room) {
    const cells = (kind, texts) => element("tr", {}, ...texts.map((text) => element(kind, {}, text)));
    const body = rows.map((row) => cells("td", [
      element("span", {}, element("code", {}, row.name), element("small", {}, row.idea)), `${row.at_once} of ${row.per_update}`, gb(row.needs_gb),
      row.needs_gb > room ? "no" : room - row.needs_gb < OPEN_GB ? "tightly" : "yes", time(row)]));
    const heads = ["script", `${rows[0].unit} at once`, "a card needs", "fits", `for one ${rows[0].unit.slice(0, -1)}`];
    return element("div", { class: "wide" }, element("table", {}, element("thead", {}, cells("th", heads)), element("tbody", {}, ...body)));
  }

  function show() {
    const ofModel = ROWS.filter((row) => row.model === model.value);
    fill(gpus, distinct(ofModel, "gpus").map((n) => [n, n === 1 ? "one GPU" : `${n} GPUs`]));
    const onGpus = ofModel.filter((row) => String(row.gpus) === gpus.value);
    fill(atOnce, [["", "any number"], ...distinct(onGpus, "at_once").map((n) => [n, n])]);
    const chosen = onGpus.filter((row) => !atOnce.value || String(row.at_once) === atOnce.value);
    const [key, , room] = CARDS.find(([name]) => name === card.value);
    const fits = chosen.filter((row) => row.needs_gb <= room).sort((a, b) => (a.ms ?? Infinity) - (b.ms ?? Infinity));
    const others = chosen.filter((row) => row.needs_gb > room).sort((a, b) => a.needs_gb - b.needs_gb);
    const [best] = fits.length ? fits : others;
    const first = best.ms === null ? "but their time was not emulated" : `and ${best.name} is the fastest, as emulated`;
    const said = fits.length ? `${fits.length} of ${chosen.length} scripts fit, ${first}`
      : `none of ${chosen.length} scripts fits, and the smallest, ${best.name}, needs ${gb(best.needs_gb)}`;
    one("#fits").replaceChildren(element("p", { class: "verdict" }, `On a card with ${gb(room)}, ${said}.`), table([...fits, ...others], room));
    one("#own-card").textContent = key;
  }

  fill(model, [...new Set(ROWS.map((row) => row.model))].map((name) => [name, name]));
  fill(card, CARDS.map(([key, title]) => [key, title]));
  model.value = "vit_l_16 at 224 px";
  card.value = "rtx4090";
  for (const input of inputs) {
    input.addEventListener("change", () => {
      show();
      if (document.body.dataset.door !== "fit") Address.visit("fit");
    });
  }
  show();
})();
