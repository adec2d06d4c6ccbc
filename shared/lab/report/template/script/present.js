// For a workshop: one screen after the other. A part with data-screens (a section, or the article of
// a stage) has one slide, itself, or several, the elements with data-slide in it. What does not fit
// the window goes on on the next screen. A short show has the slides with data-short.
const Present = (() => {
  // What stays together: a block of text, an entry of a list, a bar, a row of a table or of a diff.
  const PIECES = ":is(.lesson, .exercise > div, .exercise details) > :not(.wide, ul, ol, details, summary), .exercise > pre, li, tbody tr";
  // Type grows and shrinks between these, so that a slide has one screen, or few that are full.
  const [SMALLEST, LARGEST] = [0.85, 1.6];
  let part = null; // that is shown
  let at = 0; // which of its screens
  let known = new Map(); // part -> its screens, as long as the window and the choices stay

  // The parts in the order of the show: a section may come after a stage.
  function parts() {
    const every = all("[data-screens]").filter((each) => slides(each).length);
    const placed = every.filter((each) => each.localName === "article");
    for (const section of every.filter((each) => each.localName !== "article")) {
      const [where, stage] = section.dataset.screens.split(" ");
      const n = where === "first" ? 0 : where === "last" ? placed.length
        : placed.findLastIndex((each) => each.dataset.script <= stage) + 1;
      placed.splice(n, 0, section);
    }
    return placed;
  }

  const slides = (from) => (from.matches("[data-slide]") ? [from] : all("[data-slide]", from))
    .filter((slide) => !slide.hidden && !slide.matches(".unseen.tells, .exercise.unseen, .quiz section.tells [data-slide]"))
    .filter((slide) => !one("#short").checked || "short" in slide.dataset);

  const title = (from) => from.dataset.script ?? one("h2", from).textContent;
  const pieces = (slide) => (one(".moments", slide) ? [] : all(PIECES, slide).filter((piece) => !piece.closest("[hidden], .of-bars")));
  const answer = (slide) => one("[data-step]", slide); // that appears after it was asked for

  function grow(factor) {
    document.documentElement.style.setProperty("--grow", factor);
  }

  function clear() {
    for (const each of all(".on-screen, .not-yet, .elsewhere")) each.classList.remove("on-screen", "not-yet", "elsewhere");
  }

  // Put a screen into the window, {slide, those of its pieces that are shown, whether it asks}.
  function put({ slide, shown, asks }) {
    clear();
    slide.closest("[data-screens]").classList.add("on-screen");
    slide.classList.add("on-screen");
    for (const piece of pieces(slide)) piece.classList.toggle("elsewhere", !shown.includes(piece));
    answer(slide)?.classList.toggle("not-yet", asks);
    if (slide.matches(".exercise")) answer(slide).open = !asks;
  }

  const { documentElement: root } = document;
  const fits = () => root.scrollHeight <= innerHeight && root.scrollWidth <= innerWidth
    && all(".on-screen :is(.wide, pre)").every((box) => box.scrollWidth <= box.clientWidth);

  // Return the largest number from 1 to most, which is taken to be right, for which a function holds.
  function largest(most, holds) {
    let [low, high] = [1, most];
    while (low < high) {
      const middle = Math.ceil((low + high) / 2);
      if (holds(middle)) low = middle;
      else high = middle - 1;
    }
    return low;
  }

  // Return the screens of a slide that show these of its pieces: as few as the window allows, and
  // each with about as many, so that nothing stands alone on the last one.
  function pages(slide, asks, among) {
    let made = [];
    for (let count = 1; count === 1 || count <= among.length; count++) {
      const cuts = Array.from({ length: count + 1 }, (_, n) => Math.round((n * among.length) / count));
      made = cuts.slice(1).map((end, n) => ({ slide, shown: among.slice(cuts[n], end), asks }));
      grow(SMALLEST);
      if (made.every((screen) => (put(screen), root.scrollHeight <= innerHeight))) break;
    }
    for (const screen of made) {
      put(screen);
      const steps = Math.round((LARGEST - SMALLEST) * 20);
      screen.grow = SMALLEST + (largest(steps + 1, (n) => (grow(SMALLEST + (n - 1) / 20), fits())) - 1) / 20;
    }
    grow(1);
    return made;
  }

  function screens(from) {
    if (!known.has(from)) {
      grow(1);
      known.set(from, slides(from).flatMap((slide) => {
        const asked = answer(slide) && !one("#short").checked;
        const question = pieces(slide).filter((piece) => !answer(slide)?.contains(piece));
        return [...(asked ? pages(slide, true, question) : []), ...pages(slide, false, pieces(slide))];
      }));
    }
    return known.get(from);
  }

  function show() {
    root.classList.toggle("present", Boolean(part));
    one("#presenter").hidden = !part;
    clear();
    grow(1);
    if (!part) return;
    const every = screens(part);
    at = Math.min(Math.max(at, 0), every.length - 1);
    put(every[at]);
    grow(every[at].grow);
    one("#where").textContent = every.length > 1 ? `${title(part)}: ${at + 1} of ${every.length}` : title(part);
    Timeline.mounted.filter(({ figure }) => every[at].slide.contains(figure)).forEach((each) => each.show(each.at));
    scrollTo(0, 0);
  }

  // Fill the window anew, when it or what is to be shown has changed.
  function renew() {
    known = new Map();
    if (part && !parts().includes(part)) [part, at] = [parts()[0], 0];
    show();
  }

  function tell() {
    Address.set("present", part ? `${part.dataset.script ?? part.id}@${at}` : "");
  }

  // Move by a number of screens; after the last, to the next part, and likewise backward.
  function go(by) {
    const order = parts();
    const n = order.indexOf(part) + by;
    if (at + by >= 0 && at + by < screens(part).length) at += by;
    else if (order[n]) [part, at] = [order[n], by > 0 ? 0 : screens(order[n]).length - 1];
    tell();
  }

  function begin() {
    // From the opening, unless a stage was opened before.
    const chosen = one("#stages article.chosen");
    [part, at] = [chosen === one("#stages article") ? parts()[0] : chosen, 0];
    if (!parts().includes(part)) [part] = parts();
    tell();
    one("#next").focus({ preventScroll: true });
  }

  function end() {
    const last = part;
    part = null;
    tell();
    Address.visit(last.id);
    one("#present").focus({ preventScroll: true });
  }

  const KEYS = {
    ArrowRight: () => go(1), PageDown: () => go(1), " ": () => go(1), ArrowLeft: () => go(-1), PageUp: () => go(-1),
    Home: () => ([part, at] = [parts()[0], 0], tell()), End: () => ([part, at] = [parts().at(-1), 0], tell()), Escape: end,
  };
  addEventListener("keydown", (event) => {
    const button = event.key === " " && event.target.closest("button, summary, a, input, select");
    if (!part || button || modified(event) || event.defaultPrevented || event.target.closest("input, select") || !(event.key in KEYS)) return;
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
    renew();
    tell();
  });
  addEventListener("resize", renew);
  for (const name of ["chain", "chart", "quiz", "looked"]) Address.follow(name, renew);
  Address.keep("present", "", (value) => {
    const [name, screen] = value.split("@");
    part = parts().find((each) => (each.dataset.script ?? each.id) === name) ?? null;
    at = Math.trunc(screen) || 0;
    show();
  });
})();
