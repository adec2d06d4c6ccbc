// Read a message of lacking memory and answer it, by the table of emulated_gpu/why/messages.json and
// word for word as reading.py and message.py beside it do. Sizes are in bytes.
const Messages = (() => {
  const TABLE = data("messages");
  const MOST = 3; // remedies
  const END = 4e6; // letters of a log that are read: what ended it stands there
  const { GiB: GIB } = TABLE.units;

  const found = (pattern, text) => [...text.matchAll(new RegExp(pattern.replaceAll("{n}", () => TABLE.n), "gm"))];
  const has = (numbers, name) => numbers[name] !== undefined;

  // Return the bytes of a sum such as "free + 0.5*capacity - 1", null if a part is unknown.
  function total(terms, numbers) {
    let sum = 0;
    for (const [, sign, product] of terms.matchAll(/([+-]?) *([a-z0-9.*]+)/g)) {
      let size = /[a-z]/.test(product) ? 1 : GIB; // a number alone is in GiB
      for (const factor of product.split("*")) {
        const value = /^\d/.test(factor) ? Number(factor) : numbers[factor];
        if (value === undefined) return null;
        size *= value;
      }
      sum += sign === "-" ? -size : size;
    }
    return sum;
  }

  // Return whether all comparisons of a rule are true; one with an unknown number is not.
  function holds(rule, numbers) {
    for (const comparison of rule.when ?? []) {
      const [left, sign, right] = comparison.split(/(>=|<=|>|<)/);
      const sides = [total(left, numbers), total(right, numbers)];
      if (sides.includes(null)) return false;
      const [larger, smaller] = sign.includes(">") ? sides : [...sides].reverse();
      if (larger < smaller || (larger === smaller && !sign.includes("="))) return false;
    }
    return !has(numbers, rule.without);
  }

  // Return the texts of a log's ranks, as pairs: lines without prefixes, and all in one line.
  function ranks(given) {
    const text = TABLE.clean.reduce((told, [pattern, by]) => told.replace(new RegExp(pattern, "gm"), by), given);
    const ofRanks = new Map();
    let rank = "";
    for (const whole of text.split("\n")) {
      const begins = whole.match(new RegExp(TABLE.rank));
      if (begins) rank = begins.slice(1).find(Boolean);
      let [line, before] = [whole, null];
      while (before !== line) { // a prefix may follow a prefix
        before = line;
        for (const pattern of TABLE.prefixes) line = line.replace(new RegExp(pattern), "");
      }
      if (!ofRanks.has(rank)) ofRanks.set(rank, []);
      ofRanks.get(rank).push(line);
    }
    return [...ofRanks.values()].map((lines) => [lines.join("\n"), lines.join("").replace(/\s+/g, "")]);
  }

  // Return the messages in one rank's text, each with its numbers, in the order of the text.
  function candidates([lines, text], forms) {
    const begun = forms.flatMap((form, number) => (form.lines
      ? found(form.lines, lines).map(() => ({ begin: text.length, number, form }))
      : found(form.find, text).map((match) => ({ begin: match.index, number, form }))));
    begun.sort((a, b) => a.begin - b.begin || a.number - b.number);
    return begun.map(({ begin, number, form }, n) => {
      // What is left of a message may begin before.
      const [from, to] = forms === TABLE.parts ? [0, text.length] : [begin, begun[n + 1]?.begin ?? text.length];
      const { numbers, others } = fields(text.slice(from, to));
      return { form, begin: from, text, numbers, others, known: Object.keys(numbers).length + others.length, number };
    });
  }

  // Return the numbers of one message, and the id and bytes of the processes that it names.
  function fields(text) {
    const numbers = {};
    for (const rule of TABLE.fields) {
      for (const [, ...groups] of found(rule.find, text)) {
        const named = rule.names.map((name, n) => [name, groups[n]]).filter(([, value]) => value);
        const unit = TABLE.units[Object.fromEntries(named).unit ?? "B"];
        for (const [name, value] of named) if (name !== "unit") numbers[name] ??= Number(value) * unit;
      }
    }
    const others = found(TABLE.process, text).map(([, pid, size, unit]) => ({ pid, size: Number(size) * TABLE.units[unit] }));
    return { numbers, others };
  }

  // Add to a message's numbers what follows from them, and the id of a guessed process.
  function derive(message) {
    const { numbers } = message;
    const add = (name, terms) => {
      const size = has(numbers, name) ? null : total(terms, numbers);
      if (size !== null) numbers[name] = Math.max(size, 0);
    };
    for (const [name, terms] of TABLE.derived.slice(0, 2)) add(name, terms);
    // What stands before and after the processes shows that none of them was cut off.
    let named = has(numbers, "capacity") && has(numbers, "reserved") ? [...message.others].sort((a, b) => a.size - b.size) : [];
    // In a container, the own process has another number than the driver gives it. It holds at least
    // what PyTorch has reserved.
    if (named.length && !has(numbers, "process")) {
      const own = named.find((other) => other.size >= numbers.reserved);
      if (own) {
        [message.guessed, numbers.process] = [own.pid, own.size];
        named = named.filter((other) => other !== own);
      }
    }
    if (named.length) numbers.others = named.reduce((sum, other) => sum + other.size, 0);
    else if (has(numbers, "process")) add("others", "capacity - free - process");
    for (const [name, terms] of TABLE.derived.slice(2)) add(name, terms);
  }

  // Return the rule of the moment in training at which a message came, undefined if it is unknown.
  function moment({ text, begin }) {
    const [before, after] = [text.slice(0, begin), text.slice(begin)];
    const end = (match) => match.index + match[0].length;
    const last = found(TABLE.traceback, before).map(end).at(-1) ?? 0;
    for (const part of [before.slice(last), before, after]) {
      // The innermost frame that tells a moment stands last.
      const ends = TABLE.moments.flatMap((rule) => found(rule.find, part).map((match) => [end(match), rule]));
      if (ends.length) return ends.reduce((most, each) => (each[0] > most[0] ? each : most))[1];
      if (found(TABLE.fallback.find, part).length) return TABLE.fallback;
    }
    return undefined;
  }

  // Return the message in a text, with its numbers, moment, cause and what is missing, or null.
  function read(text) {
    const parts = ranks(text);
    const messages = [TABLE.forms, TABLE.parts].map((forms) => parts.flatMap((part) => candidates(part, forms)))
      .find((every) => every.length);
    if (!messages) return null;
    const message = messages.reduce((best, each) => (each.known > best.known
      || (each.known === best.known && each.number < best.number) ? each : best));
    const { kind } = message.form;
    const gpus = messages.map(({ numbers }) => numbers.gpu).filter((gpu) => gpu !== undefined);
    message.gpus = [...new Set(gpus)].sort((a, b) => a - b);
    derive(message);
    // A server's own line often follows the message, and says more than it.
    const server = messages.find(({ form }) => form.kind === "server")?.form ?? {};
    message.moment = moment(message) ?? TABLE.moments.find(({ name }) => name === server.moment);
    message.rule = TABLE.causes.find((rule) => rule.kinds.includes(kind) && holds(rule, message.numbers));
    message.cause = message.rule?.name ?? message.form.cause ?? server.cause;
    const never = message.form.never ?? [];
    message.missing = (TABLE.expected[kind] ?? []).filter((name) => !has(message.numbers, name) && !never.includes(name));
    return message;
  }

  // Return a number of 0 or more with so many decimals; of two as near, the even one, as in Python.
  function fixed(number, decimals) {
    const half = (number * 2 ** (decimals + 1)) % 4 === 1;
    return (half ? number - 2 ** -30 : number).toFixed(decimals);
  }

  // Return bytes as PyTorch writes them: "2.00 GiB", "41.56 MiB".
  function size(bytes) {
    if (bytes >= GIB) return `${fixed(bytes / GIB, 2)} GiB`;
    const unit = ["MiB", "KiB"].find((name) => bytes >= TABLE.units[name]);
    if (!unit) return `${fixed(bytes, 0)} bytes`;
    const value = bytes / TABLE.units[unit];
    return `${Number(fixed(value, 4 - Math.trunc(value).toString().length))} ${unit}`; // four digits
  }

  // Return a sentence with its numbers, or the first of several whose numbers are known.
  function filled(says, { numbers }) {
    const names = (sentence) => [...sentence.matchAll(/{(\w+)}/g)].map(([, name]) => name);
    const sentence = [says].flat().find((each) => names(each).every((name) => has(numbers, name)));
    const shown = (name) => (name === "gpu" ? fixed(numbers.gpu, 0) : size(numbers[name]));
    return (sentence ?? "").replace(/{(\w+)}/g, (_, name) => shown(name));
  }

  // Return a rule's sentence if its conditions are true and its numbers known, else "".
  function applies(rule, message) {
    const right = !rule.kinds || rule.kinds.includes(message.form.kind);
    return right && holds(rule, message.numbers) ? filled(rule.says, message) : "";
  }

  // Return lines on what was asked for, and on who held which memory.
  function amounts(message) {
    const { form, numbers, guessed } = message;
    const note = TABLE.small.sizes.includes(numbers.asked) ? ` ${TABLE.small.says}` : "";
    const asked = form.says ? filled(form.says, message) : filled(TABLE.request, message) + note;
    const held = TABLE.numbers.map((rule) => applies(rule, message)).filter(Boolean).join("; ");
    if (!held || !(form.kind in TABLE.expected)) return [asked];
    const guess = guessed ? ` ${TABLE.guessed.replace("{pid}", guessed)}` : "";
    return [asked, `${held[0].toUpperCase()}${held.slice(1)}.${guess}`];
  }

  // Return a line on the cause, on fragmentation, and on other processes.
  function cause(message) {
    const said = [message.rule ? filled(message.rule.says, message) : TABLE.by_form[message.cause] ?? TABLE.unknown];
    const { kinds, silent_after: silent, says } = TABLE.fragmentation;
    if (kinds.includes(message.form.kind) && !silent.includes(message.cause ?? null)) {
      said.push(says.map((rule) => applies(rule, message)).find(Boolean));
    }
    return [...said, applies(TABLE.nobody, message)].filter(Boolean).join(" ");
  }

  // Return what to try, in order, as names of techniques or as texts of their own.
  function remedies(message) {
    const name = message.moment?.name ?? "";
    const tried = [...(TABLE.first[message.cause] ?? [])];
    if (!TABLE.no_moment_for.includes(message.cause)) {
      const logits = ["forward", "backward"].includes(name) && found(TABLE.logits.find, message.text).length;
      tried.push(...(logits ? [TABLE.logits.try] : []), ...TABLE.by_moment[name]);
    }
    return tried.slice(0, MOST);
  }

  // Return lines on what to try, on what is missing, and on other GPUs.
  function end(message) {
    const lesson = (name) => (TABLE.techniques[name] ? ` (${TABLE.techniques[name]})` : "");
    const shown = remedies(message).map((name, n) => `${n + 1}. ${name}${lesson(name)}`);
    const lines = [TABLE.try.replace("{list}", () => shown.join("; "))];
    if (message.missing.length && !message.form.says) {
      lines.push(TABLE.missing.replace("{list}", message.missing.map((name) => TABLE.words[name]).join(", ")));
    }
    if (message.gpus.length > 1) lines.push(filled(TABLE.several.replace("{list}", message.gpus.join(", ")), message));
    return lines;
  }

  // Return the answer about a text, {lines, remedies}, or null if it has no message about memory.
  function answer(text) {
    const message = read(text.slice(-END));
    if (!message) return null;
    const silent = !message.moment && TABLE.no_moment_for.includes(message.cause);
    const told = silent ? "" : message.moment?.says ?? TABLE.no_moment;
    const lines = [...amounts(message), cause(message), told, ...end(message)].filter(Boolean);
    const tool = message.form.tool ?? "nvidia-smi";
    return { lines: lines.map((line) => line.replaceAll("nvidia-smi", tool)), remedies: remedies(message) };
  }

  return { answer };
})();
