// sorts a table by the column whose header is clicked; empty cells are last
for (const header of document.querySelectorAll("thead th")) {
  header.querySelector("button").addEventListener("click", () => {
    const rising = header.getAttribute("aria-sort") !== "ascending";
    for (const other of header.parentNode.children) other.removeAttribute("aria-sort");
    header.setAttribute("aria-sort", rising ? "ascending" : "descending");
    const body = header.closest("table").tBodies[0];
    const key = (row) => {
      const cell = row.cells[header.cellIndex];
      return "value" in cell.dataset ? Number(cell.dataset.value) : cell.textContent;
    };
    const compare = (a, b) => {
      const [x, y] = [key(a), key(b)];
      if (x === "" || y === "") return (x === "") - (y === "");
      const order = typeof x === "number" && typeof y === "number" ? x - y : String(x).localeCompare(String(y));
      return rising ? order : -order;
    };
    body.append(...[...body.rows].sort(compare));
  });
}
