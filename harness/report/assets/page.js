// What every part uses: the data of the page, elements, numbers as texts, and the state in the fragment of the address.
// A fragment is `anchor?filters`: it survives a reload, and can be sent to somebody.
globalThis.prozess = (() => {
  const SVG = "http://www.w3.org/2000/svg";
  const data = JSON.parse(document.getElementById("data").textContent);

  // Cells come as columns and numbers of texts: a quarter of the bytes.
  data.cells = new Map(data.cells.map(([cell, kind, verdict, name, label, values, judged]) => {
    const { workload, axes } = data.kinds[kind], anomalies = {};
    for (let at = 0; at < judged.length; at += 6) anomalies[data.anomalies[judged[at]]] = judged.slice(at + 1, at + 6);
    const named = Object.fromEntries(axes.map((axis, place) => [axis, data.texts[values[place]]]));
    return [cell, { number: cell, workload, verdict, name, label, axes: named, anomalies }];
  }));

  function fill(made, attributes, children) {
    for (const [name, value] of Object.entries(attributes ?? {})) {
      if (value === true) made.setAttribute(name, "");
      else if (value !== false && value !== null && value !== undefined) made.setAttribute(name, value);
    }
    made.append(...children.filter((child) => child !== null && child !== undefined));
    return made;
  }
  const element = (tag, attributes, ...children) => fill(document.createElement(tag), attributes, children);
  const drawing = (tag, attributes, ...children) => fill(document.createElementNS(SVG, tag), attributes, children);

  function number(value) {
    if (value === null || value === undefined) return "–";
    const digits = Math.abs(value) >= 100 ? 0 : Math.abs(value) >= 10 ? 1 : 2;
    return value.toLocaleString("en", { maximumFractionDigits: digits });
  }
  // The time of day of a moment of the trial, in UTC: brokers' logs have it. Empty where nobody noted when the trial began.
  const wall = (value) => (data.wall === null ? "" : new Date(data.wall + value * 1000).toISOString().slice(11, 23));
  const seconds = (value) => (value === null || value === undefined ? "never" : `${value.toFixed(3)} s`);

  // [["heading", numeric], …] and rows of texts or elements.
  function table(headings, rows, caption) {
    const kind = (place) => (headings[place][1] ? { class: "n" } : {});
    const head = headings.map(([name], place) => element("th", { scope: "col", ...kind(place) }, name));
    const body = rows.map((row) => element("tr", {}, ...row.map((cell, place) => element("td", kind(place), cell ?? ""))));
    const made = element("table", {}, element("thead", {}, element("tr", {}, ...head)), element("tbody", {}, ...body));
    if (caption) made.prepend(element("caption", { class: "vh" }, caption));
    return element("div", { class: "scroll", tabindex: 0, role: "group", "aria-label": caption ?? "table" }, made);
  }

  const listeners = [];
  let state = parse();

  function parse() {
    const [anchor, query] = decodeURI(location.hash.slice(1)).split("?");
    return { anchor: anchor ?? "", filters: new URLSearchParams(query ?? "") };
  }
  function address({ anchor, filters }) {
    const query = filters.toString();
    return `#${anchor}${query ? `?${query}` : ""}`;
  }
  function changed() {
    for (const listen of listeners) listen(state);
  }
  // Change filters (null takes one away) without a new step in the browser's history.
  function set(changes) {
    for (const [name, value] of Object.entries(changes)) {
      if (value === null || value === "") state.filters.delete(name);
      else state.filters.set(name, value);
    }
    history.replaceState(null, "", address(state));
    changed();
  }
  // To another part of the page, `anchor` or `anchor?filters`; filters stay as they are if none are named.
  function go(target) {
    const [anchor, query] = target.split("?");
    state = { anchor, filters: query === undefined ? state.filters : new URLSearchParams(query) };
    history.pushState(null, "", address(state));
    changed();
    show(anchor);
  }
  function show(anchor) {
    const found = anchor && document.getElementById(anchor);
    if (!found || document.querySelector("dialog[open]")) return;
    for (let at = found; at; at = at.parentElement) if (at instanceof HTMLDetailsElement) at.open = true;
    const inside = found.querySelector(":scope > details");
    if (inside) inside.open = true;
    found.scrollIntoView({ block: "start" });
    if (!found.hasAttribute("tabindex")) found.setAttribute("tabindex", "-1");
    found.focus({ preventScroll: true });
  }
  // A button beside each command that copies it.
  function offerCopies() {
    if (!navigator.clipboard) return;
    for (const text of document.querySelectorAll("pre.copied")) {
      const button = element("button", { type: "button" }, "Copy");
      button.addEventListener("click", async () => {
        await navigator.clipboard.writeText(text.textContent);
        button.textContent = "Copied";
      });
      const frame = element("div", { class: "copying" });
      text.before(frame);
      frame.append(text, button);
    }
  }
  // A table that is wider than the page says so: nothing is out of sight without a hint.
  function hintScrolling() {
    for (const frame of document.querySelectorAll(".scroll")) {
      const wider = frame.scrollWidth > frame.clientWidth + 1;
      const hint = frame.previousElementSibling;
      const there = hint?.classList.contains("scroll-hint");
      if (wider && !there && frame.checkVisibility()) frame.before(element("p", { class: "scroll-hint" }, "This table goes on to the right: scroll it."));
      else if (!wider && there) hint.remove();
    }
  }
  function start() {
    offerCopies();
    hintScrolling();
    addEventListener("resize", hintScrolling);
    document.addEventListener("toggle", hintScrolling, true);
    document.addEventListener("click", (event) => {
      const link = event.target.closest?.("a");
      const target = link?.getAttribute("href");
      if (!target?.startsWith("#") || event.ctrlKey || event.metaKey || event.shiftKey) return;
      event.preventDefault();
      go(target.slice(1));
    });
    for (const name of ["hashchange", "popstate"]) {
      addEventListener(name, () => {
        state = parse();
        changed();
        show(state.anchor);
      });
    }
    changed();
    show(state.anchor);
  }
  return { data, element, drawing, number, seconds, wall, table, set, go, start, listen: (call) => listeners.push(call), state: () => state };
})();
