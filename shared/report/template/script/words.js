// Words explain themselves: point at one, go to it with the Tab key, or tap it. Escape closes.
// The explanation is that of the glossary, which screen readers read with the button.
const Words = (() => {
  const tip = element("div", { id: "explanation", "aria-hidden": "true", hidden: "" });
  document.body.append(tip);
  let word = null; // whose explanation is shown
  let leaving = 0; // the mouse may move to the explanation before that is over

  function place() {
    if (!word) return;
    const { left, top, bottom } = word.getBoundingClientRect();
    const { clientWidth, clientHeight } = document.documentElement;
    const below = bottom + 6;
    const fits = below + tip.offsetHeight <= clientHeight - 8;
    tip.style.top = `${Math.max(8, fits ? below : top - 6 - tip.offsetHeight)}px`;
    tip.style.left = `${Math.max(8, Math.min(left, clientWidth - 8 - tip.offsetWidth))}px`;
  }

  function show(button) {
    clearTimeout(leaving);
    word = button;
    const meaning = document.getElementById(button.getAttribute("aria-describedby"));
    const name = element("b", {}, meaning.previousElementSibling.textContent);
    tip.replaceChildren(name, " ", ...meaning.cloneNode(true).childNodes);
    tip.hidden = false;
    place();
  }

  // Returns whether there was something to hide.
  function hide() {
    clearTimeout(leaving);
    const shown = !tip.hidden;
    word = null;
    tip.hidden = true;
    return shown;
  }

  const at = (target) => target?.closest?.(".word");
  const inside = (target) => at(target) || target?.closest?.("#explanation");

  addEventListener("pointerover", (event) => {
    if (event.pointerType === "mouse" && at(event.target)) show(at(event.target));
    else if (inside(event.target)) clearTimeout(leaving);
  });
  addEventListener("pointerout", (event) => {
    if (event.pointerType === "mouse" && inside(event.target)) leaving = setTimeout(hide, 200);
  });
  addEventListener("focusin", (event) => (at(event.target) ? show(at(event.target)) : hide()));
  addEventListener("focusout", hide);
  addEventListener("click", (event) => at(event.target) && show(at(event.target)));
  addEventListener("pointerdown", (event) => !inside(event.target) && hide());
  addEventListener("keydown", (event) => event.key === "Escape" && hide() && event.preventDefault());
  addEventListener("scroll", place, { capture: true, passive: true });
  addEventListener("resize", place);
})();
