// What fits my GPU: the stored configurations, and the scripts that fit without changes.
const Ways = (() => {
  const SAFE = 2; // GB that a fit must have to spare, because the allowance is not a measurement

  function show() {
    const [model, card] = [one("#model").value, one("#card").selectedOptions[0]];
    const [gb, named] = [Number(card.dataset.gb), card.value !== card.dataset.gb];
    const those = (part) => part.dataset.model === model && part.dataset.card === card.value;
    for (const part of all(".of-way")) part.hidden = !those(part);
    for (const part of all(".model")) part.hidden = part.dataset.model !== model;
    one("#ask").hidden = all(".of-way").some(those);
    one("#ask .with-name").hidden = !named;
    one("#ask .with-size").hidden = named;
    const name = one(".model:not([hidden])").dataset.name;
    one("#ask .command").textContent = `python -m shared.predict ${named ? "--card" : "--fits"} ${card.value} --model ${name}`;
    showNeeds(gb);
  }

  function showNeeds(gb) {
    const rows = all(".model:not([hidden]) tbody tr");
    for (const row of rows) {
      const spare = gb - Number(row.dataset.needs);
      const verdict = spare >= SAFE ? "yes" : spare >= 0 ? "open" : "no";
      const cell = one(".fits", row);
      cell.textContent = `${verdict}, ${Math.abs(spare).toFixed(1)} GB ${spare >= 0 ? "to spare" : "short"}`;
      cell.className = `fits ${verdict}`;
    }
    const counts = [...new Set(rows.map((row) => row.dataset.gpus))].sort((a, b) => a - b);
    one("#verdict").textContent = counts.map((gpus) => {
      const those = rows.filter((row) => row.dataset.gpus === gpus);
      const first = ["yes", "open"].map((verdict) => those.find((row) => one(`.${verdict}`, row))).find(Boolean);
      const perhaps = first && one(".open", first) ? ", perhaps" : "";
      return `The first that fits on ${gpus === "1" ? "one GPU" : `${gpus} GPUs, each`} of ${Number(gb.toFixed(1))} GB: ${first ? first.cells[0].textContent + perhaps : "none of these"}.`;
    }).join(" ");
  }

  Address.control("model", [one("#model")], show);
  Address.control("card", [one("#card")], show);
})();
