// The state of the page is in its address, so that it can be shared: #PLACE;name=value;name=value.
const Address = (() => {
  const pieces = new Map(); // name -> { value, fallback, show }
  const arriving = []; // functions of an element, or null, which the address now leads to
  let place = "";

  function read() {
    const [first, ...rest] = decodeURIComponent(location.hash.slice(1)).split(";");
    place = first;
    const given = new Map(rest.map((text) => [text.split("=", 1)[0], text.slice(text.indexOf("=") + 1)]));
    return given;
  }

  function write() {
    const told = [...pieces].filter(([, piece]) => piece.value !== piece.fallback);
    const parts = [place, ...told.map(([name, piece]) => `${name}=${encodeURIComponent(piece.value)}`)];
    const hash = parts.join(";");
    if (`#${hash}` !== location.hash && (hash || location.hash)) history.replaceState(null, "", `#${hash}`);
  }

  // Adds a piece of state. show(value) is called now, and when another address is opened.
  function keep(name, fallback, show) {
    const value = read().get(name) ?? fallback;
    pieces.set(name, { value, fallback, show });
    show(value);
  }

  function get(name) {
    return pieces.get(name).value;
  }

  // Changes a piece and shows it.
  function set(name, value) {
    const piece = pieces.get(name);
    piece.value = String(value);
    write();
    piece.show(piece.value);
  }

  // Binds a select, or radio buttons of one name, to a piece of state; show(value) as in keep().
  function control(name, inputs, show) {
    const [first] = inputs;
    const radio = first.type === "radio";
    const values = radio ? inputs.map((input) => input.value) : [...first.options].map((o) => o.value);
    const fallback = radio ? inputs.find((input) => input.defaultChecked).value
      : ([...first.options].find((o) => o.defaultSelected) ?? first.options[0]).value;
    keep(name, fallback, (value) => {
      const known = values.includes(value) ? value : fallback;
      if (radio) for (const input of inputs) input.checked = input.value === known;
      else first.value = known;
      show(known);
    });
    for (const input of inputs) input.addEventListener("change", () => set(name, input.value));
  }

  // Shows the place that the address names; listeners make it visible first.
  function go() {
    const target = document.getElementById(place);
    for (const listener of arriving) listener(target);
    target?.scrollIntoView();
  }

  // A link leads to a place; the rest of the state stays. Another address may bring another state.
  addEventListener("hashchange", () => {
    const given = read();
    if (given.size) {
      for (const [name, piece] of pieces) {
        const value = given.get(name) ?? piece.fallback;
        if (value !== piece.value) {
          piece.value = value;
          piece.show(value);
        }
      }
    }
    go();
    write();
  });

  function visit(name) {
    place = name;
    write();
    go();
  }

  const onArrival = (listener) => arriving.push(listener);
  return { keep, get, set, control, go, visit, onArrival };
})();
