// The parts that do not move with the slider.

const MAX_PRINTED = 40;

function drawNumbers() {
  const { headline } = DATA;
  $("lead").textContent = DATA.lead;
  $("numbers").replaceChildren(
    ...headline.map(({ name, value, more }) =>
      el(
        "div",
        {},
        el("dt", {}, name),
        el(
          "dd",
          { class: value.length > 7 ? "long" : null },
          typeof value === "number" ? score(value) : value,
          numberWords(more),
        ),
      ),
    ),
  );
}

// What stands below a number: words, or how far it spreads.
function numberWords(more) {
  const text = typeof more === "number" ? `± ${score(more)} over batches` : more;
  return text ? el("small", { title: text.length > 60 ? text : null }, shorten(text, 60)) : null;
}

function drawChanges() {
  const list = $("changes");
  if (!EVENTS.length) {
    list.hidden = true;
    list.before(el("p", { class: "notice" }, DATA.notice));
    return;
  }
  const items = [...EVENTS.keys()].reverse().map((number) => changeButton(number));
  list.replaceChildren(
    ...items.map((item, place) =>
      el("li", { class: place < MAX_PRINTED ? null : "unprinted" }, item),
    ),
  );
  rove(list, items);
  if (items[0]) focusable(items, items[0]);
  $("changes-words").textContent = [
    DATA.first.row > 0
      ? `The latest ${whole(EVENTS.length)} of ${allChanges()} changes, the latest first.`
      : `${plural(EVENTS.length, "change")}, the latest first.`,
    DATA.first.row > 0
      ? `Those before row ${whole(DATA.first.row)} are folded into a snapshot of the tree.`
      : "",
    items.length > MAX_PRINTED ? `On paper: the latest ${MAX_PRINTED}.` : "",
  ].join(" ");
}

function focusable(items, item) {
  for (const other of items) other.setAttribute("tabindex", other === item ? "0" : "-1");
}

function drawRules() {
  const largest = Math.max(
    ...LEAVES.flatMap((leaf) => leaf.weights.map((weight) => Math.abs(weight[2]))),
    1e-9,
  );
  const heads = [
    { name: "rule" },
    { name: "rows" },
    { name: isNumber ? "mean" : isBinary ? "labels" : "most probable labels" },
    { name: "strongest weights" },
    { name: "since row", number: true },
  ];
  const rows = LEAVES.map((leaf) => [
    el(
      "button",
      {
        type: "button",
        class: "words",
        onclick: () => {
          goToEnd();
          chooseNode(leaf.node);
        },
      },
      `leaf ${leaf.node}`,
      el("span", { class: "name rule" }, leaf.rule),
    ),
    el("div", { class: "stack" }, el("span", {}, percent(leaf.share)), shareBar(leaf.share, 72)),
    isNumber
      ? el("div", { class: "stack" }, el("span", {}, leaf.mean_text), gaugeBar(leaf, 96))
      : labelList(leaf),
    el(
      "ul",
      { class: "plain pairs" },
      leaf.weights
        .slice(0, 3)
        .map(([label, column, value]) =>
          el(
            "li",
            {},
            named(shortWeightName([label, column], 26), 60, weightName([label, column])),
            el("span", { class: "number" }, effect(value)),
            curveOf(leaf, [label, column])
              ? curveLine(curveOf(leaf, [label, column]), largest, 56)
              : effectBar(value, largest, 56),
          ),
        ),
    ),
    leaf.since_row === null ? "–" : whole(leaf.since_row),
  ]);
  $("rules").replaceChildren(table("Rules of the tree at the end", heads, rows));
  $("rules-words").textContent = `A row falls under exactly one rule. Weights: ${weightWords()}`;
}

const labelList = (leaf) =>
  el(
    "ul",
    { class: "plain pairs" },
    leaf.is_new ? el("li", { class: "quiet" }, "before the split:") : null,
    rankedLabels(leaf).map((number) =>
      el(
        "li",
        {},
        named(labelName(number), 20),
        el("span", { class: "number" }, percent(leaf.probabilities[number])),
        shareBar(leaf.probabilities[number], 48, "chance"),
      ),
    ),
  );

const rankedLabels = (leaf, most = 3) =>
  [...leaf.probabilities.keys()]
    .filter((number) => leaf.probabilities[number] > 0)
    .sort((a, b) => leaf.probabilities[b] - leaf.probabilities[a])
    .slice(0, most);

function drawComparison() {
  if (!DATA.comparison.length) return;
  $("comparison-section").hidden = false;
  const [main, other] = DATA.metrics;
  const values = DATA.comparison.map((row) => row[main.field][0] ?? 0);
  const longest = main.is_share ? 1 : Math.max(...values) || 1;
  const heads = [
    { name: "learner" },
    { name: main.title, number: true },
    { name: "" },
    { name: other.title, number: true },
    ...DATA.more_metrics.map(({ title, words }) => ({ name: title, number: true, title: words })),
    { name: "splits", number: true },
    { name: "parameters", number: true },
    { name: "seconds", number: true },
  ];
  const size = (value) =>
    value === null
      ? "–"
      : value.toLocaleString("en-US", { maximumFractionDigits: 1, minimumFractionDigits: 1 });
  $("comparison").replaceChildren(
    table(
      "Learners on the same rows",
      heads,
      DATA.comparison.map((row, number) => [
        [lineSample(number, number === 0), named(row.title, 40)],
        row[main.field][0] === null ? "–" : row[main.field].map(score).join(" ± "),
        shareBar((row[main.field][0] ?? 0) / longest, 72, "chance"),
        score(row[other.field]),
        ...DATA.more_metrics.map(({ field, is_share }) =>
          is_share ? share(row[field]) : figure(row[field]),
        ),
        size(row.splits),
        row.parameters === null ? "–" : whole(row.parameters),
        figure(row.seconds),
      ]),
    ),
  );
  $("comparison-words").textContent = [
    `Each row was predicted before it was learnt. ${main.title}: mean ± standard deviation over batches;`,
    isNumber ? "" : "macro F1, AUC and ECE (the calibration error): of all rows;",
    "splits (inner nodes) and parameters: means; seconds: CPU time for predicting and",
    "learning, in all.",
  ].join(" ");
}

function drawSettings() {
  $("code").textContent = DATA.code;
  const setting = (row) => [
    el("span", { class: "name" }, row.name),
    el(
      "span",
      { class: row.changed ? "name strong" : "name", title: row.value },
      shorten(row.value, 120),
      row.changed ? el("small", {}, " not the default") : null,
    ),
  ];
  $("settings-words").textContent = DATA.run.length
    ? "The same rows in the same order and batches, settings and versions: the same tree."
    : "The same rows, settings and versions give the same tree, if the order of the rows and the " +
      "rows per batch are the same too; these are not recorded here.";
  $("run").hidden = !DATA.run.length;
  $("run").replaceChildren(
    table(
      "The run",
      [{ name: "run" }, { name: "value" }],
      DATA.run.map(([name, value]) => [
        el("span", { class: "name" }, name),
        el("span", { class: "name" }, value),
      ]),
    ),
  );
  $("settings").replaceChildren(
    table("Settings", [{ name: "setting" }, { name: "value" }], DATA.settings.map(setting)),
  );
  $("versions").replaceChildren(
    table(
      "Versions",
      [{ name: "made with" }, { name: "version" }],
      DATA.versions.map(([name, version]) => [name, version]),
    ),
  );
  $("footer").textContent = "Written by driftree. One file: it loads nothing and sends nothing.";
}
