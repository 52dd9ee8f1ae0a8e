// What one cell is and what became of its partitions and clients; what one fault did. Opened by #cell-N and #fault-N.
(() => {
  const { data, element, number, seconds, table } = prozess;
  const dialog = document.querySelector("#details"), PARTITIONS_MAX = 60;
  const { partitions, changes, windows, clients } = data;
  const timeline = prozess.timeline;
  const places = (array, wanted) => array.flatMap((value, place) => (wanted(value, place) ? [place] : []));
  const slug = (text) => text.split(",")[0].replaceAll(" ", "-");
  const badge = (word) => element("b", { class: slug(word) }, `${data.signs[word]} ${word}`);
  const brokers = (mask) => places([...Array(31)], (_, bit) => mask & (1 << bit)).join(" ") || "none";

  function list(facts) {
    const shown = Object.entries(facts).map(([name, value]) => element("span", {}, `${name} `, element("b", {}, value)));
    return element("div", { class: "facts" }, ...shown);
  }

  function judged(cell) {
    const rows = Object.entries(cell.anomalies).map(([name, [outcome, count, reason, source, link]]) => [
      link ? element("a", { href: `#w-${cell.number}-${name}` }, name) : name,
      badge(data.outcomes[outcome]),
      count ? number(count) : "",
      element("div", {}, data.texts[reason], data.texts[source] ? element("small", {}, ` [${data.texts[source]}]`) : null),
    ]);
    const made = table([["anomaly", false], ["outcome", false], ["seen", true], ["why", false]], rows, "Anomalies of this cell");
    made.classList.add("judged");
    for (const row of made.querySelectorAll("tbody tr")) row.lastChild.classList.add("wrap");
    return made;
  }

  // Who led a partition and who was in sync, over time: a lane per partition.
  function lanes(chosen) {
    if (!timeline || !chosen.length) return null;
    const { from, to } = { from: timeline.whole.from, to: timeline.whole.to };
    const kinds = ["nothing acknowledged, a fault explains it", "no leader", "a replica out of sync"];
    const made = chosen.map((partition) => {
      const mine = places(changes.partition, (of) => of === partition), spans = [];
      mine.forEach((place, nth) => {
        const end = nth + 1 < mine.length ? changes.at[mine[nth + 1]] : to;
        const kind = changes.leader[place] < 0 ? 1 : changes.whole[place] ? null : 2;
        if (kind !== null && end > from) spans.push([Math.max(changes.at[place], from), end, kind]);
      });
      for (const place of places(windows.partition, (of) => of === partition)) spans.push([windows.begin[place], windows.end[place] ?? to, 0]);
      return { name: partitions.name[partition], spans };
    });
    const figure = { panels: [{ title: "partitions over time", kind: "lanes", kinds, lanes: made }] };
    const container = element("figure");
    requestAnimationFrame(() => prozess.chart.draw(container, figure, { from, to, step: 0.1 }, timeline.bands));
    return container;
  }

  function history(chosen) {
    const rows = places(changes.partition, (of) => chosen.includes(of)).map((place) => [
      number(changes.at[place]), partitions.name[changes.partition[place]],
      changes.leader[place] < 0 ? "none" : String(changes.leader[place]), brokers(changes.isr[place]), String(changes.epoch[place]),
    ]);
    if (!rows.length) return null;
    const headings = [["s", true], ["partition", false], ["leader", false], ["in sync", false], ["epoch", true]];
    return element("details", {}, element("summary", {}, `Leaders and ISR, ${rows.length} entries of the controllers' log`), table(headings, rows, "Leaders and ISR"));
  }

  function ofPartitions(chosen) {
    const rows = chosen.slice(0, PARTITIONS_MAX).map((place) => [
      partitions.name[place], partitions.replicas[place],
      ...["sent", "ok", "unknown", "refused", "read"].map((name) => number(partitions[name][place])),
      String(places(windows.partition, (of) => of === place).length),
    ]);
    const headings = [["partition", false], ["replicas", false], ["sent", true], ["acknowledged", true], ["unknown", true], ["refused", true], ["read", true], ["times unavailable", true]];
    const more = chosen.length > PARTITIONS_MAX ? element("p", {}, `${chosen.length - PARTITIONS_MAX} more.`) : null;
    return [table(headings, rows, "Partitions"), more];
  }

  function ofClients(cell) {
    const rows = places(clients.cells, (cells) => cells.includes(cell.number)).map((place) => [
      clients.name[place], clients.role[place], seconds(clients.started[place]), seconds(clients.ended[place]), clients.exit[place],
    ]);
    return table([["client", false], ["role", false], ["started", true], ["ended", true], ["how", false]], rows, "Clients");
  }

  function showCell(cell) {
    const chosen = places(partitions.cell, (of) => of === cell.number);
    return [
      element("h2", {}, `Cell ${cell.number}: ${cell.workload}${cell.label ? `, ${cell.label}` : ""}`),
      element("p", {}, badge(cell.verdict), " ", element("small", {}, cell.name)),
      element("details", {}, element("summary", {}, "Its whole configuration"), list(cell.axes)),
      judged(cell),
      element("h3", {}, "Its partitions"), lanes(chosen.slice(0, PARTITIONS_MAX)), ...ofPartitions(chosen), history(chosen),
      element("h3", {}, "Its clients"), ofClients(cell),
    ];
  }

  function anomaliesNear(fault) {
    const links = data.near[fault.step]?.map(([cell, name]) => element("li", {}, element("a", { href: `#w-${cell}-${name}` }, `${name} in cell ${cell}`)));
    return links?.length ? [element("h3", {}, "Anomalies with witnesses from that time"), element("ul", {}, ...links)] : [];
  }

  function showFault(fault) {
    const closer = timeline && element("button", { type: "button" }, "Show it in the timeline");
    closer?.addEventListener("click", () => {
      prozess.go("timeline");
      timeline.zoom(fault.begin - 2, (fault.end ?? timeline.whole.to) + 5);
    });
    const end = fault.end ?? Infinity;
    const moved = [...new Set(places(changes.at, (at) => at >= fault.begin && at <= end).map((place) => changes.partition[place]))];
    const dark = places(windows.fault, (of) => of === fault.number);
    const effect = { true: "yes", false: "no", null: "not known" }[String(fault.effective)];
    return [
      element("h2", {}, `Fault: ${fault.name}`),
      list({ step: fault.step, hit: fault.nodes.join(", "), from: seconds(fault.begin), until: seconds(fault.end), "took effect": effect }),
      element("p", {}, fault.detail), closer,
      ...(fault.cost.length ? [element("h3", {}, "What it cost"), table(data.costs.map((name, place) => [name, place > 1]), fault.cost, "What it cost")] : []),
      element("h3", {}, "What changed while it lasted"),
      element("p", {}, `${moved.length} of ${partitions.name.length} partitions changed their leader or ISR; ${dark.length} times a partition acknowledged nothing because of it.`),
      lanes([...new Set([...dark.map((place) => windows.partition[place]), ...moved])].slice(0, PARTITIONS_MAX)),
      history(moved.slice(0, PARTITIONS_MAX)),
      ...anomaliesNear(fault),
    ];
  }

  function apply({ anchor }) {
    const [, kind, place] = /^(cell|fault)-(\d+)$/.exec(anchor) ?? [];
    const found = kind && (kind === "cell" ? data.cells.get(Number(place)) : data.faults[Number(place)]);
    if (!found) {
      if (dialog.open) dialog.close();
      return;
    }
    const close = element("button", { type: "button", class: "close" }, "Close");
    close.addEventListener("click", () => dialog.close());
    const shown = (kind === "cell" ? showCell(found) : showFault(found)).filter(Boolean);
    dialog.replaceChildren(close, ...shown);
    dialog.setAttribute("aria-label", shown[0].textContent);
    if (!dialog.open) dialog.showModal();
    dialog.scrollTop = 0;
  }
  dialog.addEventListener("close", () => {
    const { anchor } = prozess.state();
    if (!/^(cell|fault)-\d+$/.test(anchor)) return;
    prozess.go(anchor.startsWith("cell") ? "matrix" : "faults");
    document.querySelector(`a[href="#${anchor}"]`)?.focus({ preventScroll: true });
  });
  prozess.listen(apply);
})();
