// Compare any two: their bars, and the diff that leads from one to the other.
const Compare = (() => {
  const MOVED = data("moved"); // "BEFORE AFTER" -> what changes, in words
  const say = (text) => element("p", { class: "note" }, text);

  // Both timelines on one scale, the second one with the first as its ghost.
  function timelines(names) {
    const scale = () => 1.12 * Math.max(...names.map((name) => Timeline.most(MOMENTS[name])));
    const figures = names.map((name, n) => {
      const canvases = element("div", { class: "canvases" });
      const figure = element("figure", { class: "moments" }, element("figcaption", {}, name), canvases,
        element("div", { class: "reading" }));
      new Timeline.Figure(figure, name, { before: n ? names[0] : null, scale });
      return figure;
    });
    return element("div", { class: "pair" }, ...figures);
  }

  function show() {
    const plain = Address.get("chain") === "plain";
    one(".chain-name").textContent = plain ? "in plain PyTorch" : "with Fabric";
    const order = all("#from option").map((option) => option.value);
    const asked = [one("#from").value, one("#to").value];
    const names = [...asked].sort((a, b) => order.indexOf(a) - order.indexOf(b));
    const parts = [];
    let said = "";
    if (names[0] === names[1]) {
      parts.push(say("Choose two different scripts."));
    } else {
      if (names[0] !== asked[0]) parts.push(say("Shown in the ladder's order."));
      const found = Ladder.bars(names);
      if (found) {
        const copies = found.bars.map((bar) => bar.cloneNode(true));
        parts.push(element("ol", { class: "bars" }, ...copies), say(found.title));
        said = names.map((name, n) => `${name}: ${one(".peak", found.bars[n]).textContent}`).join("; ");
      } else {
        parts.push(say("They are of different models: no bars to compare."));
      }
      const words = MOVED[names.join(" ")];
      if (words) parts.push(element("ul", { class: "moved" }, ...words.map((text) => element("li", {}, text))));
      parts.push(timelines(names));
      const scripts = plain ? names.map((name) => name.replace(/\w+$/, "plain")) : names;
      const diff = document.getElementById(`diff-${scripts.map(id).join("-")}`);
      const missing = "One of them has no script in plain PyTorch; choose “with Fabric” above the stages.";
      parts.push(diff ? one("table", diff.content ?? diff).cloneNode(true) : say(missing));
    }
    one("#comparison").replaceChildren(...parts);
    one("#said").textContent = said;
  }

  Address.control("from", [one("#from")], show);
  Address.control("to", [one("#to")], show);
  for (const input of all("input[name=chain], #dataset")) input.addEventListener("change", show);
})();
