"use strict";
// Sort each table by the column whose head is clicked, cells without a number last; filter the rows of long tables by words.
const text = (row, column) => row.cells[column].textContent.trim();
const number = cell => parseFloat(cell.replace(/^[[(<>≤≥~]\s*/, "").replace("−", "-").replace(/,(?=\d{3})/g, ""));
const missing = cell => cell === "" || /^[–—-]$/.test(cell);
function sort(head) {
  const body = head.closest("table").tBodies[0], column = head.cellIndex, down = head.ariaSort === "ascending";
  for (const other of head.parentNode.cells) other.removeAttribute("aria-sort");
  head.ariaSort = down ? "descending" : "ascending";
  const rows = [...body.rows], present = rows.filter(row => !missing(text(row, column)));
  const numeric = present.every(row => !isNaN(number(text(row, column))));
  const compare = numeric ? (a, b) => number(a) - number(b) : (a, b) => a.localeCompare(b, "en", {numeric: true});
  present.sort((a, b) => (down ? -1 : 1) * compare(text(a, column), text(b, column)));
  body.append(...present, ...rows.filter(row => missing(text(row, column))));
}
for (const table of document.querySelectorAll(".md-content table:has(thead th)")) {
  for (const head of table.tHead.rows[0].cells) Object.assign(head, {tabIndex: 0, title: "Sort", onclick: () => sort(head),
    onkeydown: event => event.key === "Enter" && sort(head)});
  if (table.tBodies[0].rows.length <= 10) continue;
  const filter = Object.assign(document.createElement("input"), {type: "search", className: "filter", placeholder: "Filter rows",
    ariaLabel: "Filter rows", oninput: () => {
      for (const row of table.tBodies[0].rows) row.hidden = !row.textContent.toLowerCase().includes(filter.value.toLowerCase());
    }});
  (table.closest(".md-typeset__scrollwrap") ?? table).before(filter);
}
