// The first touch of a bar or a point shows its figures, the second one opens its stage.
const Touch = (() => {
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
  });
})();
Address.go(); // everything is shown by now
