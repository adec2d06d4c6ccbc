// Three doors: an error, a question, the lessons. The place in the address decides which one is open.
const Doors = (() => {
  Address.onArrival((target) => {
    const inside = target?.closest("#lessons") ? "teach" : target?.closest(".door")?.id;
    document.body.dataset.door = inside ?? "";
    for (const link of all(".door h2 a")) {
      if (link.closest(".door").id === inside) link.setAttribute("aria-current", "true");
      else link.removeAttribute("aria-current");
    }
  });
  for (const button of all("#teach button")) {
    button.addEventListener("click", () => {
      Address.visit("ladder");
      one(`#${button.dataset.opens}`).click();
    });
  }
})();
