for (const table of document.querySelectorAll("table.sortable"))
  table.tHead.rows[0].querySelectorAll("th").forEach((header, column) => {
    const button = document.createElement("button");
    button.append(...header.childNodes);
    header.append(button);
    button.addEventListener("click", () => {
      const down = header.getAttribute("aria-sort") === "ascending";
      for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
      header.setAttribute("aria-sort", down ? "descending" : "ascending");
      const key = row => row.cells[column].dataset.value ?? row.cells[column].textContent;
      const rows = [...table.tBodies[0].rows];
      rows.sort((a, b) => {
        const [one, other] = [key(a), key(b)];
        if (one === "" || other === "") return (one === "") - (other === "");
        const order = isNaN(one) || isNaN(other) ? one.localeCompare(other) : one - other;
        return down ? -order : order;
      });
      table.tBodies[0].append(...rows);
    });
  });
