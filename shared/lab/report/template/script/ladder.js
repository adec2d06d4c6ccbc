// The chart of the ladder: bars of one file of records.
const Ladder = (() => {
  Address.control("chart", [one("#dataset")], (dataset) => {
    for (const data of all(".dataset")) data.hidden = data.dataset.dataset !== dataset;
  });
})();
