// "I have an error": the answer to a pasted message, and each remedy with the diff of its lesson.
const Why = (() => {
  const REMEDIES = data("remedies"); // name -> how it begins, its lesson, and the id of its diff
  const box = one("#error textarea");

  function remedy(name) {
    const { how, lesson, diff, stage } = REMEDIES[name];
    const table = document.getElementById(diff);
    const where = stage ? element("a", { href: `#${stage}` }, `${lesson}.py`) : element("code", {}, `${lesson}.py`);
    return element("details", { class: "remedy" }, element("summary", {}, `The diff: ${name}`),
      element("p", {}, "In your script, it begins with ", element("code", {}, how), ". In ours, it is ", where, "."),
      one("table", table.content ?? table).cloneNode(true));
  }

  function show() {
    const answer = box.value.trim() ? Messages.answer(box.value) : { lines: [], remedies: [] };
    const none = "We found no message about lacking memory in this. Paste the lines from “Traceback” on, or those with “out of memory”.";
    const lines = answer?.lines ?? [none];
    one("#answer").replaceChildren(...lines.map((line) => element("p", {}, line)),
      ...(answer?.remedies ?? []).filter((name) => name in REMEDIES).map(remedy));
    if (box.value.trim() && document.body.dataset.door !== "error") Address.visit("error");
  }

  box.addEventListener("input", show);
  for (const button of all("#error .examples button")) {
    button.addEventListener("click", () => {
      box.value = one("pre", button.parentElement).textContent;
      show();
    });
  }
})();
