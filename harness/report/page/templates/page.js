// Draws the page's plots and tables from its JSON, filters and sorts them. Data reach the page as text only.
"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const root = document.documentElement;
  const ROWS = 200; // of a table at first, and with every "show more"
  const PRINTED_ROWS = 2000;
  const NARROW = 700; // px of a plot, below which fingers scroll the page rather than zoom the plot
  const PRINTED = 680; // px that fit on an A4 page
  const all = (selector, within = document) => [...within.querySelectorAll(selector)];
  const element = (name, properties = {}) => Object.assign(document.createElement(name), properties);

  // --- filters: which of the sets of facets are shown, by number -----------------------------------------------------

  const choices = data.facets.map((_, index) => [...new Set(data.sets.flatMap((set) => set[index]))].sort());
  let allowed = choices.map((values) => new Set(values));
  let shown = [];

  // What is about several contenders passes if all of them do.
  const passes = (set) => (Array.isArray(set) ? set.every(passes) : set < 0 || shown[set]);
  const unfiltered = () => choices.every((values, index) => values.length === allowed[index].size);

  function applyFilters() {
    shown = data.sets.map((set) => set.every((values, index) => values.some((value) => allowed[index].has(value))));
    let [runs, visible, without] = [0, 0, 0];
    for (const [set, count, numberless] of data.runs) {
      runs += count;
      if (shown[set]) { visible += count; without += numberless; }
    }
    const words = `${visible.toLocaleString("en")} of ${runs.toLocaleString("en")} runs shown`;
    document.getElementById("count").textContent = without ? `${words}, ${without.toLocaleString("en")} without a number` : words;
    document.getElementById("reset").hidden = unfiltered();
    for (const note of all(".everything")) note.hidden = unfiltered();
  }

  function buildFilters() {
    const form = document.getElementById("filter-form");
    data.facets.forEach(({ name, title }, index) => {
      if (choices[index].length < 2) return; // nothing to choose
      const fieldset = element("fieldset");
      fieldset.append(element("legend", { textContent: title }));
      for (const value of choices[index]) {
        const label = element("label");
        const box = element("input", { type: "checkbox", name, value, checked: true });
        box.dataset.facet = index;
        label.append(box, element("span", { textContent: value || "not stated" }));
        fieldset.append(label);
      }
      form.append(fieldset);
    });
    form.addEventListener("change", (event) => {
      const { facet } = event.target.dataset;
      if (facet === undefined) return;
      allowed[facet][event.target.checked ? "add" : "delete"](event.target.value);
      remember();
      refresh();
    });
    document.getElementById("reset").addEventListener("click", () => {
      allowed = choices.map((values) => new Set(values));
      for (const box of all("input[data-facet]")) box.checked = true;
      remember();
      refresh();
      form.querySelector("input")?.focus();
    });
  }

  // #system=daint:gpu&backend=horovod,pytorch&show.history=…&hide.FIGURE=ideal&sort.points=-3&scale=linear&at=history: the
  // values of each facet that is filtered, the figure that a section shows, what of a figure its legend hides, the column
  // that a table is sorted by (downwards), the scale of throughputs, and the section to begin with.
  let scale = "log";
  let place = "";
  let hidden = new Map(); // of each figure the keys of its traces
  const keyOf = ({ kind, group, name }) => (["ideal", "band"].includes(kind) ? kind : `${group}/${name}`);

  function hash() {
    const parts = data.facets.flatMap(({ name }, index) => {
      const values = choices[index].filter((value) => allowed[index].has(value));
      return values.length === choices[index].length ? [] : [`${name}=${values.map(encodeURIComponent).join(",")}`];
    });
    for (const { id, dataset } of all("main section")) {
      if (dataset.chosen) parts.push(`show.${id}=${encodeURIComponent(dataset.chosen)}`);
    }
    for (const [figure, keys] of hidden) {
      if (keys.size) parts.push(`hide.${figure}=${[...keys].map(encodeURIComponent).join(",")}`);
    }
    for (const { dataset } of all("details.table")) if (dataset.sort) parts.push(`sort.${dataset.table}=${dataset.sort}`);
    if (scale !== "log") parts.push(`scale=${scale}`);
    if (place) parts.push(`at=${encodeURIComponent(place)}`);
    return parts.length ? `#${parts.join("&")}` : "";
  }

  const remember = () => history.replaceState(null, "", `${location.pathname}${location.search}${hash()}`);

  function readHash() {
    const given = new Map(location.hash.slice(1).split("&").filter((part) => part.includes("=")).map((part) => {
      const at = part.indexOf("=");
      return [part.slice(0, at), new Set(part.slice(at + 1).split(",").map(decoded))];
    }));
    allowed = choices.map((values, index) => {
      const wanted = given.get(data.facets[index].name);
      const known = values.filter((value) => !wanted || wanted.has(value));
      return new Set(known.length || wanted?.has("") ? known : values); // of values that this page lacks, nothing is left
    });
    const one = (name) => [...given.get(name) ?? [""]][0];
    for (const section of all("main section")) section.dataset.chosen = one(`show.${section.id}`);
    for (const details of all("details.table")) {
      const column = one(`sort.${details.dataset.table}`);
      details.dataset.sort = data.tables[details.dataset.table].columns[Math.abs(column) - 1] ? column : "";
    }
    hidden = new Map(Object.keys(data.figures).flatMap((name) => (given.has(`hide.${name}`) ? [[name, given.get(`hide.${name}`)]] : [])));
    scale = ["linear", "worker"].includes(one("scale")) ? one("scale") : "log";
    for (const menu of all("[data-scale]")) menu.value = scale;
    place = document.getElementById(one("at")) ? one("at") : "";
    for (const box of all("input[data-facet]")) box.checked = allowed[box.dataset.facet].has(box.value);
  }

  function decoded(text) {
    try { return decodeURIComponent(text); } catch { return text; }
  }

  // --- plots ---------------------------------------------------------------------------------------------------------

  let printing = false;
  const systemDark = matchMedia("(prefers-color-scheme: dark)");
  const isDark = () => !printing && (root.dataset.theme ? root.dataset.theme === "dark" : systemDark.matches);

  // "@c3" is a colour of the theme, wherever it stands.
  function painted(value, theme) {
    if (typeof value === "string") return value[0] === "@" && theme[value.slice(1)] || value;
    if (Array.isArray(value)) return typeof value[0] === "number" ? value : value.map((one) => painted(one, theme));
    if (value === null || typeof value !== "object") return value;
    return Object.fromEntries(Object.entries(value).map(([key, one]) => [key, painted(one, theme)]));
  }

  function perWorker(trace) {
    const divided = (values) => values?.map((value, index) => (value === null ? null : value / trace.x[index]));
    const bars = trace.error_y && { ...trace.error_y, array: divided(trace.error_y.array), arrayminus: divided(trace.error_y.arrayminus) };
    return { ...trace, y: divided(trace.y), ...(bars && { error_y: bars }) };
  }

  // The axes of throughputs on another scale than the logarithmic one that the page comes with.
  function rescale(layout, traces) {
    const { tickvals, ticktext, minor, ...y } = layout.yaxis;
    const title = scale === "worker" ? "img/s per worker" : "img/s";
    layout.yaxis = { ...y, type: "linear", rangemode: "tozero", title: { ...y.title, text: title } };
    if (scale !== "linear") return;
    const most = Math.max(...traces.flatMap((trace) => trace.x));
    const step = [1, 2, 5].flatMap((one) => [0, 1, 2, 3, 4, 5].map((power) => one * 10 ** power)).sort((a, b) => a - b)
      .find((one) => most / one <= 8);
    layout.xaxis = { ...layout.xaxis, type: "linear", rangemode: "tozero", dtick: step, tick0: 0,
      title: { ...layout.xaxis.title, text: layout.xaxis.title.text.replace(" (log)", "") } };
    for (const name of ["tickvals", "ticktext", "minor"]) delete layout.xaxis[name];
  }

  function drawing(name, width, dark, small = false) {
    const figure = data.figures[name];
    const theme = data.themes[dark ? "dark" : "light"];
    let visible = figure.traces.filter((trace) => passes(trace.facets));
    if (visible.every((trace) => trace.kind === "ideal")) visible = [];
    const { views, ...marks } = figure.layout;
    const scaled = views && scale !== "log";
    if (scaled && scale === "worker") visible = visible.map(perWorker);
    const groups = [...new Set(visible.map((trace) => trace.group).filter(Boolean))];
    const told = new Set(); // all ideal lines have one entry in the legend, and so have all bands
    const traces = visible.map((trace) => {
      const { facets, kind, group, ...rest } = painted(trace, theme);
      rest.meta = keyOf(trace);
      if (hidden.get(name)?.has(rest.meta)) rest.visible = "legendonly";
      if (group && groups.length > 1) Object.assign(rest, { legendgroup: group, legendgrouptitle: { text: group } });
      if (kind === "ideal" || kind === "band") { rest.showlegend = !told.has(kind); told.add(kind); }
      return rest;
    });
    const narrow = width < NARROW;
    const axis = { gridcolor: theme.grid, linecolor: theme.muted, zeroline: false, automargin: true, ticks: "outside",
      tickcolor: theme.muted, ticklen: 5, fixedrange: narrow };
    const layout = {
      ...painted(marks, theme),
      width,
      height: printing ? 220 : small ? 270 : narrow ? 360 : 500,
      margin: { l: 60, r: narrow ? 8 : 16, t: 18, b: 52 },
      font: { family: getComputedStyle(document.body).fontFamily, size: 13, color: theme.ink },
      paper_bgcolor: theme.paper, plot_bgcolor: theme.paper,
      hovermode: "closest", hoverdistance: 12,
      hoverlabel: { align: "left", bgcolor: theme.paper, font: { color: theme.ink, size: 12 } },
      showlegend: false, // the page has a legend of its own
    };
    layout.xaxis = { ...axis, ...layout.xaxis };
    layout.yaxis = { ...axis, ...layout.yaxis };
    if (scaled) rescale(layout, traces);
    sideBySide(traces, layout.xaxis.type === "log");
    if (small || printing) layout.yaxis.title = { ...layout.yaxis.title, text: layout.yaxis.title.text.replace(", ", ",<br>"), font: { size: 12 } };
    return { traces: [...traces, ...bounded(visible, traces, layout.yaxis)], layout };
  }

  // Intervals of several curves at one size stand beside each other, at most a quarter of the way to the next size in all,
  // as ``side_by_side`` in figures.py has it.
  function sideBySide(traces, log) {
    const curves = traces.filter((trace) => trace.error_y && trace.line && trace.visible !== "legendonly");
    const places = [...new Set(curves.flatMap(({ x }) => x))].map((x) => (log ? Math.log(x) : x)).sort((one, other) => one - other);
    const closest = Math.min(...places.slice(1).map((place, index) => place - places[index]));
    const step = places.length > 1 ? Math.min((places.at(-1) - places[0]) / 150, closest / 4 / curves.length) : 0.02;
    curves.forEach((trace, index) => {
      const offset = step * (index - (curves.length - 1) / 2);
      trace.x = trace.x.map((x) => (log ? x * Math.exp(offset) : x + offset));
    });
  }

  // The y axis shows all points, and a quarter of their height more for what intervals need of it, as ``window`` in
  // figures.py has it. Arrows stand where intervals leave it.
  function bounded(visible, traces, axis) {
    const seen = traces.filter((trace) => trace.visible !== "legendonly");
    const curves = seen.filter((trace) => visible[traces.indexOf(trace)].kind === "curve");
    const others = seen.filter((trace) => !curves.includes(trace));
    if (!seen.length || seen.some(({ type }) => type === "bar")) return [];
    const log = axis.type === "log";
    const percent = axis.tickformat === "~%";
    const on = (values) => values.filter((one) => one !== null && (one > 0 || !log)).map((one) => (log ? Math.log10(one) : one));
    const ends = (trace, sign) => trace.y.map((y, index) => {
      const length = (sign > 0 ? trace.error_y?.array : trace.error_y?.arrayminus)?.[index];
      return y === null ? null : y + sign * (length ?? 0);
    });
    const both = (drawn) => drawn.flatMap((trace) => [...ends(trace, 1), ...ends(trace, -1)]);
    const ys = on([...curves.flatMap(({ y }) => y), ...both(others)]);
    const all = [...ys, ...on(both(curves))];
    let [bottom, top] = [Math.min(...ys), Math.max(...ys)];
    const fromZero = axis.rangemode === "tozero";
    const least = log ? Math.log10(2) : Math.max(0.2 * Math.max(Math.abs(top), Math.abs(bottom)), percent ? 0.1 : 0);
    const room = 0.25 * Math.max(top - bottom, least);
    const spare = Math.max(0, least - (top - (fromZero ? Math.min(bottom, 0) : bottom))) / 2;
    [bottom, top] = [Math.min(bottom - spare, Math.max(Math.min(...all), bottom - room)),
      Math.max(top + spare, Math.min(Math.max(...all), top + room))];
    if (fromZero) bottom = Math.min(bottom, 0);
    const margin = 0.04 * (top - bottom) || 0.1;
    axis.range = [fromZero && bottom === 0 ? 0 : bottom - margin, top + margin];
    const [low, high] = axis.range.map((end) => (log ? 10 ** end : end));
    return curves.flatMap((trace) => [[1, high, "triangle-up"], [-1, low, "triangle-down"]].map(([sign, edge, symbol]) => {
      const beyond = ends(trace, sign).map((end, index) => [end, index]).filter(([end]) => end !== null && sign * end > sign * edge);
      const said = beyond.map(([end]) => `reaches to ${end.toLocaleString("en", { maximumSignificantDigits: 4, style: percent ? "percent" : "decimal" })}`);
      return { type: "scatter", mode: "markers", x: beyond.map(([, index]) => trace.x[index]), y: beyond.map(() => edge),
        marker: { symbol, size: 10, color: trace.line.color }, hoverinfo: "text", hovertext: said, cliponaxis: false,
        showlegend: false };
    })).filter(({ x }) => x.length);
  }

  function draw(figure) {
    const plot = figure.querySelector(".plot");
    const small = Boolean(figure.closest(".beside"));
    const width = printing ? (small ? PRINTED / 2 - 12 : PRINTED) : plot.clientWidth;
    if (!width || !globalThis.Plotly) return;
    const { traces, layout } = drawing(figure.dataset.figure, width, isDark(), small);
    Plotly.react(plot, traces, layout, { displayModeBar: false, responsive: false });
    if (!plot.dataset.clicks) {
      plot.dataset.clicks = "true";
      plot.on("plotly_click", ({ points: [point] }) => pin(figure, point));
    }
    legend(figure, traces);
  }

  // What a legend hides is kept here, not by Plotly, which forgets it when a plot is drawn anew.
  function hide(name, keys) {
    hidden.set(name, new Set(keys));
    remember();
    visibleFigures().filter(({ dataset }) => dataset.figure === name).forEach(draw);
  }

  function toggle(name, key) {
    const keys = new Set(hidden.get(name));
    if (!keys.delete(key)) keys.add(key);
    hide(name, keys);
  }

  // One entry alone, or all again.
  function isolate(name, traces, key) {
    const others = new Set(traces.flatMap(({ meta, showlegend }) => (showlegend && meta !== key ? [meta] : [])));
    const alone = [...others].every((other) => hidden.get(name)?.has(other));
    hide(name, alone ? [] : others);
  }

  // A point that was clicked on stays below its plot, with a link to its record.
  function pin(figure, point) {
    if (!point?.customdata) return;
    const box = figure.querySelector(".pinned") ?? element("div", { className: "pinned" });
    const lines = (point.hovertext ?? "").replace(/<\/?b>/g, "").split("<br>").map((line) => element("div", { textContent: literal(line) }));
    const source = point.customdata;
    const path = source.startsWith("/") ? source : `${data.base}/${source}`;
    const href = `${path[0] === "/" ? "file://" : ""}${path.split("/").map(encodeURIComponent).join("/")}`;
    const isFile = source.endsWith(".json");
    box.replaceChildren(...lines, isFile ? element("a", { href, textContent: `Record: ${source}` }) : element("div", { textContent: `Source: ${source}` }));
    figure.append(box);
  }

  // A legend that keys reach, too: Plotly's own needs a mouse. Who is at an entry stays there when the plot is drawn anew.
  function legend(figure, traces) {
    const [name, key] = [figure.dataset.figure, figure.querySelector(".key")];
    const at = key.contains(document.activeElement) ? document.activeElement.dataset.key : undefined;
    const groups = new Map();
    const last = (trace) => Number(trace.legendgroup === "ideal");
    for (const trace of traces.filter(({ showlegend }) => showlegend).sort((one, other) => last(one) - last(other))) {
      const title = trace.legendgrouptitle?.text ?? "";
      if (!groups.has(title)) groups.set(title, title ? [element("strong", { textContent: literal(title) })] : []);
      const entry = element("button", { type: "button", className: "entry" });
      entry.dataset.key = trace.meta;
      entry.setAttribute("aria-pressed", String(trace.visible !== "legendonly"));
      entry.append(swatch(trace), ` ${literal(trace.name)}`);
      entry.addEventListener("click", ({ detail }) => (detail === 2 ? isolate(name, traces, trace.meta) : toggle(name, trace.meta)));
      groups.get(title).push(entry);
    }
    key.replaceChildren(...[...groups.values()].map((entries) => {
      const group = element("div");
      group.append(...entries);
      return group;
    }));
    all(".entry", key).find(({ dataset }) => dataset.key === at)?.focus();
  }

  const polygon = (sides, turn) => Array.from({ length: sides }, (_, corner) => {
    const angle = (corner / sides + turn) * 2 * Math.PI;
    return [14 + 5 * Math.sin(angle), 6 - 5 * Math.cos(angle)];
  });
  const SHAPES = {
    square: polygon(4, 0.125), diamond: polygon(4, 0), pentagon: polygon(5, 0), hexagon: polygon(6, 0), circle: polygon(24, 0),
    "triangle-up": polygon(3, 0), "triangle-down": polygon(3, 0.5), "triangle-left": polygon(3, 0.75), "triangle-right": polygon(3, 0.25),
    star: polygon(10, 0).map(([x, y], corner) => (corner % 2 ? [14 + (x - 14) * 0.42, 6 + (y - 6) * 0.42] : [x, y])),
    cross: [[12, 1], [16, 1], [16, 4], [19, 4], [19, 8], [16, 8], [16, 11], [12, 11], [12, 8], [9, 8], [9, 4], [12, 4]],
    x: [[14, 3.5], [17, 1], [19, 3], [16.5, 6], [19, 9], [17, 11], [14, 8.5], [11, 11], [9, 9], [11.5, 6], [9, 3], [11, 1]],
  };
  const DASHES = { dash: "5 3", dot: "1.5 2.5", dashdot: "5 2 1.5 2", longdash: "9 2", longdashdot: "9 2 1.5 2" };

  function swatch(trace) {
    const drawn = (name, attributes) => {
      const node = document.createElementNS("http://www.w3.org/2000/svg", name);
      for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
      return node;
    };
    const svg = drawn("svg", { width: 28, height: 12, viewBox: "0 0 28 12", "aria-hidden": "true" });
    if (trace.type === "bar" || trace.fill) {
      const fill = trace.type === "bar" ? trace.marker.color : trace.line.color;
      svg.append(drawn("rect", { y: 1, width: 28, height: 10, fill, opacity: trace.opacity ?? 1 }));
    } else if (trace.line) {
      const dash = DASHES[trace.line.dash] ?? "";
      svg.append(drawn("path", { d: "M0 6H28", stroke: trace.line.color, "stroke-width": trace.line.width, "stroke-dasharray": dash }));
    }
    const symbol = [trace.marker?.symbol ?? ""].flat().find((name) => name !== "star" || trace.marker.symbol === name) ?? "star";
    const points = SHAPES[symbol.replace("-open", "")];
    if (points) {
      const open = symbol.endsWith("-open");
      const thick = open ? 1.4 : 0.6;
      const fill = open ? "var(--paper)" : trace.marker.color;
      svg.append(drawn("polygon", { points: points.join(" "), fill, stroke: trace.marker.color, "stroke-width": thick }));
    }
    return svg;
  }

  const filled = (name) => data.figures[name].traces.some((trace) => trace.kind !== "ideal" && passes(trace.facets));

  // The first answer is shown that is about what the filters leave. If they hide some of it, that is said.
  function answer(section, answers) {
    const first = answers.findIndex((_, index) => passes(data.answers[index]));
    answers.forEach((each, index) => {
      each.hidden = index !== first;
      const all_ = data.sets[data.answers[index]].every((values, facet) => values.every((value) => allowed[facet].has(value)));
      each.querySelector(".partly").hidden = all_;
      all("figure", each).forEach((figure) => { figure.hidden = !filled(figure.dataset.figure); });
    });
    section.querySelector(".empty").hidden = first >= 0;
  }

  // In each section the chosen figure is shown, or another one if filters leave nothing of it.
  function choose(section) {
    const answers = all(".answers", section);
    if (answers.length) return answer(section, answers);
    const figures = all("figure", section);
    if (!figures.length) return;
    const options = all("[data-chooser] option, input[data-chooser]", section);
    for (const option of options) {
      const gone = !filled(option.value);
      option.disabled = gone;
      (option.tagName === "OPTION" ? option : option.parentElement).hidden = gone;
    }
    const chosen = section.dataset.chosen || figures[0].dataset.figure;
    const name = filled(chosen) ? chosen : figures.map((figure) => figure.dataset.figure).find(filled);
    for (const figure of figures) {
      figure.hidden = figure.dataset.figure !== name;
      figure.classList.toggle("filtered", !filled(figure.dataset.figure));
    }
    for (const option of options) option[option.tagName === "OPTION" ? "selected" : "checked"] = option.value === name;
    section.querySelector(".empty").hidden = name !== undefined;
  }

  const visibleFigures = () => all("figure").filter((figure) => figure.offsetParent !== null);

  function download(figure, format) {
    const { traces, layout } = drawing(figure.dataset.figure, 960, false);
    layout.title = { text: escaped(data.figures[figure.dataset.figure].title), font: { size: 16 }, x: 0.02, xanchor: "left" };
    layout.margin.t = 56;
    layout.legend = { x: 1.02, xanchor: "left", y: 1, yanchor: "top", font: { size: 12 }, tracegroupgap: 6,
      grouptitlefont: { size: 12, weight: 600 } };
    const entries = traces.filter((trace) => trace.showlegend);
    const titles = new Set(entries.flatMap(({ legendgrouptitle }) => legendgrouptitle?.text ?? []));
    const size = { width: layout.width, height: Math.max(540, 19 * entries.length + 27 * titles.size + 94) };
    Object.assign(layout, size, { showlegend: true });
    Plotly.downloadImage({ data: traces, layout }, { format, filename: figure.dataset.figure, scale: format === "png" ? 3 : 1, ...size });
  }

  // Plotly reads markup, so its texts are escaped; here they are what they are.
  const literal = (text) => text.replace(/&lt;/g, "<").replace(/&gt;/g, ">").replace(/&amp;/g, "&");
  const escaped = (text) => text.replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");

  // --- tables --------------------------------------------------------------------------------------------------------

  const formats = {
    count: (value) => value.toLocaleString("en"),
    img_per_s: (value) => {
      const digits = value < 100 ? 2 : 1;
      return value.toLocaleString("en", { minimumFractionDigits: digits, maximumFractionDigits: digits });
    },
    share: (value) => `${(100 * value).toFixed(1)} %`,
    ratio: (value) => value.toFixed(3),
    figure: (value) => value.toLocaleString("en", value < 1000 ? { maximumSignificantDigits: 3 } : { maximumFractionDigits: 0 }),
    date: (value) => value.slice(0, 16).replace("T", " "),
    text: (value) => value,
  };
  const LONG = 40; // characters, from which text may be broken into lines

  function table(details) {
    const { columns, facets } = data.tables[details.dataset.table];
    const [head, body] = [details.querySelector("thead"), details.querySelector("tbody")];
    const more = details.querySelector(".more");
    const isText = columns.map(({ kind }) => kind === "text" || kind === "date");
    const value = (column, row) => {
      const cell = columns[column].cells[row];
      return isText[column] ? columns[column].words[cell] : cell;
    };
    const shownText = (column, row) => {
      const it = value(column, row);
      return it === null ? "" : formats[columns[column].kind](it);
    };
    const sure = columns.findIndex(({ name }) => name === "differs"); // says of ratios whether they are decided
    const isSure = (row) => sure < 0 || ["better", "worse"].includes(value(sure, row));
    const isResult = columns.map(({ kind }) => ["img_per_s", "share", "ratio"].includes(kind));
    let limit = ROWS;
    const sorting = () => Number(details.dataset.sort || 0); // the number of a column, from 1; negative: downwards

    const heading = element("tr");
    columns.forEach((column, index) => {
      const cell = element("th", { scope: "col", className: isText[index] ? "" : "number" });
      const button = element("button", { type: "button", textContent: column.name });
      button.addEventListener("click", () => {
        details.dataset.sort = sorting() === index + 1 ? -(index + 1) : index + 1;
        remember();
        fill();
      });
      cell.append(button);
      heading.append(cell);
    });
    head.append(heading);

    function ordered() {
      const rows = facets.flatMap((set, row) => (passes(set) ? [row] : []));
      if (!sorting()) return rows;
      const [sorted, direction] = [Math.abs(sorting()) - 1, Math.sign(sorting())];
      const compare = isText[sorted]
        ? ranks(columns[sorted].words, columns[sorted].cells)
        : (one, other) => columns[sorted].cells[one] - columns[sorted].cells[other];
      const empty = (row) => { const it = value(sorted, row); return it === null || it === ""; };
      const [known, unknown] = [rows.filter((row) => !empty(row)), rows.filter(empty)];
      return [...known.sort((one, other) => direction * compare(one, other)), ...unknown]; // empty cells stay last
    }

    function fill() {
      const rows = ordered();
      const counted = rows.length === facets.length ? `${rows.length.toLocaleString("en")}` :
        `${rows.length.toLocaleString("en")} of ${facets.length.toLocaleString("en")}`;
      details.querySelector(".rows").textContent = `(${counted})`;
      if (!details.open) return;
      const kept = different(rows);
      all("th", head).forEach((cell, index) => { cell.hidden = !kept.includes(index); });
      const common = details.querySelector(".common");
      common.textContent = inCommon(rows, kept);
      common.hidden = !common.textContent;
      const cells = rows.slice(0, printing ? PRINTED_ROWS : limit).map((row) => {
        const line = element("tr");
        for (const index of kept) {
          const text = shownText(index, row);
          const wide = text.length > LONG && index > 0;
          const long = columns[index].name === "reason" ? "long reason" : "long";
          const number = columns[index].kind === "ratio" && !isSure(row) ? "number unsure" : "number";
          const className = { text: wide ? long : "", date: "date" }[columns[index].kind] ?? number;
          const cell = element("td", { className });
          if (wide) {
            cell.title = text;
            cell.append(element("span", { textContent: text }));
          } else if (index > 0) {
            cell.textContent = text;
          } else { // names of backends may be broken after an underscore
            cell.append(...text.split(/(?<=_)/).flatMap((part) => [part, element("wbr")]).slice(0, -1));
          }
          line.append(cell);
        }
        return line;
      });
      body.replaceChildren(...cells);
      all("th", head).forEach((cell, index) => {
        if (index === Math.abs(sorting()) - 1) cell.setAttribute("aria-sort", sorting() > 0 ? "ascending" : "descending");
        else cell.removeAttribute("aria-sort");
      });
      if (printing && rows.length > cells.length) {
        details.querySelector(".rows").textContent = `(${cells.length.toLocaleString("en")} of ${rows.length.toLocaleString("en")})`;
      }
      more.hidden = rows.length <= limit;
      more.textContent = `Show ${Math.min(ROWS, rows.length - limit)} more (${cells.length.toLocaleString("en")} of ` +
        `${rows.length.toLocaleString("en")} shown)`;
    }

    // Columns that tell these rows apart, and results, unless they are empty; the first column says what a row is about.
    function different(rows) {
      const known = (index) => rows.some((row) => ![null, ""].includes(value(index, row)));
      const varies = (index) => rows.some((row) => columns[index].cells[row] !== columns[index].cells[rows[0]]);
      return columns.flatMap((_, index) => {
        const kept = index === 0 || !rows.length || (known(index) && (rows.length < 2 || isResult[index] || varies(index)));
        return kept ? [index] : [];
      });
    }

    function inCommon(rows, kept) {
      const parts = columns.flatMap(({ name }, index) => {
        const text = kept.includes(index) ? "" : shownText(index, rows[0]);
        return text ? [`${name} ${text}`] : [];
      });
      return parts.length ? `All rows: ${parts.join(", ")}.` : "";
    }

    // What the filters leave, in the order on the page: CSV with every column and plain figures, the others as they are read.
    function save(format) {
      const rows = ordered();
      const kept = format === "csv" ? columns.map((_, index) => index) : different(rows);
      const names = columns.map(({ name }) => name);
      names.forEach((name, index) => { // an end of an interval says of what
        if (name.endsWith(" from")) [names[index], names[index + 1]] = [name, "to"].map((end) => `${names[index - 1]} ${end}`);
      });
      const lines = [kept.map((index) => names[index]),
        ...rows.map((row) => kept.map((index) => (format === "csv" ? String(value(index, row) ?? "") : shownText(index, row))))];
      const right = kept.map((index) => !isText[index]);
      const common = format === "csv" ? "" : inCommon(rows, kept);
      const content = { csv: asCsv, md: asMarkdown, tex: asLatex }[format](lines, right, common);
      const link = element("a", { href: URL.createObjectURL(new Blob([content])), download: `${details.dataset.table}.${format}` });
      link.click();
      setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
    }

    all("[data-save]", details).forEach((button) => button.addEventListener("click", () => save(button.dataset.save)));
    body.addEventListener("click", (event) => {
      if (getSelection().isCollapsed) event.target.closest(".long")?.classList.toggle("whole");
    });
    more.addEventListener("click", () => { limit += ROWS; fill(); });
    details.addEventListener("toggle", fill);
    return fill;
  }

  const asCsv = (lines) => lines.map((line) => line.map((cell) => (/[",\r\n]/.test(cell) ? `"${cell.replaceAll('"', '""')}"` : cell)).join(",") + "\n").join("");

  function asMarkdown([names, ...lines], right, common) {
    const row = (cells) => `| ${cells.map((cell) => cell.replace(/[\\`*_[\]<>|]/g, "\\$&").replace(/\s+/g, " ")).join(" | ")} |\n`;
    const rule = `| ${right.map((is) => (is ? "---:" : "---")).join(" | ")} |\n`;
    return (common && `${common.replace(/[\\`*_[\]<>|]/g, "\\$&")}\n\n`) + row(names) + rule + lines.map(row).join("");
  }

  const LATEX = { "\\": "\\textbackslash{}", "~": "\\textasciitilde{}", "^": "\\textasciicircum{}", "±": "$\\pm$", "×": "$\\times$", "<": "\\textless{}", ">": "\\textgreater{}", "χ": "$\\chi$", "²": "$^2$" };

  function asLatex([names, ...lines], right, common) {
    const text = (cell) => cell.replace(/[&%$#_{}]|[\\~^±×<>χ²]/g, (letter) => LATEX[letter] ?? `\\${letter}`).replace(/\s+/g, " ");
    const row = (cells) => `${cells.map(text).join(" & ")} \\\\\n`;
    const sides = right.map((is) => (is ? "r" : "l")).join("");
    return `% needs \\usepackage{booktabs}\n${common && `% ${common}\n`}\\begin{tabular}{${sides}}\n\\toprule\n${row(names)}` +
      `\\midrule\n${lines.map(row).join("")}\\bottomrule\n\\end{tabular}\n`;
  }

  // Words are compared once each, not once for each pair of rows.
  function ranks(words, cells) {
    const collator = new Intl.Collator("en", { numeric: true });
    const order = words.map((_, index) => index).sort((one, other) => collator.compare(words[one], words[other]));
    const rank = [];
    order.forEach((word, place) => { rank[word] = place; });
    return (one, other) => rank[cells[one]] - rank[cells[other]];
  }

  // --- the page ------------------------------------------------------------------------------------------------------

  // What can be seen is done at once, the rest when the browser has time: one plot or table after the other.
  let tables = [];
  const queue = new Map(); // what is to be done, by the element that it fills
  let working = false;
  const near = (part) => part.getBoundingClientRect().top < innerHeight;
  // Not every browser calls back when it is idle, and one that draws no frames may never think it is.
  const later = (work) => (globalThis.requestIdleCallback ? requestIdleCallback(work, { timeout: 100 }) : setTimeout(work));

  function redraw(fills = []) {
    for (const [part, work] of [...visibleFigures().map((figure) => [figure, () => draw(figure)]), ...fills]) {
      queue.set(part, work);
    }
    root.dataset.state = "drawing";
    [...queue.keys()].filter(near).forEach(take);
    if (!working) later(next);
    working = true;
  }

  function take(part) {
    const work = queue.get(part);
    queue.delete(part);
    work();
  }

  function next() {
    const [part] = queue.keys();
    if (part) take(part);
    working = queue.size > 0;
    if (working) later(next);
    else if (globalThis.Plotly) root.dataset.state = "complete";
  }

  function refresh() {
    applyFilters();
    all(".links li").forEach((item, index) => { item.hidden = !passes(data.links[index]); });
    all("main section").forEach(choose);
    redraw(tables);
  }

  // Keys go on from where a link leads.
  function lead(id) {
    const section = document.getElementById(id);
    section.scrollIntoView();
    section.focus({ preventScroll: true });
  }

  function print(starts) {
    if (printing === starts) return;
    printing = starts;
    if (starts) all("details.list").forEach((details) => { details.open = true; });
    if (starts) {
      queue.clear();
      tables.forEach(([, fill]) => fill());
      all("section.printed figure:not(.filtered), figure:not([hidden])").forEach(draw);
    } else {
      redraw(tables);
    }
  }

  buildFilters();
  readHash();
  tables = all("details.table").map((details) => [details, table(details)]);
  if (matchMedia("(max-width: 60rem)").matches) document.getElementById("filters").open = false;
  refresh();
  if (place) document.getElementById(place).scrollIntoView();

  for (const section of all("main section")) {
    section.addEventListener("change", (event) => {
      if (event.target.dataset.chooser === undefined) return;
      section.dataset.chosen = event.target.value;
      remember();
      choose(section);
      all("figure:not([hidden])", section).forEach(draw);
    });
  }
  document.addEventListener("click", (event) => {
    const link = event.target.closest?.("nav a, .skip");
    if (link) {
      event.preventDefault(); // the address keeps the filters
      place = link.getAttribute("href").slice(1);
      remember();
      lead(place);
    }
    const shortcut = event.target.closest?.("a[data-show]");
    if (shortcut) {
      event.preventDefault();
      place = shortcut.dataset.section;
      const section = document.getElementById(place);
      section.dataset.chosen = shortcut.dataset.show;
      remember();
      choose(section);
      lead(place);
      redraw();
    }
    const { export: format } = event.target.dataset ?? {};
    if (format) download(event.target.closest("figure"), format);
  });
  document.addEventListener("change", (event) => {
    if (event.target.dataset.scale === undefined) return;
    scale = event.target.value;
    for (const menu of all("[data-scale]")) menu.value = scale;
    remember();
    redraw();
  });
  document.getElementById("theme").addEventListener("click", () => {
    root.dataset.theme = isDark() ? "light" : "dark";
    redraw();
  });
  systemDark.addEventListener("change", () => redraw());
  addEventListener("hashchange", () => {
    if (location.hash.includes("=") || !location.hash) { readHash(); refresh(); }
  });
  addEventListener("beforeprint", () => print(true));
  addEventListener("afterprint", () => print(false));
  matchMedia("print").addEventListener("change", (event) => print(event.matches));
  let width = innerWidth;
  let timer = 0;
  addEventListener("resize", () => {
    if (innerWidth === width || printing) return;
    width = innerWidth;
    clearTimeout(timer);
    timer = setTimeout(() => redraw(), 100);
  });

  // Filters and tables work now; Plotly, which takes longer to start than all of this, comes next.
  addEventListener("DOMContentLoaded", () => redraw());
})();
