// For a workshop: one step of a stage per screen. Elements with data-slide in an article
// are shown one after the other, the first below the article's idea; a slide's parts with data-step
// appear one at a time. A short show leaves out slides with data-long.
const Present = (() => {
  let stage = null; // the article that is shown
  let at = 0; // which of its steps

  const articles = () => all("#stages article");
  const slides = (article) => all("[data-slide]", article)
    .filter((slide) => !slide.hidden && !slide.matches(".unseen.tells, .exercise.unseen"))
    .filter((slide) => !one("#short").checked || !("long" in slide.dataset));

  // Return a stage's steps: [slide, how many of its parts are shown].
  function steps(article) {
    return slides(article).flatMap((slide) => {
      const parts = all("[data-step]", slide);
      return Array.from({ length: parts.length + 1 }, (_, shown) => [slide, shown]);
    });
  }

  function show() {
    document.documentElement.classList.toggle("present", Boolean(stage));
    one("#presenter").hidden = !stage;
    for (const part of all(".on-screen, .not-yet")) part.classList.remove("on-screen", "not-yet");
    if (!stage) return;
    const every = steps(stage);
    at = Math.min(Math.max(at, 0), every.length - 1);
    const [slide, shown] = every[at];
    stage.classList.add("on-screen");
    slide.classList.add("on-screen");
    const parts = all("[data-step]", slide);
    parts.forEach((part, n) => part.classList.toggle("not-yet", n >= shown));
    for (const answer of parts.filter((part) => part.localName === "details")) answer.open = !answer.classList.contains("not-yet");
    one("#where").textContent = `${stage.dataset.script}: ${at + 1} of ${every.length}`;
    Timeline.mounted.filter(({ figure }) => slide.contains(figure)).forEach((each) => each.show(each.at));
    const latest = parts[shown - 1] ?? slide;
    if (latest === slide) scrollTo(0, 0);
    else latest.scrollIntoView({ block: "nearest" });
  }

  function tell() {
    Address.set("present", stage ? `${stage.dataset.script}@${at}` : "");
  }

  // Move by a number of steps; after the last one, to the next stage, and likewise backward.
  function go(by) {
    const order = articles();
    const n = order.indexOf(stage) + by;
    if (at + by >= 0 && at + by < steps(stage).length) at += by;
    else if (order[n]) [stage, at] = [order[n], by > 0 ? 0 : steps(order[n]).length - 1];
    tell();
  }

  function begin() {
    [stage, at] = [one("#stages article.chosen"), 0];
    tell();
    one("#next").focus({ preventScroll: true });
  }

  function end() {
    const last = stage;
    stage = null;
    tell();
    Address.visit(last.id);
    one("#present").focus({ preventScroll: true });
  }

  const KEYS = {
    ArrowRight: () => go(1), PageDown: () => go(1), " ": () => go(1), ArrowLeft: () => go(-1), PageUp: () => go(-1),
    Home: () => ([stage, at] = [articles()[0], 0], tell()), End: () => ([stage, at] = [articles().at(-1), 0], tell()), Escape: end,
  };
  addEventListener("keydown", (event) => {
    const button = event.key === " " && event.target.closest("button, summary, a, input, select");
    if (!stage || button || modified(event) || event.defaultPrevented || event.target.closest("input, select") || !(event.key in KEYS)) return;
    event.preventDefault();
    KEYS[event.key]();
  });
  one("#present").addEventListener("click", begin);
  one("#previous").addEventListener("click", () => go(-1));
  one("#next").addEventListener("click", () => go(1));
  one("#end").addEventListener("click", end);
  one("#short").addEventListener("change", ({ target }) => {
    target.blur(); // so that the arrow keys move on
    at = 0;
    tell();
    show();
  });
  Address.keep("present", "", (value) => {
    const [script, step] = value.split("@");
    stage = articles().find((article) => article.dataset.script === script) ?? null;
    at = Math.trunc(step) || 0;
    show();
  });
})();
