// On paper, the answers come last, so that a handout can be read without them.
const Paper = (() => {
  function answers() {
    const found = all("article .exercise").map((exercise) => {
      const answer = one("details", exercise).cloneNode(true);
      const from = exercise.closest("article").dataset.script;
      one("summary", answer).remove();
      return element("div", { class: "answer" }, element("h3", {}, `${from}, ${one("h5", exercise).textContent}`), ...answer.childNodes);
    });
    return element("section", { id: "answers-at-the-end" }, element("h2", {}, "Answers"), ...found);
  }

  addEventListener("beforeprint", () => {
    one("#answers-at-the-end")?.remove();
    one("main").append(answers());
  });
  addEventListener("afterprint", () => one("#answers-at-the-end")?.remove());
})();
