"use strict";
// Draws the charts, opens a trial when its point is clicked, filters the table of trials.
// Everything the page needs is in it: plotly.js is stored compressed and unpacked here.
(() => {
  const find = (selector) => document.querySelector(selector);
  const all = (selector) => [...document.querySelectorAll(selector)];
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const coarse = matchMedia("(pointer: coarse)").matches;

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

  function draw(place, figure) {
    const layout = frame(figure, place.clientWidth);
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

  function recolour() {
    for (const place of all(".plot")) {
      if (place.layout) Plotly.relayout(place, colours(place.layout));
    }
  }

  function show(number) {
    const row = find(`#trial-${number}`);
    if (!row) return;
    row.hidden = false;
    row.querySelector("details").open = true;
    all(".trials .chosen").forEach((other) => other.classList.remove("chosen"));
    row.classList.add("chosen");
    row.scrollIntoView({ block: "center" });
    row.focus({ preventScroll: true });
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

  function start() {
    const filter = find("#filter");
    if (filter) {
      filter.hidden = false;
      filter.addEventListener("input", filterTrials);
      filter.addEventListener("submit", (event) => event.preventDefault());
      filterTrials();
    }
    if (/^#trial-\d+$/.test(location.hash)) show(location.hash.slice("#trial-".length));
    addEventListener("hashchange", () => {
      if (/^#trial-\d+$/.test(location.hash)) show(location.hash.slice("#trial-".length));
    });
  }

  async function drawAll() {
    const figures = JSON.parse(find("#figures").textContent);
    await loadPlotly();
    for (const place of all(".plot")) draw(place, figures[place.dataset.figure]);
    dark.addEventListener("change", recolour);
    // Paper is white and narrower than the screen.
    matchMedia("print").addEventListener("change", () => {
      recolour();
      all(".plot").forEach((place) => Plotly.Plots.resize(place));
    });
    const help = find("#chart-help");
    if (help) help.hidden = coarse;
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
