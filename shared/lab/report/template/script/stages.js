// The stages, one at a time: their diffs with Fabric or in plain PyTorch, and their answers.
const Stages = (() => {
  function choose(article) {
    for (const other of all("#stages article")) other.classList.toggle("chosen", other === article);
    for (const link of all("#numbers a")) {
      if (link.dataset.script === article.dataset.script) link.setAttribute("aria-current", "true");
      else link.removeAttribute("aria-current");
    }
  }

  document.documentElement.classList.add("one-stage"); // without JavaScript, all of them are shown
  choose(one("#stages article"));
  Address.onArrival((target) => {
    const article = target?.closest("#stages article");
    if (article) choose(article);
  });

  Address.control("chain", all("input[name=chain]"), (chain) => {
    const plain = chain === "plain";
    for (const part of all("#stages .fabric")) part.hidden = plain;
    for (const part of all("#stages .plain")) part.hidden = !plain;
    const other = plain ? "with Fabric" : "in plain PyTorch";
    for (const button of all("#stages .switch")) button.textContent = `Show the diffs ${other}`;
  });

  // A lesson may speak of both diffs. They differ in height; keep the reader's place.
  for (const button of all("#stages .switch")) {
    button.addEventListener("click", () => {
      const { top } = button.getBoundingClientRect();
      Address.set("chain", Address.get("chain") === "plain" ? "fabric" : "plain");
      scrollBy(0, button.getBoundingClientRect().top - top);
    });
  }

  one("#answers").addEventListener("click", () => {
    const open = one("#answers").getAttribute("aria-pressed") !== "true";
    for (const answer of all(".exercise details")) answer.open = open;
    one("#answers").setAttribute("aria-pressed", open);
    one("#answers").textContent = open ? "Hide all answers" : "Show all answers";
  });
})();
