// Which line is wrong? A line that is chosen says whether it is; the right choice opens the answer.
for (const line of document.querySelectorAll(".mistake button")) {
  line.addEventListener("click", () => {
    const found = "wrong" in line.dataset;
    line.setAttribute("aria-label", `${line.textContent.trim()}: ${found ? "this is it" : "this is right"}`);
    line.className = found ? "found" : "right";
    if (found) line.closest(".mistake").querySelector("details").open = true;
  });
}
