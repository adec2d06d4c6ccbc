// The theme: light, dark, or that of the system.
const Theme = (() => {
  const NAMES = ["automatic", "light", "dark"];

  Address.keep("theme", NAMES[0], (given) => {
    const theme = NAMES.includes(given) ? given : NAMES[0];
    if (theme === NAMES[0]) delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = theme;
    one("#theme").textContent = `Theme: ${theme}`;
  });
  one("#theme").addEventListener("click", () => {
    Address.set("theme", NAMES[(NAMES.indexOf(Address.get("theme")) + 1) % NAMES.length]);
  });
})();
