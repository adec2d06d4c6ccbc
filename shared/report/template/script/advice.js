// What the calculator tells of the predictor: what it has found for the same, and how to ask it.
const Advice = (() => {
  const { told } = Formulas;
  const OPTIMIZERS = { 0: "SGD", 1: "SGD with momentum", 2: "Adam" };
  const share = (v) => v.batch / v.gpus;
  const atOnce = (v) => Math.min(v.micro, share(v));

  // Returns the stored prediction of exactly what is chosen.
  function record(v) {
    const same = ["precision", "states", "checkpointing", "offload", "batch", "gpus", "model"];
    return told.records.find((r) => v.asKnown && same.every((name) => r[name] === v[name])
      && atOnce(r) === atOnce(v) && (v.pixels ? r.pixels === v.pixels : r.tokens === v.tokens));
  }

  // Tells how near the formulas are to the simulation.
  function near(v, bytes, amount) {
    const found = record(v);
    if (!found) return "No prediction by simulation is stored for exactly this.";
    const miss = 100 * (bytes / found.peak - 1);
    const much = Math.abs(miss) < 0.05 ? "the same" : `${Math.abs(miss).toFixed(1)} % ${miss > 0 ? "more" : "less"}`;
    return `Predicted by simulation: ${amount(found.peak)}; by these formulas: ${amount(bytes)}, ${much}.`;
  }

  // Returns in what a script differs from what is chosen, as texts.
  function differences(way, v) {
    const found = [];
    if (way.precision !== v.precision) found.push(`computes in ${way.precision}, not ${v.precision}`);
    if (way.states !== v.states) found.push(`has ${OPTIMIZERS[way.states]}, not ${OPTIMIZERS[v.states]}`);
    if (way.checkpointing !== v.checkpointing) found.push(way.checkpointing ? "checkpoints blocks" : "checkpoints no blocks");
    if (way.offload !== v.offload) found.push(way.offload ? "offloads shards" : "offloads nothing");
    const shards = v.gpus > 1 || v.offload === 1;
    if (way.shards !== shards) found.push(way.shards ? "shards weights" : "runs on one GPU, without shards");
    if (way.micro === null && atOnce(v) < share(v)) found.push(`takes all ${v.unit} at once`);
    return found;
  }

  // Returns the command that predicts what is chosen, or what is nearest to it, and what to know of it.
  function command(v) {
    const ways = told.ways.filter((way) => way.unit === v.unit).map((way) => {
      const others = differences(way, v);
      const order = [others.length, way.name === v.way ? 0 : 1, way.technique ? 1 : 0, way.batch === v.batch ? 0 : 1];
      return { way, others, order };
    });
    const before = (a, b) => {
      const at = a.order.findIndex((n, i) => n !== b.order[i]);
      return at < 0 ? 0 : a.order[at] - b.order[at];
    };
    const { way, others } = ways.sort(before)[0];
    const own = !v.asKnown && v.unit === "texts";
    const options = [way.technique ? "11 --one-by-one" : way.script, `--model ${own ? "FOLDER" : v.model}`];
    if (v.unit === "texts") options.push(`--max-length ${v.tokens}`);
    else if (v.pixels !== v.shape.pixels) options.push(`--image-px ${v.pixels}`);
    options.push(`--batch-size ${v.batch}`);
    const gpus = way.shards ? v.gpus : 1;
    if (way.micro !== null) options.push(`--micro-batch-size ${Math.min(v.micro, v.batch / gpus)}`);
    if (way.shards || way.technique) options.push(`--devices ${way.shards && way.technique ? Math.max(2, v.gpus) : gpus}`);
    const why = [others.length ? "No script does exactly this." : "This command predicts exactly this."];
    if (others.length) why.push(`The nearest, ${way.name}, ${others.join(", and ")}; the command predicts that.`);
    if (way.technique) why.push(`Its row “+ ${way.technique}” is the one.`);
    if (own) why.push("FOLDER stands for a folder with the model's config.json, in which you write these numbers.");
    else if (!v.asKnown) why.push(`It knows torchvision's models only, so it predicts ${v.model} with its own numbers.`);
    return { command: `python -m shared.predict ${options.join(" ")}`, why: why.join(" ") };
  }

  return { near, command };
})();
