// What came over time, and what was predicted: labels, or numbers; and what the model heeds.

const STREAM = { left: 44, right: 10, top: 8, height: 150, axis: 22 };
const MIX = DATA.label_mix;
const N_LABEL_COLOURS = 6;

// The first labels have colours; those that are counted together, and the later ones, are grey.
const labelColour = (number) =>
  number < N_LABEL_COLOURS && MIX.names[number] !== "(others)" ? `label${number}` : "label-other";

function drawStream() {
  $("labels-section").hidden = !MIX;
  $("numbers-section").hidden = !DATA.number_means;
  if (MIX) drawLabels();
  if (DATA.number_means) drawNumberMeans();
}

function drawLabels() {
  const mix = MIX.blocks.map(([, , cells]) => {
    const counts = MIX.names.map(() => 0);
    for (const [label, , count] of cells) counts[label] += count;
    const total = counts.reduce((a, b) => a + b, 0) || 1;
    return counts.map((count) => count / total);
  });
  const recall = MIX.blocks.map(([, , cells]) =>
    MIX.names.map((name, number) => {
      const own = cells.filter(([label]) => label === number);
      const all = own.reduce((sum, [, , count]) => sum + count, 0);
      const hits = own.find(([, said]) => said === number)?.[2] ?? 0;
      return all && name !== "(others)" ? hits / all : null;
    }),
  );
  $("labels-words").textContent = labelWords();
  $("label-legend").replaceChildren(
    ...MIX.names.map((name, number) =>
      el("span", { title: name.length > 32 ? name : null }, swatch(number), shorten(name, 32)),
    ),
  );
  $("mix").replaceChildren(
    el("h3", {}, "Label shares"),
    areaChart(mix),
    el(
      "h3",
      {},
      "Recall of each label",
      MIX.names.length > N_LABEL_COLOURS
        ? el("small", {}, ` of the first ${N_LABEL_COLOURS} labels`)
        : null,
    ),
    recallChart(recall),
  );
  $("found").replaceChildren(
    table(
      "Labels over all rows",
      [
        { name: "label" },
        { name: "share", number: true },
        { name: "recall", number: true, title: "share of its rows that were found" },
        { name: "precision", number: true, title: "share of those predicted that were right" },
        { name: "F1", number: true },
      ],
      MIX.found.map(([name, share, ...figures]) => [
        [swatch(MIX.names.indexOf(name)), named(name, 32)],
        percent(share),
        ...figures.map(score),
      ]),
    ),
  );
}

function labelWords() {
  const parts = [["macro F1", MIX.macro_f1], ["AUC", MIX.auc], ["calibration error", MIX.ece]];
  const known = parts.filter(([, value]) => value !== null);
  return [
    `Accuracy ${score(MIX.accuracy)}; always predicting the most frequent label so far has`,
    `${score(MIX.majority)} (means over batches). Of all rows:`,
    `${known.map(([name, value]) => `${name} ${score(value)}`).join(", ")}.`,
  ].join(" ");
}

const swatch = (number) =>
  svg(
    "svg",
    { class: "sample", width: 12, height: 12, viewBox: "0 0 12 12", "aria-hidden": "true" },
    svg("rect", { class: `area ${labelColour(number)}`, width: 12, height: 12, rx: 3 }),
  );

// -------------------------------------------------------------------- pictures over the rows
// A frame with rows below and figures at the left; `draw` gets the two scales.
function rowsChart(room, words, low, high, draw, ticks = niceTicks(low, high, 4)) {
  const width = Math.max(280, room);
  const total = STREAM.top + STREAM.height + STREAM.axis;
  const x = (row) => STREAM.left + ((width - STREAM.left - STREAM.right) * row) / lastRow();
  const y = (value) => STREAM.top + STREAM.height * (1 - (value - low) / (high - low || 1));
  const bottom = STREAM.top + STREAM.height;
  return svg(
    "svg",
    {
      class: "rows-chart",
      viewBox: `0 0 ${width} ${total}`,
      width: "100%",
      role: "img",
      "aria-label": words,
    },
    ticks.map((tick) => [
      svg("line", {
        class: "grid",
        x1: STREAM.left,
        x2: width - STREAM.right,
        y1: y(tick),
        y2: y(tick),
      }),
      svg("text", { x: STREAM.left - 6, y: y(tick) + 4, "text-anchor": "end" }, figure(tick)),
    ]),
    draw(x, y),
    DATA.drifts.map(([first]) =>
      svg("line", { class: "drift", x1: x(first), x2: x(first), y1: STREAM.top, y2: bottom }),
    ),
    DATA.alarms.map(([row, sentence]) =>
      svg(
        "path",
        { class: "alarm", d: alarmShape(x(row), STREAM.top + 4) },
        svg("title", {}, sentence),
      ),
    ),
    niceTicks(0, lastRow(), Math.max(2, width / 150)).map((row) =>
      svg(
        "text",
        { x: x(row), y: total - 6, "text-anchor": x(row) > width - 30 ? "end" : "middle" },
        row ? brief(row) : "row 0",
      ),
    ),
    svg("line", { class: "cursor-line now", y1: STREAM.top, y2: bottom }),
  );
}

function areaChart(mix) {
  const first = mix[0], last = mix.at(-1);
  const words = MIX.names
    .map((name, number) => `${name} from ${percent(first[number])} to ${percent(last[number])}`)
    .join(", ");
  return rowsChart($("mix").clientWidth, `Share of each label over the rows: ${words}`, 0, 1, (x, y) =>
    MIX.names.map((name, number) => {
      const edge = (n) =>
        mix.map((shares) => y(shares.slice(0, n).reduce((a, b) => a + b, 0)).toFixed(1));
      const [below, above] = [edge(number), edge(number + 1)];
      const spans = MIX.blocks.map(([from, to]) => [x(from).toFixed(1), x(to).toFixed(1)]);
      const there = spans.map(([from, to], at) => `${from},${above[at]} ${to},${above[at]}`);
      const back = spans.map(([from, to], at) => `${to},${below[at]} ${from},${below[at]}`);
      return svg(
        "polygon",
        {
          class: `area ${labelColour(number)}`,
          points: [...there, ...back.reverse()].join(" "),
        },
        svg("title", {}, name),
      );
    }),
    [0, 0.25, 0.5, 0.75, 1],
  );
}

function recallChart(recall) {
  const middles = MIX.blocks.map(([from, to]) => (from + to) / 2);
  const known = recall.flat().filter((value) => value !== null);
  const low = Math.min(0.5, Math.floor(Math.min(...known, 1) * 4) / 4);
  return rowsChart($("mix").clientWidth, "Recall of each label over the rows", low, 1, (x, y) =>
    MIX.names.slice(0, N_LABEL_COLOURS).map((name, number) =>
      svg(
        "path",
        {
          class: `curve line-${labelColour(number)}`,
          "stroke-dasharray": dashes(number),
          d: pathOf(middles, recall.map((block) => block[number]), x, y),
        },
        svg("title", {}, name),
      ),
    ),
  );
}

function drawNumberMeans() {
  const { rows, target, predicted } = DATA.number_means;
  const known = [...target, ...predicted].filter((value) => value !== null);
  const low = Math.min(...known), high = Math.max(...known);
  const margin = 0.05 * (high - low || 1);
  const series = [["came", target], ["predicted", predicted]];
  $("means").replaceChildren(
    el(
      "div",
      { class: "legend" },
      series.map(([name], number) => el("span", {}, lineSample(number, number === 0), name)),
    ),
    rowsChart(
      $("means").clientWidth,
      `Mean of ${DATA.number} and of its predictions over the rows`,
      low - margin,
      high + margin,
      (x, y) =>
        [...series.keys()].reverse().map((number) =>
          svg("path", {
            class: `curve colour${number}${number ? "" : " own"}`,
            "stroke-dasharray": dashes(number),
            d: pathOf(rows, series[number][1], x, y),
          }),
        ),
    ),
  );
}

// -------------------------------------------------------------------- at the chosen row
// Which labels were taken for which, in the block of batches around a row.
function drawConfusion(row) {
  for (const line of document.querySelectorAll(".rows-chart .now")) {
    const width = line.ownerSVGElement.viewBox.baseVal.width;
    const at = STREAM.left + ((width - STREAM.left - STREAM.right) * row) / lastRow();
    line.setAttribute("x1", at);
    line.setAttribute("x2", at);
  }
  if (!MIX) return;
  const place = MIX.blocks.findIndex(([, to]) => row <= to);
  const [from, to, cells] = MIX.blocks[place < 0 ? MIX.blocks.length - 1 : place];
  const counts = MIX.names.map(() => [...MIX.names.map(() => 0), 0]);
  for (const [label, said, count] of cells) counts[label][said] += count;
  const hasNothing = counts.some((own) => own.at(-1) > 0);
  const heads = hasNothing ? [...MIX.names, "nothing"] : MIX.names;
  // Many columns have numbers for names, which the rows have, too.
  const isMany = heads.length > 5;
  const headOf = (name, number) => (isMany && number < MIX.names.length ? `${number + 1}` : name);
  $("confusion").replaceChildren(
    el("h3", {}, `Rows ${whole(from + 1)} to ${whole(to)}: confusion matrix`),
    el(
      "table",
      { class: isMany ? "confusion many" : "confusion" },
      el("caption", { class: "unseen" }, "Rows by true label, and by predicted label"),
      el(
        "thead",
        {},
        el(
          "tr",
          {},
          el("th", { scope: "col" }, el("small", {}, "came \\ predicted")),
          heads.map((name, number) =>
            el(
              "th",
              { scope: "col", class: "number", title: name },
              named(headOf(name, number), 14),
            ),
          ),
        ),
      ),
      el(
        "tbody",
        {},
        counts.map((own, label) => {
          const all = own.reduce((a, b) => a + b, 0);
          return el(
            "tr",
            {},
            el(
              "th",
              { scope: "row" },
              swatch(label),
              isMany ? `${label + 1} ` : "",
              named(MIX.names[label], 18),
            ),
            heads.map((_, said) => confusionCell(own[said], all, label === said, isMany)),
          );
        }),
      ),
    ),
    el(
      "p",
      { class: "quiet" },
      isMany
        ? "Rows, the darker the larger their share of the label's."
        : "Rows, and their share of the label's.",
      el("span", { class: "unprinted" }, " Move the slider for another time."),
    ),
  );
}

const confusionCell = (count, all, isRight, isMany) =>
  el(
    "td",
    { class: "number", title: all ? percent(count / all) : null },
    svg(
      "svg",
      { class: "heat", width: "100%", height: "100%", "aria-hidden": "true" },
      svg("rect", {
        class: isRight ? "for" : "against",
        width: "100%",
        height: "100%",
        "fill-opacity": (0.4 * (all ? count / all : 0)).toFixed(3),
      }),
    ),
    el(
      "span",
      {},
      isMany && !count ? "" : whole(count),
      all && !isMany ? el("small", {}, ` ${percent(count / all)}`) : null,
    ),
  );

// -------------------------------------------------------------------- importance
function drawImportance() {
  const { features, n_features } = DATA.importance;
  const largest = [1, 2].map((place) =>
    Math.max(...features.map((one) => Math.abs(one[place])), 1e-300),
  );
  $("importance").replaceChildren(
    table(
      "Features by what they contribute",
      [
        { name: "feature" },
        { name: "earned by splits" },
        { name: "weight in leaves" },
      ],
      features.map(([name, earned, weight]) => [
        named(name, 48),
        el("span", {}, shareBar(Math.max(0, earned) / largest[0], 120, "own"), figure(earned)),
        el("span", {}, shareBar(weight / largest[1], 120, "chance"), figure(weight)),
      ]),
    ),
  );
  const moved = isNumber ? DATA.number : "the log-odds";
  $("importance-words").textContent = [
    "Earned: measured loss that its splits save, in nats per 1,000 rows; below 0 they no longer pay.",
    `Weight: how much it changes ${moved} inside the leaves, on average.`,
    features.length < n_features ? `The ${features.length} strongest of ${whole(n_features)}.` : "",
  ].join(" ");
}

// -------------------------------------------------------------------- alarms
function drawAlarmList() {
  $("alarms-section").hidden = !DATA.alarms.length;
  $("alarms-list").replaceChildren(
    ...[...DATA.alarms].reverse().map(([row, sentence]) =>
      el(
        "li",
        {},
        el(
          "button",
          { type: "button", class: "change alarm-item", onclick: () => goToRow(row) },
          svg(
            "svg",
            { class: "shape", width: 16, height: 16, viewBox: "-8 -8 16 16" },
            svg("path", { class: "alarm", d: alarmShape(0, 5), "aria-hidden": "true" }),
          ),
          el("span", { class: "when" }, `row ${whole(row)}`),
          el("span", { class: "told" }, sentence),
        ),
      ),
    ),
  );
}
