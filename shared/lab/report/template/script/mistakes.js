// Which line is wrong? A clicked line says whether it is the change, which opens the answer.
for (const line of document.querySelectorAll(".mistake button")) {
  line.addEventListener("click", () => {
    const found = "wrong" in line.dataset;
    line.setAttribute("aria-label", `${line.textContent.trim()}: ${found ? "this is the change" : "not this line"}`);
    line.className = found ? "found" : "right";
    if (found) line.closest(".mistake").querySelector("details").open = true;
  });
}
