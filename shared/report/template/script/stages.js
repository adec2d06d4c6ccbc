// The stages: their diffs with Fabric or in plain PyTorch, and their answers.
const Stages = (() => {
  Address.control("chain", all("input[name=chain]"), (chain) => {
    const plain = chain === "plain";
    for (const part of all("#stages .fabric")) part.hidden = plain;
    for (const part of all("#stages .plain")) part.hidden = !plain;
  });

  one("#answers").addEventListener("click", () => {
    const open = one("#answers").getAttribute("aria-pressed") !== "true";
    for (const answer of all(".exercise details")) answer.open = open;
    one("#answers").setAttribute("aria-pressed", open);
    one("#answers").textContent = open ? "Hide all answers" : "Show all answers";
  });
})();
