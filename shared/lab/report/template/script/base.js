// Helpers of all parts of the page. Each file is a script of its own, in the order of page.py; its
// part is one constant, such as Ladder, with the functions that others may call.
"use strict";
const one = (selector, from = document) => from.querySelector(selector);
const all = (selector, from = document) => [...from.querySelectorAll(selector)];
const id = (script) => script.replaceAll("/", "-"); // of a script's article

// Make an element; children are elements or texts, which are never read as HTML.
function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

// Return whether a key is a command of the browser or the system, such as Alt and an arrow.
const modified = (event) => event.altKey || event.ctrlKey || event.metaKey;

// Return the data that the page holds as JSON, in <script type="application/json" id="NAME-data">.
const data = (name) => JSON.parse(document.getElementById(`${name}-data`).textContent);

// Format a size in MB, as shared/lab/records/record.py does.
const size = (mb) => (mb >= 1000 ? `${(mb / 1000).toFixed(2)} GB` : `${mb.toFixed(1)} MB`);
const color = (category) => `var(--${category.replaceAll(" ", "-")})`;
