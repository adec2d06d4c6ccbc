// Compare any two: their bars, and the diff that leads from one to the other.
const Compare = (() => {
  const MOVED = data("moved"); // "BEFORE AFTER" -> what changes, in words
  const say = (text) => element("p", { class: "note" }, text);

  function diff(scripts, plain) {
    const none = say("One of them has no script in plain PyTorch; choose “with Fabric” above the stages.");
    if (plain && !scripts.every((name) => name.endsWith("/train"))) return none;
    const names = plain ? scripts.map((name) => name.replace(/train$/, "plain")) : scripts;
    const [there] = [names, [...names].reverse()].map((pair) => document.getElementById(`diff-${pair.map(id).join("-")}`)).filter(Boolean);
    if (there) return one("table", there.content ?? there).cloneNode(true);
    if (plain) return none;
    if (names[0] === names[1]) return say("They are the same script.");
    return say(`This diff is not stored here: diff ${names[0]}.py ${names[1]}.py shows it.`);
  }

  // Return both timelines on one scale, the second one with the first as its ghost.
  function timelines(names) {
    const scale = () => 1.12 * Math.max(...names.map((name) => Timeline.most(MOMENTS[name])));
    const figures = names.map((name, n) => {
      const canvases = element("div", { class: "canvases" });
      const figure = element("figure", { class: "moments" }, element("figcaption", {}, name), canvases,
        element("div", { class: "reading" }));
      new Timeline.Figure(figure, name, { before: n ? names[0] : null, scale }).draw();
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
      const [alike, ...others] = new Set(names.map((name) => MOMENTS[name].setting));
      const found = !others.length && Ladder.bars(names, alike);
      if (found) {
        const copies = found.bars.map((bar) => bar.cloneNode(true));
        parts.push(element("ol", { class: "bars" }, ...copies), say(found.title));
        said = names.map((name, n) => `${name}: ${one(".peak", found.bars[n]).textContent}`).join("; ");
      } else if (others.length) {
        parts.push(say("The models differ, so there are no bars to compare."));
      }
      const words = MOVED[names.join(" ")];
      if (words) parts.push(element("ul", { class: "moved" }, ...words.map((text) => element("li", {}, text))));
      parts.push(timelines(names));
      parts.push(diff(names.map((name) => MOMENTS[name].script), plain));
    }
    one("#comparison").replaceChildren(...parts);
    one("#said").textContent = said;
  }

  Address.control("from", [one("#from")], show);
  Address.control("to", [one("#to")], show);
  for (const name of ["chain", "chart"]) Address.follow(name, show);
})();
