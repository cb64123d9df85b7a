"use strict";
// Draws the charts, opens a trial when its point is clicked, sorts and filters the trials.
// Everything the page needs is in it: plotly.js is stored compressed and unpacked here.
(() => {
  const find = (selector) => document.querySelector(selector);
  const all = (selector) => [...document.querySelectorAll(selector)];
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const coarse = matchMedia("(pointer: coarse)").matches;

  const figures = JSON.parse(find("#figures").textContent);

  async function loadPlotly() {
    const packed = atob(find("#plotly-gzip-base64").textContent);
    const bytes = Uint8Array.from(packed, (character) => character.charCodeAt(0));
    const unpacked = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
    const script = document.createElement("script");
    script.textContent = await new Response(unpacked).text();
    document.head.append(script);
  }

  // Colours of the page as they are now, as plotly names them.
  function colours(layout) {
    const style = getComputedStyle(document.documentElement);
    const colour = (name) => style.getPropertyValue(name).trim();
    const set = {
      paper_bgcolor: "rgba(0,0,0,0)",
      plot_bgcolor: "rgba(0,0,0,0)",
      "font.color": colour("--text"),
      "hoverlabel.bgcolor": colour("--panel"),
      "hoverlabel.bordercolor": colour("--line"),
      "hoverlabel.font.color": colour("--text"),
    };
    for (const key of Object.keys(layout).filter((name) => /^[xy]axis/.test(name))) {
      set[`${key}.gridcolor`] = colour("--grid");
      set[`${key}.zerolinecolor`] = colour("--line");
      set[`${key}.linecolor`] = colour("--line");
    }
    return set;
  }

  // Traces in the colours that the page gives them, where it is dark.
  function painted(figure) {
    const style = getComputedStyle(document.documentElement);
    const paint = (code) => style.getPropertyValue(`--${code.slice(1)}`).trim() || code;
    return JSON.parse(JSON.stringify(figure).replace(/#[0-9a-f]{6}\b/g, paint));
  }

  function frame({ data, layout }, width) {
    const narrow = width < 500;
    // A legend of many entries takes a line for each where the page is narrow.
    const legend = narrow && data.length > 4 ? 20 * data.length : 0;
    return {
      margin: { l: 56, r: 12, t: 12, b: 48 },
      hovermode: "closest",
      showlegend: true,
      hoverlabel: { align: "left" },
      dragmode: coarse ? false : "zoom",
      font: { family: getComputedStyle(document.body).fontFamily, size: narrow ? 12 : 13 },
      legend: { orientation: "h", x: 0, y: 1.02, xanchor: "left", yanchor: "bottom", traceorder: "normal" },
      ...layout,
      height: (layout.height || 400) + legend,
    };
  }

  function draw(place) {
    const figure = painted(figures[place.dataset.figure]);
    const layout = frame(figure, place.clientWidth);
    place.dataset.height = layout.height;
    Plotly.newPlot(place, figure.data, layout, {
      responsive: true,
      displaylogo: false,
      displayModeBar: false,
    });
    Plotly.relayout(place, colours(layout));
    place.on("plotly_click", (event) => {
      const number = event.points[0].customdata;
      if (number !== undefined) show(number);
    });
  }

  // A chart in a closed fold has no width; it is drawn when the fold is opened.
  function drawSeen() {
    for (const place of all(".plot")) {
      if (!place.layout && place.clientWidth) draw(place);
    }
  }

  function recolour() {
    for (const place of all(".plot")) {
      if (place.layout) draw(place);
    }
  }

  // Paper is white, narrower than the screen, shows every fold and holds several charts a page.
  function fit(paper) {
    for (const fold of all(paper ? ".fold:not([open])" : ".fold[data-closed]")) {
      fold.open = paper;
      fold.toggleAttribute("data-closed", paper);
    }
    drawSeen();
    for (const place of all(".plot")) {
      if (!place.layout) continue;
      const height = Number(place.dataset.height);
      const fitting = paper ? Math.min(height, Math.max(200, height * 0.8)) : height;
      Plotly.relayout(place, { ...colours(place.layout), height: fitting, width: place.clientWidth });
      if (!paper) Plotly.relayout(place, { width: undefined, autosize: true });
    }
  }

  function show(number) {
    const row = find(`#trial-${number}`);
    if (!row) return;
    row.hidden = false;
    row.closest(".fold").open = true;
    row.querySelector("details").open = true;
    all(".trials .chosen").forEach((other) => other.classList.remove("chosen"));
    row.classList.add("chosen");
    row.scrollIntoView({ block: "center" });
    row.focus({ preventScroll: true });
  }

  // A link leads to a trial, or to a fold, which opens.
  function follow() {
    const [, number] = /^#trial-(\d+)$/.exec(location.hash) || [];
    const fold = all(".fold").find((each) => `#${each.id}` === location.hash);
    if (number) show(number);
    else if (fold) fold.open = true;
  }

  function filterTrials() {
    const outcome = find("#filter-outcome").value;
    const text = find("#filter-text").value.trim().toLowerCase();
    const rows = all(".trials > tbody > tr");
    for (const row of rows) {
      const fits = !outcome || row.dataset.outcome === outcome;
      row.hidden = !(fits && row.textContent.toLowerCase().includes(text));
    }
    const shown = rows.filter((row) => !row.hidden).length;
    find("#filter-count").textContent = `${shown} of ${rows.length} trials`;
  }

  // What a cell is sorted by: its number where it has one. Cells without a value come last.
  function sortKey(row, column) {
    const cell = row.cells[column];
    const text = cell.dataset.value ?? cell.textContent.trim();
    if (text === "" || text === "-") return null;
    const number = Number(text.replaceAll(",", ""));
    return Number.isNaN(number) ? text : number;
  }

  function sortTrials(header) {
    const column = header.cellIndex;
    const descending = header.getAttribute("aria-sort") === "ascending";
    all(".trials > thead th").forEach((other) => other.removeAttribute("aria-sort"));
    header.setAttribute("aria-sort", descending ? "descending" : "ascending");
    const keyed = all(".trials > tbody > tr").map((row) => [sortKey(row, column), row]);
    keyed.sort(([a], [b]) => {
      if (a === null || b === null) return (a === null) - (b === null);
      const order = typeof a === "number" ? a - b : a.localeCompare(b);
      return descending ? -order : order;
    });
    find(".trials > tbody").append(...keyed.map(([, row]) => row));
  }

  // Header cells become buttons where there is a script to answer them.
  function makeSortable() {
    for (const header of all(".trials > thead th")) {
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = header.textContent;
      button.addEventListener("click", () => sortTrials(header));
      header.replaceChildren(button);
    }
  }

  function start() {
    for (const time of all("time")) {
      time.title = time.textContent;
      time.textContent = new Date(time.dateTime).toLocaleString(undefined, {
        dateStyle: "medium", timeStyle: "short",
      });
    }
    makeSortable();
    const filter = find("#filter");
    if (filter) {
      filter.hidden = false;
      filter.addEventListener("input", filterTrials);
      filter.addEventListener("change", filterTrials);
      filter.addEventListener("submit", (event) => event.preventDefault());
      filterTrials();
    }
    follow();
    addEventListener("hashchange", follow);
  }

  async function drawAll() {
    if (Object.keys(figures).length) await loadPlotly();
    drawSeen();
    all(".fold").forEach((fold) => fold.addEventListener("toggle", drawSeen));
    // Where plotly measures texts; nothing to read there.
    find("#js-plotly-tester")?.setAttribute("aria-hidden", "true");
    dark.addEventListener("change", recolour);
    matchMedia("print").addEventListener("change", (event) => fit(event.matches));
    document.documentElement.dataset.charts = "drawn";
  }

  start();
  // After the first paint: the words come before the pictures.
  requestAnimationFrame(() => setTimeout(() => {
    drawAll().catch((error) => {
      console.error(error);
      all(".plot").forEach((place) => place.remove());
      const note = find("#no-charts");
      if (note) note.hidden = false;
      document.documentElement.dataset.charts = "failed";
    });
  }));
})();
