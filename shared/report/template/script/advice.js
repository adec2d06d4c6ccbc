// The predictor's stored result for the calculator's choices, and the command that predicts them.
const Advice = (() => {
  const { told } = Formulas;
  const OPTIMIZERS = { 0: "SGD", 1: "SGD with momentum", 2: "Adam" };
  const share = (v) => v.batch / v.gpus;
  const atOnce = (v) => Math.min(v.micro, share(v));

  // Return the stored prediction of exactly these choices.
  function record(v) {
    const same = ["precision", "states", "checkpointing", "offload", "batch", "gpus", "model"];
    return told.records.find((r) => v.asKnown && same.every((name) => r[name] === v[name])
      && atOnce(r) === atOnce(v) && (v.pixels ? r.pixels === v.pixels : r.tokens === v.tokens));
  }

  // Return a sentence that compares the formulas with the prediction.
  function near(v, bytes, amount) {
    const found = record(v);
    if (!found) return "No prediction is stored for exactly this.";
    const miss = 100 * (bytes / found.peak - 1);
    const much = Math.abs(miss) < 0.05 ? "the same" : `${Math.abs(miss).toFixed(1)} % ${miss > 0 ? "more" : "less"}`;
    return `Predicted: ${amount(found.peak)}; by these formulas: ${amount(bytes)}, ${much}.`;
  }

  // Return the differences of a script from the choices, as texts.
  function differences(way, v) {
    const found = [];
    if (way.precision !== v.precision) found.push(`computes in ${way.precision}, not ${v.precision}`);
    if (way.states !== v.states) found.push(`uses ${OPTIMIZERS[way.states]}, not ${OPTIMIZERS[v.states]}`);
    if (way.checkpointing !== v.checkpointing) found.push(way.checkpointing ? "checkpoints blocks" : "checkpoints no blocks");
    if (way.offload !== v.offload) found.push(way.offload ? "offloads shards" : "offloads nothing");
    const shards = v.gpus > 1 || v.offload === 1;
    if (way.shards !== shards) found.push(way.shards ? "shards weights" : "runs on one GPU, without shards");
    if (way.micro === null && atOnce(v) < share(v)) found.push(`computes all ${v.unit} at once`);
    return found;
  }

  // Return the command that predicts the choices, or the nearest script, and an explanation.
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
    if (others.length) why.push(`The nearest, ${way.name}, ${others.join(", and ")}; the command predicts that one.`);
    if (way.technique) why.push(`See its row “+ ${way.technique}”.`);
    if (own) why.push("FOLDER stands for a folder with the model's config.json, in which you write these numbers.");
    else if (!v.asKnown) why.push(`It knows only torchvision's models, so it predicts ${v.model} with its usual shape.`);
    return { command: `python -m shared.predict ${options.join(" ")}`, why: why.join(" ") };
  }

  return { near, command };
})();
