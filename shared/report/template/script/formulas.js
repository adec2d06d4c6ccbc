// The formulas of formulas.toml: evaluate and format them.
const Formulas = (() => {
  const told = data("calculator-data");
  const FUNCTIONS = { max: Math.max, min: Math.min, ceil: Math.ceil, where: (condition, yes, no) => (condition ? yes : no) };
  const OPERATORS = {
    "+": (a, b) => a + b, "-": (a, b) => a - b, "*": (a, b) => a * b, "/": (a, b) => a / b,
    ">": (a, b) => Number(a > b), "<": (a, b) => Number(a < b), "==": (a, b) => Number(a === b),
    ">=": (a, b) => Number(a >= b), "<=": (a, b) => Number(a <= b),
  };
  const LEVELS = [[">", "<", ">=", "<=", "=="], ["+", "-"], ["*", "/"]]; // the lowest precedence first
  const trees = new Map();

  // Return an expression as a tree of {number}, {name}, {call, args} and {operator, args}.
  function tree(expression) {
    if (!trees.has(expression)) trees.set(expression, read(expression.match(/\w+|[<>=]=|\S/g)));
    return trees.get(expression);
  }

  function read(tokens) {
    let at = 0;
    function level(n) {
      if (n === LEVELS.length) return unit();
      let left = level(n + 1);
      while (LEVELS[n].includes(tokens[at])) left = { operator: tokens[at++], args: [left, level(n + 1)] };
      return left;
    }
    function unit() {
      const token = tokens[at++];
      if (/^\d/.test(token)) return { number: Number(token) };
      if (token === "(") {
        const inside = level(0);
        at++; // the closing bracket
        return inside;
      }
      if (tokens[at] !== "(") return { name: token };
      const args = [];
      do {
        at++; // a bracket or a comma
        args.push(level(0));
      } while (tokens[at] === ",");
      at++;
      return { call: token, args };
    }
    return level(0);
  }

  function value(node, known) {
    if ("number" in node) return node.number;
    if ("name" in node) return known[node.name];
    const args = node.args.map((arg) => value(arg, known));
    return (FUNCTIONS[node.call] ?? OPERATORS[node.operator])(...args);
  }

  // Return a tree without what has no effect here: other cases, terms of 0, factors of 1.
  function simple(node, known) {
    if (!node.args) return node;
    if (node.call === "where") return simple(node.args[value(node.args[0], known) ? 1 : 2], known);
    if (value(node, known) === 0) return { number: 0 };
    const args = node.args.map((arg) => simple(arg, known));
    const is = (n, number) => value(args[n], known) === number;
    if (node.operator === "*" && is(0, 1)) return args[1];
    if ("*/".includes(node.operator) && is(1, 1)) return args[0];
    if (node.operator === "+" && is(0, 0)) return args[1];
    if ("+-".includes(node.operator) && is(1, 0)) return args[0];
    const more = args.filter((arg) => value(arg, known) !== 0);
    return node.call === "max" && more.length === 1 ? more[0] : { ...node, args };
  }

  // Format a tree; name is a function that formats a name.
  function written(node, name, least = 0) {
    if ("number" in node) return number(node.number);
    if ("name" in node) return name(node.name);
    if (node.call) return `${node.call}(${node.args.map((arg) => written(arg, name)).join(", ")})`;
    const n = LEVELS.findIndex((operators) => operators.includes(node.operator));
    const [a, b] = [written(node.args[0], name, n), written(node.args[1], name, n + 1)];
    const text = `${a} ${{ "*": "×", "-": "−" }[node.operator] ?? node.operator} ${b}`;
    return n < least ? `(${text})` : text;
  }

  // Return an expression as text, simplified for these values: with names, and with numbers.
  function shown(expression, known) {
    const found = simple(tree(expression), known);
    return [written(found, (name) => name), written(found, (name) => number(known[name]))];
  }

  // Return known, extended by the values of formulas.
  function parts(known, formulas) {
    const found = { ...known };
    for (const [name, expression] of formulas) found[name] = value(tree(expression), found);
    return found;
  }

  // Return for every moment its name, the values of all names, and [category, bytes, expression, description].
  function moments(inputs) {
    const known = parts(inputs, told.parts);
    return told.moments.filter(([, kinds]) => value(tree(kinds), known)).map(([name, , sets, further, held]) => {
      const here = parts(parts(known, Object.entries(sets)), further);
      const rows = Object.entries(held).map(([label, [text, what]]) => [label, value(tree(text), here), text, what]);
      return { name, known: here, sets, further, rows, total: rows.reduce((sum, row) => sum + row[1], 0) };
    });
  }

  // Return the numbers that the formulas take for a stored prediction.
  function inputs(record) {
    const shape = told.shapes[record.model];
    const [weight_bytes, value_bytes] = told.precisions[record.precision];
    const tokens = record.tokens || shape.tokens;
    return { ...told.kinds[shape.kind], ...shape, ...record, tokens, weight_bytes, value_bytes };
  }

  // Return the relative error of the formulas for a stored peak; 0.01 is 1 % more than stored.
  const miss = (record) => Math.max(...moments(inputs(record)).map((moment) => moment.total)) / record.peak - 1;

  const number = (amount) => Number(amount).toLocaleString("en-US", { maximumFractionDigits: 3 });

  return { told, inputs, moments, miss, shown, number };
})();
