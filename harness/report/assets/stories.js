// The story of a witness: beside the list of what happened, lanes for who did it. Sends and faults are bars from begin to end,
// arrows go to the log and come from it. Drawn when it is opened.
(() => {
  const { element, drawing } = prozess;
  const ROW = 22, HEAD = 64, LANE = 46;
  const SIGNS = {
    sent: "●", acknowledged: "✓", unknown: "?", refused: "✗", read: "◉", absent: "∅", leads: "◆", copies: "≡", began: "▼", ended: "▲",
    processed: "■", committed: "✎", assigned: "⇄", transaction: "T", message: "✉",
  };
  const x = (lane) => lane * LANE + LANE / 2;
  const y = (row) => HEAD + row * ROW + ROW / 2;

  // Begin and end of one thing: a bar in its lane; of a fault, a band behind all lanes.
  function bars(rows, lanes, height) {
    const open = new Map(), drawn = [];
    const close = (pair, lane, from, until) => {
      if (Number(pair) < 0) drawn.unshift(drawing("rect", { class: "band", x: 0, width: lanes * LANE, y: from, height: until - from }));
      else drawn.push(drawing("line", { class: "span", x1: x(lane), x2: x(lane), y1: from, y2: until }));
    };
    rows.forEach((row, place) => {
      const { pair, lane } = row.dataset;
      if (!pair) return;
      if (open.has(pair)) {
        close(pair, Number(lane), open.get(pair).from, y(place));
        open.delete(pair);
      } else open.set(pair, { from: y(place), lane: Number(lane), sent: row.dataset.kind === "sent" || row.dataset.kind === "began" });
    });
    for (const [pair, { from, lane, sent }] of open) if (sent) close(pair, lane, from, height);
    return drawn;
  }

  function arrow(row, place) {
    const { lane, to, kind } = row.dataset;
    if (to === undefined) return [];
    const inwards = kind === "read" || kind === "absent";
    const [from, until] = inwards ? [x(Number(to)), x(Number(lane))] : [x(Number(lane)), x(Number(to))];
    const back = Math.sign(until - from), tip = until - back * 8;
    return [
      drawing("line", { class: kind === "absent" ? "arrow missing" : "arrow", x1: from, x2: tip, y1: y(place), y2: y(place) }),
      drawing("path", { class: "tip", d: `M${tip} ${y(place)}l${-back * 6} -3.5v7z` }),
    ];
  }

  function draw(list) {
    const lanes = list.dataset.lanes.split("|"), rows = [...list.children];
    const height = HEAD + rows.length * ROW, width = lanes.length * LANE + 40;
    const root = drawing("svg", { width, height, "aria-hidden": "true" });
    root.append(...bars(rows, lanes.length, height));
    lanes.forEach((name, lane) => {
      root.append(drawing("line", { class: "axis", x1: x(lane), x2: x(lane), y1: HEAD, y2: height }));
      root.append(drawing("text", { x: x(lane), y: HEAD - 6, transform: `rotate(-38 ${x(lane)} ${HEAD - 6})` }, name));
    });
    rows.forEach((row, place) => {
      const lane = Number(row.dataset.lane);
      root.append(...arrow(row, place), drawing("circle", { class: "mark", cx: x(lane), cy: y(place), r: 8 }));
      root.append(drawing("text", { class: `sign ${row.dataset.kind}`, x: x(lane), y: y(place) + 4, "text-anchor": "middle" }, SIGNS[row.dataset.kind] ?? "·"));
    });
    const frame = element("div", { class: "storyboard" }, root);
    list.before(frame);
    frame.append(list);
    list.style.paddingTop = `${HEAD}px`;
    list.classList.add("drawn");
  }

  function drawWithin(part) {
    for (const list of part.querySelectorAll("ol.story:not(.drawn)")) if (list.checkVisibility()) draw(list);
  }
  document.addEventListener("toggle", (event) => drawWithin(event.target), true);
  drawWithin(document);
})();
