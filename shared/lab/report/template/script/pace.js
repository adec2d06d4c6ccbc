// Who waits for whom: kernels times the host's pace, against the time for which the GPU is busy.
const Pace = (() => {
  const { images: IMAGES, passes: PASSES, cards: CARDS, enough: ENOUGH, us: US } = data("pace");
  const [size, us, card] = ["micro-batch", "host-us", "pace-card"].map((name) => one(`#${name}`));
  const ms = (number) => `${number.toLocaleString("en", { maximumFractionDigits: number < 10 ? 1 : 0 })} ms`;

  function show() {
    const { at_once: atOnce, kernels, busy_ms: busy } = PASSES[size.value];
    const [, slower] = CARDS[card.value];
    const passes = IMAGES / atOnce;
    const host = (passes * kernels * us.value) / 1000;
    const gpu = passes * busy * slower;
    const longest = Math.max(host, gpu);
    const enough = Math.max(1, Math.round((ENOUGH * us.value) / US / slower));
    const told = [`${atOnce} at a time`, `${us.value} µs for a kernel`];
    for (const [n, input] of [size, us].entries()) {
      one("output", input.parentElement).textContent = told[n];
      input.ariaValueText = told[n];
    }
    for (const [name, time] of [["host", host], ["gpu", gpu]]) {
      const bar = one(`#pace-${name}`);
      one("b", bar).textContent = ms(time);
      one("i", bar).style.width = `${(100 * time) / longest}%`;
    }
    const kept = Math.round(passes * kernels).toLocaleString("en");
    const who = host > gpu ? `So the GPU waits for the host, for ${ms(host - gpu)} of ${ms(host)}.` : `So the host waits for the GPU, for ${ms(gpu - host)} of ${ms(gpu)}.`;
    one("#pace-said").textContent = `An update of ${IMAGES} images takes ${passes} ${passes === 1 ? "pass" : "passes"} and ${kept} kernels. ${who} `
      + `On this card, it takes about ${enough} ${enough === 1 ? "image" : "images"} at a time until the GPU sets the pace.`;
  }

  CARDS.forEach(([title], n) => card.append(element("option", { value: n }, title)));
  card.value = CARDS.findIndex(([title]) => title === data("pace").gpu);
  for (const input of [size, us, card]) input.addEventListener("input", show);
  show();
})();
