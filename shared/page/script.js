"use strict";
const one = (selector, from = document) => from.querySelector(selector);
const all = (selector, from = document) => [...from.querySelectorAll(selector)];
const id = (run) => run.replaceAll("/", "-");
const chosen = (name) => one(`input[name=${name}]:checked`).value;

function showDataset() {
  for (const data of all(".dataset")) data.hidden = data.dataset.dataset !== one("#dataset").value;
  compare();
}

function showScale() {
  document.body.classList.toggle("log", chosen("scale") === "log");
}

function showChain() {
  const plain = chosen("chain") === "plain";
  for (const part of all("#stages .fabric")) part.hidden = plain;
  for (const part of all("#stages .plain")) part.hidden = !plain;
  one(".chain-name").textContent = plain ? "in plain PyTorch" : "with Fabric";
  compare();
}

function say(text) {
  const note = document.createElement("p");
  note.className = "note";
  note.textContent = text;
  return note;
}

function compare() {
  const order = all("#from option").map((option) => option.value);
  const runs = [one("#from").value, one("#to").value].sort((a, b) => order.indexOf(a) - order.indexOf(b));
  const parts = [];
  if (runs[0] === runs[1]) {
    parts.push(say("Choose two different scripts."));
  } else {
    const bars = document.createElement("ol");
    bars.className = "bars";
    for (const run of runs) {
      const bar = all(".dataset:not([hidden]) .bar").find((bar) => bar.dataset.run === run);
      if (bar) bars.append(bar.cloneNode(true));
      else parts.push(say(`${run} is not among the bars chosen in the ladder.`));
    }
    parts.unshift(bars);
    const scripts = chosen("chain") === "plain" ? runs.map((run) => `${run}/plain`) : runs;
    const diff = document.getElementById(`diff-${scripts.map(id).join("-")}`);
    const missing = "One of them has no script in plain PyTorch; choose “with Fabric” above the stages.";
    parts.push(diff ? one("table", diff.content ?? diff).cloneNode(true) : say(missing));
  }
  one("#comparison").replaceChildren(...parts);
}

function showFits() {
  const card = Number(one("#card").value);
  for (const model of all(".model")) model.hidden = model.dataset.model !== one("#model").value;
  const rows = all(".model:not([hidden]) tbody tr");
  for (const row of rows) {
    const spare = card - Number(row.dataset.needs);
    const cell = one(".fits", row);
    cell.textContent = spare >= 0 ? `yes, ${spare.toFixed(1)} GB to spare` : `no, ${(-spare).toFixed(1)} GB short`;
    cell.className = spare >= 0 ? "fits yes" : "fits no";
  }
  const first = rows.find((row) => Number(row.dataset.needs) <= card);
  one("#verdict").textContent = first ? `The first that fits on ${card} GB: ${first.cells[0].textContent}` : `None of these fits on ${card} GB.`;
}

function nextTheme() {
  const names = ["automatic", "light", "dark"];
  const now = document.documentElement.dataset.theme ?? "automatic";
  const next = names[(names.indexOf(now) + 1) % names.length];
  if (next === "automatic") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = next;
  one("#theme").textContent = `Theme: ${next}`;
}

one("#dataset").addEventListener("change", showDataset);
for (const input of all("input[name=scale]")) input.addEventListener("change", showScale);
for (const input of all("input[name=chain]")) input.addEventListener("change", showChain);
for (const select of all("#from, #to")) select.addEventListener("change", compare);
for (const select of all("#model, #card")) select.addEventListener("change", showFits);
one("#theme").addEventListener("click", nextTheme);
addEventListener("beforeprint", () => all("details").forEach((answer) => (answer.open = true)));
showDataset(); showScale(); showChain(); showFits();  // a reloaded page may keep its choices
