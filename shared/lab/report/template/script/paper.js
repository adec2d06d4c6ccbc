// On paper, the answers come last, so that a handout can be read without them.
const Paper = (() => {
  function answers() {
    const found = all(".exercise").map((exercise) => {
      const answer = one("details", exercise).cloneNode(true);
      const from = exercise.closest("article")?.dataset.script ?? "Wrong line";
      one("summary", answer).remove();
      return element("div", { class: "answer" }, element("h3", {}, `${from}, ${one("h3, h5", exercise).textContent}`), ...answer.childNodes);
    });
    return element("section", { id: "answers-at-the-end" }, element("h2", {}, "Answers"), ...found);
  }

  addEventListener("beforeprint", () => {
    one("#answers-at-the-end")?.remove();
    one("main").append(answers());
  });
  addEventListener("afterprint", () => one("#answers-at-the-end")?.remove());
})();
