// The timeline: drag or type to look closer, move through it with the keyboard, read its numbers as text and as a table.
prozess.timeline = (() => {
  const { data, drawing, number, wall, table, set } = prozess;
  const ROWS_MAX = 60, LEAST_S = 0.5;
  const figures = data.figures;
  if (!figures.length) return null;
  const whole = { from: Math.min(...figures.map((f) => f.begin)), to: Math.max(...figures.map((f) => f.end)) };
  const bands = data.faults.map((fault, place) => ({ ...fault, number: place, end: fault.end ?? whole.to }));
  const controls = document.querySelector("#timeline-controls"), described = document.querySelector("#timeline-reported");
  const [from, to, moment] = ["from", "to", "moment"].map((name) => controls.elements[name]);
  const numbers = document.querySelector("#timeline-numbers");
  let view = { ...whole }, drawn = [], at = null;

  const fit = (low, high) => {
    const length = Math.min(Math.max(high - low, LEAST_S), whole.to - whole.from);
    const start = Math.min(Math.max(low, whole.from), whole.to - length);
    return { from: start, to: start + length };
  };
  const step = () => Math.max((view.to - view.from) / 200, 0.05);

  function indexAt(panel, time) {
    let low = 0, high = panel.at.length - 1;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (panel.at[middle] <= time) low = middle;
      else high = middle - 1;
    }
    return panel.at.length && panel.at[low] <= time ? low : null;
  }
  function valuesAt(panel, time) {
    if (panel.kind === "lanes") {
      return panel.lanes.filter((lane) => lane.spans.some(([a, b]) => a <= time && b >= time)).map((lane) => lane.name);
    }
    const place = indexAt(panel, time);
    return place === null ? [] : panel.series.filter((s) => s.y[place] !== null).map((s) => `${s.name} ${number(s.y[place])}`);
  }
  function words(time) {
    const active = bands.filter((band) => band.begin <= time && band.end >= time).map((band) => band.name);
    const parts = figures.flatMap((figure) => figure.panels).map((panel) => [panel.title, valuesAt(panel, time)]);
    const known = parts.filter(([, values]) => values.length).map(([title, values]) => {
      const some = values.length > 6 ? [...values.slice(0, 6), `${values.length - 6} more`] : values;
      return `${title}: ${some.join(", ")}`;
    });
    const clock = wall(time);
    return [`${number(time)} s${clock ? ` (${clock} UTC)` : ""}`, active.length ? `faults: ${active.join(", ")}` : "no fault", ...known].join("; ");
  }

  function cursor(time) {
    at = time;
    for (const one of drawn) one.cursor(time);
    if (time === null) return;
    described.textContent = words(time);
    moment.value = time;
    moment.setAttribute("aria-valuetext", `${number(time)} seconds`);
  }

  function redraw() {
    const inView = { ...view, step: step() };
    drawn = figures.map((figure, place) => prozess.chart.draw(document.getElementById(`figure-${place}`), figure, inView, bands));
    Object.assign(moment, { min: view.from, max: view.to, step: step() });
    [from.value, to.value] = [view.from.toFixed(2), view.to.toFixed(2)];
    if (at !== null && at >= view.from && at <= view.to) cursor(at);
    else moment.value = view.from;
    if (!numbers.hidden) fillTable();
  }

  function fillTable() {
    const lines = figures.flatMap((f) => f.panels).filter((panel) => panel.kind !== "lanes");
    const columns = lines.flatMap((panel) => panel.series.map((series) => ({ panel, series })));
    const rows = [], count = Math.min(ROWS_MAX, Math.ceil((view.to - view.from) / 0.25));
    for (let place = 0; place < count; place++) {
      const time = view.from + ((view.to - view.from) * place) / count;
      const active = bands.filter((band) => band.begin <= time && band.end >= time).map((band) => band.name).join(", ");
      const values = columns.map(({ panel, series }) => {
        const index = indexAt(panel, time);
        return index === null ? "" : number(series.y[index]);
      });
      rows.push([time.toFixed(2), active, ...values]);
    }
    const headings = [["s", true], ["faults", false], ...columns.map(({ panel, series }) => [`${panel.title}: ${series.name}`, true])];
    numbers.replaceChildren(table(headings, rows, "Numbers of the timeline"));
  }

  const zoom = (low, high) => {
    const next = fit(low, high);
    const all = next.to - next.from >= whole.to - whole.from - 1e-6;
    set({ t: all ? null : `${next.from.toFixed(2)},${next.to.toFixed(2)}` });
  };
  const by = (factor) => {
    const middle = at !== null && at >= view.from && at <= view.to ? at : (view.from + view.to) / 2, half = ((view.to - view.from) / 2) * factor;
    zoom(middle - half, middle + half);
  };
  const move = (share) => zoom(view.from + (view.to - view.from) * share, view.to + (view.to - view.from) * share);

  function brush(container, place) {
    let start = null, box = null;
    const plots = () => [...container.querySelectorAll(".panel > svg[role=img] > svg")];
    container.addEventListener("pointerdown", (event) => {
      if (event.button !== 0 || event.target.closest("a")) return;
      start = drawn[place].time(event);
    });
    container.addEventListener("pointermove", (event) => {
      const now = drawn[place].time(event);
      cursor(now);
      if (start === null) return;
      for (const one of box ?? []) one.remove();
      const [low, high] = [Math.min(start, now), Math.max(start, now)];
      box = plots().map((plot) => {
        const inner = plot.width.baseVal.value, x = (time) => ((time - view.from) / (view.to - view.from)) * inner;
        return plot.appendChild(drawing("rect", { class: "brush", x: x(low), width: x(high) - x(low), y: 0, height: plot.height.baseVal.value }));
      });
    });
    addEventListener("pointerup", (event) => {
      if (start === null) return;
      const [first, last] = [start, drawn[place].time(event)];
      start = null;
      for (const one of box ?? []) one.remove();
      if (Math.abs(last - first) > (view.to - view.from) / 100) zoom(Math.min(first, last), Math.max(first, last));
    });
    container.addEventListener("dblclick", () => set({ t: null }));
  }

  controls.hidden = false;
  controls.addEventListener("submit", (event) => event.preventDefault());
  for (const input of [from, to]) input.addEventListener("change", () => zoom(Number(from.value), Math.max(Number(to.value), Number(from.value) + LEAST_S)));
  moment.addEventListener("input", () => cursor(Number(moment.value)));
  const acts = { closer: () => by(0.5), wider: () => by(2), earlier: () => move(-0.5), later: () => move(0.5), whole: () => set({ t: null }) };
  for (const [name, act] of Object.entries(acts)) controls.elements[name].addEventListener("click", act);
  controls.elements.table.addEventListener("click", () => {
    numbers.hidden = !numbers.hidden;
    controls.elements.table.setAttribute("aria-expanded", String(!numbers.hidden));
    if (!numbers.hidden) fillTable();
  });
  for (const place of figures.keys()) brush(document.getElementById(`figure-${place}`), place);
  let shown = null;
  prozess.listen(({ filters }) => {
    const [low, high] = (filters.get("t") ?? "").split(",").map(Number);
    view = Number.isFinite(low) && Number.isFinite(high) && high > low ? fit(low, high) : { ...whole };
    const key = `${view.from},${view.to}`;
    if (key !== shown) redraw();
    shown = key;
  });
  let width = null;
  new ResizeObserver(() => {
    const now = document.getElementById("figure-0").clientWidth;
    if (width !== null && now !== width) redraw();
    width = now;
  }).observe(document.getElementById("figure-0"));
  return { bands, whole, zoom };
})();
