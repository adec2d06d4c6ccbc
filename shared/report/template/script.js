"use strict";
const one = (selector, from = document) => from.querySelector(selector);
const all = (selector, from = document) => [...from.querySelectorAll(selector)];
const id = (name) => name.replaceAll("/", "-");
const SAFE = 2; // GB: what a fit must have to spare, since the allowance is not a measurement
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
  const asked = [one("#from").value, one("#to").value];
  const names = [...asked].sort((a, b) => order.indexOf(a) - order.indexOf(b));
  const parts = [];
  let said = "";
  if (names[0] === names[1]) {
    parts.push(say("Choose two different scripts."));
  } else {
    if (names[0] !== asked[0]) parts.push(say("Shown in the ladder's order."));
    const barsOf = (data) => names.map((name) => all(".bar", data).find((bar) => bar.dataset.script === name));
    const sets = [one(".dataset:not([hidden])"), ...all(".dataset")];
    const data = sets.find((data) => barsOf(data).every(Boolean));
    if (data) {
      const bars = document.createElement("ol");
      bars.className = "bars";
      bars.append(...barsOf(data).map((bar) => bar.cloneNode(true)));
      parts.push(bars, say(one("#dataset").options[data.dataset.dataset].text));
      said = names.map((name, n) => `${name}: ${one(".peak", barsOf(data)[n]).textContent}`).join("; ");
    } else {
      parts.push(say("They are of different models: no bars to compare."));
    }
    const scripts = chosen("chain") === "plain" ? names.map((name) => name.replace(/\w+$/, "plain")) : names;
    const diff = document.getElementById(`diff-${scripts.map(id).join("-")}`);
    const missing = "One of them has no script in plain PyTorch; choose “with Fabric” above the stages.";
    parts.push(diff ? one("table", diff.content ?? diff).cloneNode(true) : say(missing));
  }
  one("#comparison").replaceChildren(...parts);
  one("#said").textContent = said;
}

function showFits() {
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
    return `On ${gpus === "1" ? "one GPU" : `${gpus} GPUs, each`} of ${Number(gb.toFixed(1))} GB: ${first ? first.cells[0].textContent + perhaps : "none of these"}.`;
  }).join(" ");
}

// One of the points is reached with the Tab key; from there the arrow keys lead along an axis.
function nextPoint(link, key) {
  const [axis, steps] = { ArrowLeft: ["x", -1], ArrowRight: ["x", 1], ArrowDown: ["y", -1], ArrowUp: ["y", 1] }[key];
  const order = all(".point a").sort((a, b) => a.dataset[axis] - b.dataset[axis]);
  order[order.indexOf(link) + steps]?.focus();
}

function onlyTabStop(link) {
  for (const other of all(".point a")) other.tabIndex = other === link ? 0 : -1;
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
one("#answers").addEventListener("click", () => {
  const open = one("#answers").getAttribute("aria-pressed") !== "true";
  for (const answer of all(".exercise details")) answer.open = open;
  one("#answers").setAttribute("aria-pressed", open);
  one("#answers").textContent = open ? "Hide all answers" : "Show all answers";
});
for (const link of all(".point a")) link.addEventListener("focus", () => onlyTabStop(link));
onlyTabStop(one(".point a"));
// The first touch of a bar or a point shows its figures, the second one leads to its stage.
let focused = null;
addEventListener("pointerdown", () => (focused = document.activeElement), true);
addEventListener("click", (event) => {
  const link = event.target.closest?.(".bar a, .point a");
  if (link && event.pointerType === "touch" && link !== focused) {
    event.preventDefault();
    link.focus();
  }
});
addEventListener("keydown", (event) => {
  const at = document.activeElement;
  if (event.key === "Escape" && at.closest(".bar, .point")) at.blur();
  if (event.key.startsWith("Arrow") && at.closest(".point")) {
    event.preventDefault();
    nextPoint(at, event.key);
  }
});
showDataset(); showScale(); showChain(); showFits();  // a reloaded page may keep its choices
