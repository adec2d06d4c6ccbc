// Which line is wrong? One function at a time. A clicked line says whether it is the change, which
// opens the answer.
const Mistakes = (() => {
  const questions = all(".mistake");
  const [previous, next] = all("#questions button");

  // Without JavaScript, all of them are shown, each with its number.
  one("#questions").hidden = false;
  for (const question of questions) one("h3", question).classList.add("paper");
  Address.keep("question", "1", (text) => {
    const at = Math.max(questions.findIndex((_, n) => String(n + 1) === text), 0);
    for (const question of questions) question.classList.toggle("chosen", question === questions[at]);
    one("#questions span").textContent = `${at + 1} of ${questions.length}`;
    previous.disabled = at === 0;
    next.disabled = at === questions.length - 1;
  });
  const go = (by) => Address.set("question", Number(Address.get("question")) + by);
  previous.addEventListener("click", () => go(-1));
  next.addEventListener("click", () => go(1));

  for (const line of all(".mistake button")) {
    line.addEventListener("click", () => {
      const found = "wrong" in line.dataset;
      line.setAttribute("aria-label", `${line.textContent.trim()}: ${found ? "this is the change" : "not this line"}`);
      line.className = found ? "found" : "right";
      if (found) one("details", line.closest(".mistake")).open = true;
    });
  }
})();
