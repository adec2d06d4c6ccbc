// Guess, then look: the quiz hides what a stage or an exercise needs until it has been guessed.
const Quiz = (() => {
  const ASKED = data("quiz"); // stage, or folder/number of an exercise -> what is known and what is true
  const LEAST = 0.1; // MB: less is shown as nothing
  let on = false;
  let guesses = new Map(); // the same keys -> MB
  let looked = new Set();
  const panels = new Map();

  const guessing = (key) => on && panels.has(key) && !looked.has(key);
  const pairs = (text) => text.split(",").filter(Boolean).map((pair) => {
    const cut = pair.lastIndexOf(":");
    return [pair.slice(0, cut), Number(pair.slice(cut + 1))];
  });

  function guess(key, mb) {
    guesses.set(key, Math.max(0, Math.round(mb * 10) / 10));
    Address.set("guesses", [...guesses].map(([name, its]) => `${name}:${its}`).join(","));
  }

  function look(key) {
    looked.add(key);
    Address.set("looked", [...looked].join(","));
    panels.get(key).verdict.focus();
  }

  // Return how far a guess is from the truth, as a part of it; what the page shows alike is right.
  function wrong(key) {
    const [mine, now] = [guesses.get(key), ASKED[key].now_mb];
    return size(mine) === size(now) ? 0 : Math.abs(mine - now) / Math.max(now, LEAST);
  }

  // Return how far a guess is from the truth, as text.
  function judged(key) {
    const { now_mb: now } = ASKED[key];
    if (!guesses.has(key)) return `It is ${size(now)}.`;
    const mine = guesses.get(key);
    const off = wrong(key);
    const far = size(mine) === size(now) || off < 0.005 ? "That is right." : `Your guess is ${(100 * off).toFixed(0)} % too ${mine > now ? "high" : "low"}.`;
    return `You guessed ${size(mine)}; it is ${size(now)}. ${far}`;
  }

  // Make the panel of one question; what it hides has data-hidden-by.
  function panel(key, times) {
    const { before, before_mb: known } = ASKED[key];
    // A round number well above what is known and what is true, so that it tells neither.
    const top = 10 ** Math.ceil(Math.log10(2 * Math.max(times * known, ASKED[key].now_mb, LEAST)));
    const input = element("input", { type: "range", "aria-label": "Your guess", min: "0", max: String(top), step: String(top / 400), value: "0" });
    const told = element("output", {});
    const label = element("label", {}, "Your guess ", told, input);
    const bar = element("span", { class: "known" });
    bar.style.width = `${(100 * known) / top}%`;
    const button = element("button", { type: "button" }, "Look");
    const verdict = element("p", { class: "verdict", tabindex: "-1", "aria-live": "polite" });
    const question = element("p", {}, `Known: ${before} needs ${known < LEAST ? "next to nothing" : size(known)}. What does this one need? Move the slider`,
      MOMENTS[key] ? ", or drag the line in the picture." : ".");
    const made = element("div", { class: "guess", "data-key": key }, question, bar, label, button, verdict);
    input.addEventListener("input", () => guess(key, Number(input.value)));
    button.addEventListener("click", () => look(key));
    panels.set(key, { made, input, told, label, button, verdict, question, bar });
    return made;
  }

  // Let the user drag a line in a stage's timeline to the guess.
  function line(figure) {
    const { box } = figure.boxes[0];
    const drag = (event) => {
      const { top, height } = box.getBoundingClientRect();
      guess(figure.script, figure.scale(figure) * (1 - (event.clientY - top) / height));
    };
    box.addEventListener("pointerdown", (event) => {
      if (!figure.unseen) return;
      event.preventDefault();
      box.setPointerCapture(event.pointerId);
      drag(event);
    });
    box.addEventListener("pointermove", (event) => {
      if (figure.unseen && box.hasPointerCapture(event.pointerId)) drag(event);
    });
  }

  function drawLine(figure) {
    const { box } = figure.boxes[0];
    one(".guess-line", box)?.remove();
    if (!on || !guesses.has(figure.script)) return;
    const made = element("span", { class: "guess-line" }, "your guess");
    made.style.bottom = `${Math.min(100, (100 * guesses.get(figure.script)) / figure.scale(figure))}%`;
    box.append(made);
  }

  function show() {
    document.body.classList.toggle("quiz", on);
    one("#quiz-switch").setAttribute("aria-pressed", on);
    for (const [key, { made, input, told, label, button, verdict, question, bar }] of panels) {
      made.hidden = !on;
      const open = looked.has(key);
      for (const part of [label, button, question, bar]) part.hidden = open;
      if (guesses.has(key)) input.value = guesses.get(key);
      told.textContent = guesses.has(key) ? size(guesses.get(key)) : "none yet";
      input.ariaValueText = told.textContent;
      verdict.textContent = open ? judged(key) : "";
      for (const part of all(`[data-hidden-by="${key}"]`)) part.classList.toggle("unseen", guessing(key));
      for (const link of all(`.bar[data-script="${key}"] > a`)) {
        link.dataset.told ??= link.ariaLabel;
        link.ariaLabel = guessing(key) ? `${key}: to be guessed` : link.dataset.told;
      }
    }
    for (const figure of Timeline.mounted.filter(({ script, unseen }) => unseen !== guessing(script))) {
      figure.unseen = guessing(figure.script);
      figure.draw();
    }
    Timeline.mounted.forEach(drawLine);
    one("#score").textContent = on ? score() : "";
  }

  function score() {
    const done = [...looked].filter((key) => guesses.has(key) && ASKED[key]);
    const off = done.map(wrong);
    const mean = off.length ? `, ${((100 * off.reduce((a, b) => a + b)) / off.length).toFixed(0)} % off on average` : "";
    return `${looked.size} of ${panels.size} answered${mean}`;
  }

  function start() {
    for (const figure of Timeline.mounted.filter(({ script }) => ASKED[script])) {
      figure.figure.prepend(panel(figure.script, 1.25));
      line(figure);
      const article = figure.figure.closest("article");
      // An exercise may reveal what its stage needs.
      const hidden = [figure.figure, ...all(".tells, .exercise", article), ...all(`.bar[data-script="${figure.script}"]`)];
      for (const part of hidden) part.dataset.hiddenBy = figure.script;
    }
    for (const exercise of all(".exercise[data-exercise]").filter((each) => ASKED[each.dataset.exercise])) {
      const answer = one("details", exercise);
      answer.before(panel(exercise.dataset.exercise, 4));
      answer.dataset.hiddenBy = exercise.dataset.exercise;
    }
    one("#quiz-switch").addEventListener("click", () => {
      Address.set("quiz", on ? "off" : "on");
      Address.go(); // parts appear and disappear; keep the reader's place
    });
    Address.keep("guesses", "", (text) => {
      guesses = new Map(pairs(text).filter(([key, mb]) => panels.has(key) && mb >= 0));
      show();
    });
    Address.keep("looked", "", (text) => {
      looked = new Set(text.split(",").filter((key) => panels.has(key)));
      show();
    });
    Address.keep("quiz", "off", (value) => {
      on = value === "on";
      show();
    });
  }

  return { start };
})();
Timeline.start();
Quiz.start();
