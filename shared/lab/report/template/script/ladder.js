// The chart of the ladder: bars of one file of records, on a linear or a logarithmic scale.
const Ladder = (() => {
  function show(dataset) {
    for (const data of all(".dataset")) data.hidden = data.dataset.dataset !== dataset;
  }

  // Return the bars of scripts in the chart that is shown, or else in the first chart of a setting (a
  // model with its inputs) that has all of them; null if there is none.
  function bars(scripts, setting) {
    const of = (data) => scripts.map((name) => all(".bar", data).find((bar) => bar.dataset.script === name));
    const charts = [one(".dataset:not([hidden])"), ...all(".dataset")].filter((data) => data.dataset.setting === setting);
    const found = charts.find((data) => of(data).every(Boolean));
    return found ? { bars: of(found), title: one("#dataset").options[found.dataset.dataset].text } : null;
  }

  Address.control("chart", [one("#dataset")], show);
  Address.control("scale", all("input[name=scale]"), (scale) => {
    document.body.classList.toggle("log", scale === "log");
  });
  return { bars };
})();
