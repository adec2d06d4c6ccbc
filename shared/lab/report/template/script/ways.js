// What fits my GPU: the stored configurations.
const Ways = (() => {
  function show() {
    const [model, card] = [one("#model").value, one("#card").selectedOptions[0]];
    const named = card.value !== card.dataset.gb;
    const those = (part) => part.dataset.model === model && part.dataset.card === card.value;
    for (const part of all(".of-way")) part.hidden = !those(part);
    one("#ask").hidden = all(".of-way").some(those);
    one("#ask .with-name").hidden = !named;
    one("#ask .with-size").hidden = named;
    const { name } = one("#model").selectedOptions[0].dataset;
    one("#ask .command").textContent = `python -m shared predict ${named ? "--card" : "--fits"} ${card.value} --model ${name}`;
  }

  Address.control("model", [one("#model")], show);
  Address.control("card", [one("#card")], show);
})();
