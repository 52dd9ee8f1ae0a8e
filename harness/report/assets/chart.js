// Panels over one time axis, drawn as SVG: lines, steps, areas, bars, and lanes of spans, over the bands of the faults.
prozess.chart = (() => {
  const { element, drawing, number } = prozess;
  const LEFT = 54, RIGHT = 10, AXIS = 18, FAULT_LINE = 15, FAULT_LINES_MAX = 8, LANE = 14, LANES_HEIGHT_MAX = 220;

  const within = (value, low, high) => Math.min(Math.max(value, low), high);

  function ticks(low, high, count) {
    const rough = (high - low) / count || 1;
    const power = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 5, 10].map((factor) => factor * power).find((size) => size >= rough);
    const found = [];
    for (let at = Math.ceil(low / step) * step; at <= high + step / 1e6; at += step) found.push(Math.round(at / step) * step + 0); // -0 is written as 0
    return found;
  }

  function verticalScale(panel, view, height) {
    let low = panel.log ? Infinity : 0, high = panel.log ? 0 : -Infinity;
    panel.at.forEach((at, place) => {
      if (at < view.from - view.step || at > view.to) return;
      let sum = 0;
      for (const series of panel.series) {
        const value = series.y[place];
        if (value === null || value === undefined) continue;
        sum += value;
        high = Math.max(high, panel.kind === "bars" ? sum : value);
        if (value > 0) low = Math.min(low, value);
      }
    });
    if (!panel.log) {
      high = high > 0 ? high * 1.05 : 1;
      return { y: (value) => height - (value / high) * height, ticks: ticks(0, high, Math.max(3, height / 35)) };
    }
    low = 10 ** Math.floor(Math.log10(low < Infinity ? low : 1));
    high = Math.max(10 ** Math.ceil(Math.log10(high || 10)), low * 10);
    const span = Math.log10(high / low), found = [];
    for (let at = low; at <= high * 1.01; at *= 10) found.push(at);
    return { y: (value) => height - (Math.log10(Math.max(value, low) / low) / span) * height, ticks: found };
  }

  // Where values are known: [[x, y, next x], …] for each run without a gap, of what is in view.
  function runs(panel, series, view, scale, x) {
    const found = [];
    let current = [];
    panel.at.forEach((at, place) => {
      const next = panel.at[place + 1] ?? at + (panel.at[1] - panel.at[0] || 1), value = series.y[place];
      const gone = value === null || value === undefined;
      if ((gone || next < view.from || at > view.to) && current.length && (gone || at > view.to)) {
        found.push(current);
        current = [];
      }
      if (!gone && next >= view.from && at <= view.to) current.push([x(at), scale.y(value), x(next)]);
    });
    return current.length ? [...found, current] : found;
  }

  const point = ([x, y]) => `${x.toFixed(1)} ${y.toFixed(1)}`;
  // A value alone is a dash as long as its bin.
  const polyline = (run) => (run.length > 1 ? `M${run.map(point).join("L")}` : `M${point(run[0])}h${Math.max(run[0][2] - run[0][0], 4)}`);
  const stairs = (run) => run.map(([x, y, next]) => `${point([x, y])}H${next.toFixed(1)}`).join("L");

  function drawSeries(panel, view, scale, height, x) {
    const floor = height.toFixed(1);
    if (panel.kind === "bars") return drawBars(panel, view, scale, x);
    return panel.series.map((series) => {
      const found = runs(panel, series, view, scale, x);
      if (panel.kind === "line") return drawing("path", { class: `line s${series.style}`, d: found.map(polyline).join("") });
      const lines = found.map((run) => `M${stairs(run)}`).join("");
      const line = drawing("path", { class: `line s${series.style}`, d: lines });
      if (panel.kind === "step") return line;
      const area = found.map((run) => `M${run[0][0].toFixed(1)} ${floor}L${stairs(run)}V${floor}Z`).join("");
      return drawing("g", {}, drawing("path", { class: `area bar s${series.style}`, d: area }), line);
    });
  }

  function drawBars(panel, view, scale, x) {
    const below = panel.at.map(() => 0);
    return panel.series.map((series) => {
      let path = "";
      panel.at.forEach((at, place) => {
        const value = series.y[place], next = panel.at[place + 1] ?? at + view.step;
        if (!value || next < view.from || at > view.to) return;
        const [left, right] = [x(at), Math.max(x(next) - 0.5, x(at) + 1)];
        const [bottom, top] = [scale.y(below[place]), scale.y(below[place] + value)];
        below[place] += value;
        path += `M${left.toFixed(1)} ${bottom.toFixed(1)}H${right.toFixed(1)}V${top.toFixed(1)}H${left.toFixed(1)}Z`;
      });
      return drawing("path", { class: `bar s${series.style}`, d: path });
    });
  }

  function drawLanes(panel, view, x) {
    const each = Math.max(2, Math.min(LANE, LANES_HEIGHT_MAX / panel.lanes.length)), named = each > 10;
    const drawn = panel.lanes.flatMap((lane, place) => {
      const spans = lane.spans.filter(([from, to]) => to >= view.from && from <= view.to).map(([from, to, kind]) => {
        const left = x(from), title = `${lane.name}: ${panel.kinds[kind]}, ${from}–${to} s`;
        const size = { x: left, width: Math.max(x(to) - left, 1.5), y: place * each + 1, height: Math.max(each - 2, 1.5) };
        return drawing("rect", { class: `k${kind}`, ...size }, drawing("title", {}, title));
      });
      const name = named ? [drawing("text", { x: 3, y: place * each + each - 3 }, lane.name)] : [];
      return [...spans, ...name];
    });
    return { drawn, height: each * panel.lanes.length };
  }

  function legend(panel) {
    const entries = panel.kind === "lanes"
      ? panel.kinds.map((name, kind) => [name, drawing("rect", { class: `k${kind}`, x: 1, y: 2, width: 22, height: 8 }), panel.lanes.some((l) => l.spans.some((s) => s[2] === kind))])
      : panel.series.map((s) => [s.name, panel.kind === "bars" ? drawing("rect", { class: `bar s${s.style}`, y: 2, width: 24, height: 8 }) : drawing("path", { class: `line s${s.style}`, d: "M0 6H24" }), true]);
    return entries.filter(([, , used]) => used).map(([name, sample]) =>
      element("span", { class: "key" }, drawing("svg", { width: 24, height: 12, "aria-hidden": "true" }, sample), name));
  }

  function drawPanel(panel, view, width, bands, last) {
    const inner = width - LEFT - RIGHT;
    const x = (at) => ((at - view.from) / (view.to - view.from)) * inner;
    const lanes = panel.kind === "lanes" ? drawLanes(panel, view, x) : null;
    const height = lanes ? lanes.height : panel.height;
    const plot = drawing("svg", { x: LEFT, y: 1, width: inner, height, overflow: "hidden" });
    for (const band of bands) plot.append(drawing("rect", { class: "band", x: x(band.begin), width: Math.max(x(band.end) - x(band.begin), 1), y: 0, height }));
    const marks = drawing("g", { "aria-hidden": "true" });
    if (!lanes) {
      const scale = verticalScale(panel, view, height);
      for (const tick of scale.ticks) {
        const y = scale.y(tick) + 1;
        marks.append(drawing("line", { class: "axis", x1: LEFT, x2: width - RIGHT, y1: y, y2: y }));
        marks.append(drawing("text", { x: LEFT - 5, y: within(y + 4, 9, height), "text-anchor": "end" }, number(tick)));
      }
      plot.append(...drawSeries(panel, view, scale, height, x));
    } else plot.append(...lanes.drawn);
    plot.append(drawing("line", { class: "cursor", y1: 0, y2: height, x1: -9, x2: -9 }));
    const tall = height + (last ? AXIS : 3);
    const root = drawing("svg", { width, height: tall, viewBox: `0 0 ${width} ${tall}`, role: "img", "aria-label": `${panel.title} over time` }, marks, plot);
    root.append(drawing("rect", { class: "frame", x: LEFT, y: 1, width: inner, height, "pointer-events": "all" }));
    if (last) {
      for (const tick of ticks(view.from, view.to, Math.max(3, inner / 90)))
        root.append(drawing("text", { x: LEFT + x(tick), y: height + 14, "text-anchor": "middle" }, `${number(tick)}${tick === view.to ? " s" : ""}`));
    }
    return element("div", { class: "panel" }, element("p", {}, panel.title, ...legend(panel)), root);
  }

  // Names of faults above the panels, below one another where they would meet; each leads to what it did.
  function drawFaults(bands, view, width) {
    const inner = width - LEFT - RIGHT, free = [];
    const x = (at) => ((at - view.from) / (view.to - view.from)) * inner;
    const shown = bands.filter((band) => band.end >= view.from && band.begin <= view.to).map((band) => {
      const left = within(x(band.begin), 0, inner), right = within(x(band.end), 0, inner), needs = band.name.length * 6.2 + 8;
      const start = left + needs > inner ? Math.max(0, inner - needs) : left;
      let line = free.findIndex((until) => until <= Math.min(left, start));
      if (line < 0) line = free.length < FAULT_LINES_MAX ? free.length : free.indexOf(Math.min(...free));
      free[line] = Math.max(right, start + needs) + 2;
      const y = line * FAULT_LINE;
      const box = drawing("rect", { x: left, y: y + 1, width: Math.max(right - left, 2), height: FAULT_LINE - 3 });
      return drawing("a", { class: "fault", href: `#fault-${band.number}` }, drawing("title", {}, `${band.name}: ${band.begin}–${band.end} s`), box, drawing("text", { x: start + 3, y: y + 10.5 }, band.name));
    });
    if (!shown.length) return null;
    const tall = free.length * FAULT_LINE + 1;
    const root = drawing("svg", { width, height: tall, viewBox: `0 0 ${width} ${tall}`, role: "group", "aria-label": "Faults over time" });
    root.append(drawing("svg", { x: LEFT, width: inner, height: tall, overflow: "hidden" }, ...shown));
    return element("div", { class: "panel" }, element("p", {}, "faults"), root);
  }

  // Draw a figure into `container`; returns how to move its cursor, and what time a place on the page is.
  function draw(container, figure, view, bands) {
    const width = Math.max(container.clientWidth, 280), inner = width - LEFT - RIGHT;
    const panels = figure.panels.map((panel, place) => drawPanel(panel, view, width, bands, place === figure.panels.length - 1));
    container.replaceChildren(...[drawFaults(bands, view, width), ...panels].filter(Boolean));
    const lines = [...container.querySelectorAll(".cursor")];
    const x = (at) => ((at - view.from) / (view.to - view.from)) * inner;
    return {
      cursor(at) {
        for (const line of lines) for (const end of ["x1", "x2"]) line.setAttribute(end, at === null ? -9 : x(at));
      },
      time(event) {
        const place = (event.clientX - container.getBoundingClientRect().left - LEFT) / inner;
        return view.from + within(place, 0, 1) * (view.to - view.from);
      },
    };
  }
  return { draw, LEFT, RIGHT };
})();
