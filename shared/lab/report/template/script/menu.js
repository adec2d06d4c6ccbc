// On a narrow screen the menu opens above the page; a choice closes it.
const Menu = (() => {
  const close = () => one("#menu").matches(":popover-open") && one("#menu").hidePopover();

  Address.onArrival(close);
  for (const button of all("#present, #quiz-switch")) button.addEventListener("click", close);
})();
