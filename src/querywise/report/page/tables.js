"use strict";
// A click on a heading sorts its table by that column: numbers by value, texts by letter, empty cells last.
for (const button of document.querySelectorAll("th button")) {
  button.addEventListener("click", () => {
    const heading = button.closest("th");
    const body = heading.closest("table").tBodies[0];
    const place = heading.cellIndex;
    const down = heading.getAttribute("aria-sort") === "ascending";
    for (const other of heading.parentNode.children) other.removeAttribute("aria-sort");
    heading.setAttribute("aria-sort", down ? "descending" : "ascending");
    const value = (row) => {
      const cell = row.cells[place];
      return cell.dataset.value === undefined ? cell.textContent : Number(cell.dataset.value);
    };
    const compare = (one, two) => {
      const [a, b] = [value(one), value(two)];
      if (a === "" || b === "") return (a === "") - (b === "");
      const order = typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b));
      return down ? -order : order;
    };
    body.append(...[...body.rows].sort(compare));
  });
}
