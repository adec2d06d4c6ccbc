// The state of the page is in its address, so that it can be shared: #PLACE;name=value;name=value.
const Address = (() => {
  const PAUSE = 300; // ms; Safari allows 100 changes in 30 s, and a pointer moves more often
  const pieces = new Map(); // name -> { value, fallback, show, followers }
  const arriving = []; // functions of the element, or null, that the address now names
  let place = "";
  let known = ""; // the part of the address that was last read or written
  let written = -PAUSE; // time of the last write
  let waiting = 0;

  // Return a text as it was before it was encoded; null if it was cut off in the middle.
  function decoded(text) {
    try {
      return decodeURIComponent(text);
    } catch {
      return null;
    }
  }

  function read() {
    known = location.hash;
    const [first, ...rest] = known.slice(1).split(/;|%3B/i).map(decoded); // no value has a semicolon
    place = first ?? "";
    const given = rest.filter((text) => text !== null);
    return new Map(given.map((text) => [text.split("=", 1)[0], text.slice(text.indexOf("=") + 1)]));
  }

  function write() {
    clearTimeout(waiting);
    const early = written + PAUSE - performance.now();
    if (early > 0) {
      waiting = setTimeout(write, early);
      return;
    }
    if (location.hash !== known) return; // another address was opened: read it before writing
    const told = [...pieces].filter(([, piece]) => piece.value !== piece.fallback);
    const parts = [place, ...told.map(([name, piece]) => `${name}=${encodeURIComponent(piece.value)}`)];
    const hash = parts.join(";");
    if (`#${hash}` === known || !(hash || known)) return;
    history.replaceState({ own: true }, "", `#${hash}`);
    known = location.hash;
    written = performance.now();
  }

  // Add a piece of state. show(value) is called now, and when another address is opened.
  function keep(name, fallback, show) {
    const value = read().get(name) ?? fallback;
    pieces.set(name, { value, fallback, show, followers: [] });
    show(value);
  }

  // Call a function whenever a piece is shown again.
  function follow(name, follower) {
    pieces.get(name).followers.push(follower);
  }

  function change(piece, value) {
    piece.value = value;
    piece.show(value);
    for (const follower of piece.followers) follower();
  }

  function get(name) {
    return pieces.get(name).value;
  }

  // Change a piece and show it.
  function set(name, value) {
    change(pieces.get(name), String(value));
    write();
  }

  // Bind a select, or radio buttons of one name, to a piece of state; show(value) as in keep().
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

  // Show the place that the address names; listeners make it visible first.
  function go() {
    const target = document.getElementById(place);
    for (const listener of arriving) listener(target);
    target?.scrollIntoView();
  }

  // Links and the browser's Back lead to a place; the rest of the state stays. An address that was
  // not written here may bring another state.
  addEventListener("hashchange", () => {
    const given = read();
    if (given.size && !history.state?.own) {
      for (const [name, piece] of pieces) {
        const value = given.get(name) ?? piece.fallback;
        if (value !== piece.value) change(piece, value);
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
  return { keep, follow, get, set, control, go, visit, onArrival };
})();
