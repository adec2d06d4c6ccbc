// Calculate it: a form of choices, a bar for each moment of an update, and the formulas beside them.
const Calculator = (() => {
  const { told, number } = Formulas;
  const form = one("#calc");
  const fields = new Map(all("[data-field]", form).map((input) => [input.dataset.field, input]));
  const SWITCHES = ["precision", "states", "checkpointing", "offload"];
  const CHOICES = [...SWITCHES, "batch", "micro", "gpus"];
  const models = Object.keys(told.shapes);
  const amount = (bytes) => (bytes >= 1e5 ? size(bytes / 1e6) : `${(bytes / 1e3).toFixed(1)} kB`);
  const unit = (model) => (told.shapes[model].kind === "ViT" ? "images" : "texts");
  const waysOf = (model) => told.ways.filter((way) => way.unit === unit(model));

  // Return the values of the fields for a model and one of the scripts.
  function defaults(model, way) {
    const chosen = Object.fromEntries(CHOICES.map((name) => [name, way[name] ?? way.batch]));
    return Object.fromEntries(Object.entries({ ...told.shapes[model], ...chosen }).map(([name, v]) => [name, String(v)]));
  }

  const text = (input) => (input.type === "checkbox" ? String(Number(input.checked)) : input.value.trim());
  const current = () => Object.fromEntries([...fields].map(([name, input]) => [name, text(input)]));

  function fill(values) {
    for (const [name, input] of fields) {
      if (!(name in values)) continue;
      if (input.type === "checkbox") input.checked = values[name] === "1";
      else if (input.value !== values[name]) input.value = values[name];
    }
  }

  // Return the choices as text for the address: the model, and what differs from its first script.
  function address() {
    const model = one("#calc-model").value;
    const [usual, now] = [defaults(model, waysOf(model)[0]), current()];
    const others = Object.keys(now).filter((name) => now[name] !== usual[name]);
    const told = [model, ...others.map((name) => `${name}:${now[name]}`)].join(",");
    return told === models[0] ? "" : told;
  }

  function show(value) {
    const [first, ...others] = value.split(",");
    const model = models.includes(first) ? first : models[0];
    const given = others.map((text) => [text.split(":", 1)[0], text.slice(text.indexOf(":") + 1)]);
    const possible = ([name, text]) => !fields.get(name)?.options || [...fields.get(name).options].some((o) => o.value === text);
    one("#calc-model").value = model;
    fill({ ...defaults(model, waysOf(model)[0]), ...Object.fromEntries(given.filter(possible)) });
    draw();
  }

  const kind = () => told.shapes[one("#calc-model").value].kind;

  // Return whether a model has a field, by its data-for.
  function suits(input) {
    const has = told.kinds[kind()];
    const images = kind() === "ViT";
    const groups = { images, texts: !images, rotary: has.rotary, head_norms: has.head_norms, norm_after: has.norm_after };
    return !input.dataset.for || Boolean(groups[input.dataset.for]);
  }

  // Return the numbers that the formulas take.
  function inputs() {
    const [now, shape] = [current(), told.shapes[one("#calc-model").value]];
    const v = Object.fromEntries(Object.entries(now).filter(([name]) => name !== "precision").map(([k, x]) => [k, Number(x)]));
    const images = kind() === "ViT";
    if (images) v.tokens = (v.pixels / v.patch) ** 2 + 1;
    for (const name of images ? ["vocabulary"] : ["pixels", "patch"]) v[name] = 0;
    if (!suits(fields.get("positions"))) v.positions = images ? v.tokens : 0;
    if (!suits(fields.get("kv_heads"))) v.kv_heads = v.heads;
    if (!suits(fields.get("head_width"))) v.head_width = v.width / v.heads;
    const [weight_bytes, value_bytes] = told.precisions[now.precision];
    return { ...told.kinds[kind()], ...v, classes: shape.classes, weight_bytes, value_bytes };
  }

  // Return a sentence about the first problem with the numbers, "" if there is none.
  function problem(v) {
    for (const [name, input] of fields) {
      if (input.type !== "number" || !suits(input)) continue;
      const title = one(".title", input.parentElement).textContent;
      const [value, most] = [text(input), 1e7];
      if (!/^\d+$/.test(value) || Number(value) < 1) return `${title}: write a whole number of at least 1.`;
      if (Number(value) > most) return `${title}: write a number up to ${number(most)}.`;
    }
    const what = unit(one("#calc-model").value);
    if (!Number.isInteger(v.head_width)) return `A width of ${v.width} does not divide by ${v.heads} heads.`;
    if (v.heads % v.kv_heads) return `${v.heads} heads do not divide by ${v.kv_heads} heads of keys and values.`;
    if (v.patch && v.pixels % v.patch) return `An edge of ${v.pixels} px does not divide by patches of ${v.patch} px.`;
    if (v.batch % v.gpus) return `A batch of ${v.batch} ${what} does not divide by ${v.gpus} GPUs.`;
    const few = v.norm_after && v.tokens > v.positions;
    if (few) return `The model has no more than ${v.positions} positions for ${v.tokens} tokens.`;
    const blocks = v.by_blocks && (v.tokens <= 704 || v.tokens % 64);
    return blocks ? "Attention by blocks needs a multiple of 64 tokens, and more than 704." : "";
  }

  function draw() {
    for (const input of fields.values()) input.parentElement.hidden = !suits(input);
    one("#calc-kind").textContent = kind();
    const v = inputs();
    const wrong = problem(v);
    one("#calc-wrong").textContent = wrong;
    one("#calc-result").hidden = Boolean(wrong);
    showWay(v);
    if (wrong) return;
    const moments = Formulas.moments(v);
    const largest = (those) => those.reduce((a, b) => (b.total > a.total ? b : a));
    const same = (name) => moments.filter((moment) => moment.name === name);
    const shown = [...new Set(moments.map((moment) => moment.name))].map((name) => largest(same(name)));
    const peak = largest(shown);
    one("#calc-moments").replaceChildren(...shown.map((moment) => bar(moment, peak)));
    const held = peak.rows.filter((row) => row[1] > 0);
    const most = held.reduce((a, b) => (b[1] > a[1] ? b : a));
    one("#calc-said").textContent = `${amount(peak.total)} per GPU at the peak: ${peak.name}. `
      + `The largest part: ${most[0]}, ${amount(most[1])}. ${onHost(v, peak.known)}`;
    one("#calc-parts").replaceChildren(...held.map((row) => formula(row, peak.known)));
    const sets = Object.entries(peak.sets).map(([name, expression]) => [name, expression, told.set[name]]);
    const names = [...told.parts, ...sets, ...peak.further];
    one("#calc-names").replaceChildren(...names.map(([name, expression, what]) =>
      formula([name, peak.known[name], expression, what], peak.known, number)));
    one("#calc-near").textContent = Advice.near(chosen(v), peak.total, amount);
    one("#calc-command").textContent = Advice.command(chosen(v)).command;
    one("#calc-why").textContent = Advice.command(chosen(v)).why;
  }

  // Return the input of Advice: the model, whether its shape is its own, and the choices.
  function chosen(v) {
    const model = one("#calc-model").value;
    const shape = told.shapes[model];
    const own = ["layers", "width", "heads", "kv_heads", "head_width", "mlp", "vocabulary", "patch"];
    const asKnown = own.every((name) => v[name] === shape[name]) && (!v.norm_after || v.positions === shape.positions);
    return { ...v, model, shape, asKnown, unit: unit(model), precision: current().precision, way: one("#calc-way").value };
  }

  // Show which script has exactly these choices.
  function showWay(v) {
    const select = one("#calc-way");
    const asked = select.value;
    const ways = waysOf(one("#calc-model").value);
    const same = (way) => CHOICES.every((name) => String(way[name] ?? way.batch) === current()[name]);
    select.replaceChildren(element("option", { value: "" }, "none: as chosen below"),
      ...ways.map((way) => element("option", { value: way.name }, way.name)));
    const fitting = ways.filter(same);
    select.value = (fitting.find((way) => way.name === asked) ?? fitting[0])?.name ?? "";
  }

  function onHost(v, known) {
    if (!v.offload) return "";
    const bytes = (2 + v.states) * known.N * known.per_gpu * v.weight_bytes;
    return `On the host, for each GPU: ${amount(bytes)} of weights, gradients and optimizer states.`;
  }

  function bar(moment, peak) {
    const width = `${(100 * moment.total / peak.total).toFixed(3)}%`;
    const stack = element("span", { class: "stack", style: `--lin:${width};--log:${width}` });
    for (const [label, bytes] of moment.rows) {
      if (bytes <= 0) continue;
      const share = (bytes / moment.total).toFixed(5);
      stack.append(element("span", { style: `flex-grow:${share};background:${color(label)}`, title: `${label} ${amount(bytes)}` }));
    }
    const name = element("span", { class: "name" }, moment.name, ...(moment === peak ? [" ", element("b", {}, "◀ peak")] : []));
    const held = moment.rows.filter((row) => row[1] > 0).map(([label, bytes]) => `${label} ${amount(bytes)}`).join(", ");
    return element("li", { class: moment === peak ? "calc-bar at-peak" : "calc-bar" }, name,
      element("span", { class: "track", role: "img", "aria-label": held }, stack),
      element("span", { class: "peak" }, amount(moment.total)));
  }

  // Return the definitions of the names in a formula, as texts.
  function definitions(names, known) {
    const further = told.moments.flatMap((moment) => moment[3]);
    const used = new Set(names.match(/\w+/g));
    const those = [...told.parts, ...new Map(further.map((part) => [part[0], part])).values()].filter(([name]) => used.has(name));
    return those.map(([name, expression]) => [name, ...Formulas.shown(expression, known)])
      .filter(([, names]) => /[a-z]/.test(names)).map((three) => three.join(" = "));
  }

  // Return a row of a table: name, value, and the simplified formula, with names and with numbers.
  function formula([name, value, expression, what], known, write = amount) {
    const key = element("i", { style: `background:${color(name)}` });
    const [names, numbers] = Formulas.shown(expression, known);
    const codes = [names, ...(names === numbers ? [] : [`= ${numbers}`]), ...(write === amount ? definitions(names, known) : [])];
    return element("tr", {},
      element("th", { scope: "row" }, ...(write === amount ? [key] : []), name),
      element("td", { class: "value" }, write(value)),
      element("td", {}, element("span", { class: "what" }, what), ...codes.map((text) => element("code", {}, text))));
  }

  function changed(event) {
    const model = one("#calc-model").value;
    if (event.target.id === "calc-model") {
      fill(defaults(model, waysOf(model).find((way) => way.name === one("#calc-way").value) ?? waysOf(model)[0]));
    } else if (event.target.id === "calc-way") {
      const way = waysOf(model).find((w) => w.name === event.target.value);
      if (way) fill(Object.fromEntries(CHOICES.map((name) => [name, String(way[name] ?? way.batch)])));
    }
    Address.set("calc", address());
  }

  const farthest = Math.max(...told.records.map((record) => Math.abs(Formulas.miss(record))));
  one("#calc-farthest").textContent = (100 * farthest).toFixed(1);
  Address.keep("calc", "", show);
  form.addEventListener("input", changed);
  form.addEventListener("submit", (event) => event.preventDefault());
  return { inputs };
})();
