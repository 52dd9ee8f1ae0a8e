// The matrix: filtered by verdict, guarantee, outcome, axes and text; sorted by any column. All of it is in the address.
(() => {
  const { data, element, set } = prozess;
  const form = document.querySelector("#filters"), counted = document.querySelector("#filtered");
  const WORST = ["violated", "unknown", "permitted", "held", "possible, not seen", "not judged"];
  const tables = [...document.querySelectorAll("table.matrix")].map((table) => {
    const body = table.tBodies[0];
    const headings = [...table.tHead.rows[0].cells];
    const rows = [...body.rows].map((row) => ({ row, cell: data.cells.get(Number(row.id.slice("cell-".length))), text: null }));
    return { table, body, headings, rows, section: table.closest(".workload") };
  });
  const outcomeOf = (cell, guarantee) => data.outcomes[cell.anomalies[guarantee]?.[0]];

  function keep(one, filters) {
    const verdict = filters.get("v"), guarantee = filters.get("g"), outcome = filters.get("o"), text = filters.get("q");
    if (verdict && one.cell.verdict !== verdict) return false;
    const judged = guarantee ? [outcomeOf(one.cell, guarantee)] : Object.values(one.cell.anomalies).map((a) => data.outcomes[a[0]]);
    if (guarantee && judged[0] === undefined) return false;
    if (outcome && !judged.includes(outcome)) return false;
    for (const [name, value] of filters) {
      if (name.startsWith("a.") && one.cell.axes[name.slice(2)] !== value) return false;
    }
    if (!text) return true;
    one.text ??= `${one.cell.name} ${one.row.textContent}`.toLowerCase();
    return text.toLowerCase().split(/\s+/).every((word) => one.text.includes(word));
  }

  // What a row is sorted by: numbers before texts, the worst outcome first.
  function key(one, column) {
    const cell = one.cell;
    if (column === "cell") return [cell.number];
    if (column === "verdict") return [WORST.indexOf(cell.verdict), cell.number];
    if (column in cell.axes) {
      const value = cell.axes[column];
      return Number.isNaN(Number(value)) ? [Infinity, value] : [Number(value)];
    }
    const found = cell.anomalies[column];
    return found ? [WORST.indexOf(data.outcomes[found[0]]), -found[1]] : [WORST.length];
  }
  function compare(a, b) {
    for (let place = 0; place < Math.max(a.length, b.length); place++) {
      if (a[place] === b[place]) continue;
      if (a[place] === undefined) return -1;
      if (b[place] === undefined) return 1;
      return a[place] < b[place] ? -1 : 1;
    }
    return 0;
  }

  let sorted = "cell";
  function sort(by) {
    if (by === sorted) return;
    sorted = by;
    const column = by.replace(/^-/, ""), sign = by.startsWith("-") ? -1 : 1;
    for (const { body, headings, rows } of tables) {
      const here = headings.find((heading) => heading.dataset.column === column);
      for (const heading of headings) heading.removeAttribute("aria-sort");
      here?.setAttribute("aria-sort", sign > 0 ? "ascending" : "descending");
      const order = rows.map((one) => [key(one, here ? column : "cell"), one.cell.number, one.row]);
      order.sort((a, b) => sign * compare(a[0], b[0]) || a[1] - b[1]);
      body.append(...order.map(([, , row]) => row));
    }
  }

  let marked = "";
  function mark(guarantee) {
    if (guarantee === marked) return;
    marked = guarantee;
    for (const { table, headings } of tables) {
      for (const old of table.querySelectorAll(".chosen")) old.classList.remove("chosen");
      const place = headings.findIndex((heading) => heading.dataset.column === guarantee);
      if (place >= 0) for (const row of table.rows) row.cells[place].classList.add("chosen");
    }
  }

  function apply({ anchor, filters }) {
    let shown = 0, all = 0;
    for (const { rows, section } of tables) {
      let here = 0;
      for (const one of rows) {
        const kept = keep(one, filters);
        if (one.row.hidden === kept) one.row.hidden = !kept;
        one.row.classList.toggle("current", anchor === one.row.id);
        here += kept;
      }
      section.hidden = here === 0;
      shown += here;
      all += rows.length;
    }
    const cells = all === 1 ? "cell" : "cells";
    counted.textContent = shown === all ? `${all} ${cells}` : `${shown} of ${all} ${cells}`;
    sort(filters.get("s") ?? "cell");
    mark(filters.get("g") ?? "");
    for (const field of form.elements) if (field.name && field !== document.activeElement) field.value = filters.get(field.name) ?? "";
  }

  for (const { headings } of tables) {
    for (const heading of headings) {
      const column = heading.dataset.column;
      const button = element("button", { type: "button", title: `Sort by ${column}` });
      button.append(...heading.childNodes);
      button.addEventListener("click", () => set({ s: sorted === column ? `-${column}` : column }));
      heading.append(button);
    }
  }
  form.hidden = false;
  form.addEventListener("input", (event) => set({ [event.target.name]: event.target.value }));
  form.addEventListener("submit", (event) => event.preventDefault());
  form.elements.clear.addEventListener("click", () => {
    const names = [...form.elements].map((field) => field.name).filter((name) => name && name !== "clear");
    set(Object.fromEntries([...names, "s"].map((name) => [name, null])));
    for (const field of form.elements) if (field.name !== "clear") field.value = "";
  });
  prozess.listen(apply);
})();
