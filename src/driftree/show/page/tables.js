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
          value,
          more ? el("small", { title: more.length > 60 ? more : null }, shorten(more, 60)) : null,
        ),
      ),
    ),
  );
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
    `${plural(EVENTS.length, "change")}, the latest first.`,
    DATA.first.row > 0
      ? `Those before row ${whole(DATA.first.row)} are folded into the tree that they made.`
      : "",
    items.length > MAX_PRINTED ? `On paper: the latest ${MAX_PRINTED}.` : "",
  ].join(" ");
}

function focusable(items, item) {
  for (const other of items) other.setAttribute("tabindex", other === item ? "0" : "-1");
}

function drawRules() {
  const largest = Math.max(
    ...DATA.leaves.flatMap((leaf) => leaf.weights.map((weight) => Math.abs(weight[2]))),
    1e-9,
  );
  const heads = [
    { name: "rule" },
    { name: "rows" },
    { name: isBinary ? "labels" : "most probable labels" },
    { name: "strongest weights" },
    { name: "since row", number: true },
  ];
  const rows = DATA.leaves.map((leaf) => [
    el(
      "button",
      {
        type: "button",
        class: "words",
        onclick: () => {
          goToEnd();
          chooseLeaf(leaf.node, true);
        },
      },
      `leaf ${leaf.node}`,
      el("span", { class: "name rule" }, leaf.rule),
    ),
    el("div", { class: "stack" }, el("span", {}, percent(leaf.share)), shareBar(leaf.share, 72)),
    el(
      "ul",
      { class: "plain pairs" },
      rankedLabels(leaf).map((number) =>
        el(
          "li",
          {},
          named(labelName(number), 20),
          el("span", { class: "number" }, percent(leaf.probabilities[number])),
          shareBar(leaf.probabilities[number], 48, "chance"),
        ),
      ),
    ),
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
            effectBar(value, largest, 56),
          ),
        ),
    ),
    leaf.since_row === null ? "–" : whole(leaf.since_row),
  ]);
  $("rules").replaceChildren(table("Rules of the tree at the end", heads, rows));
  $("rules-words").textContent = `A row falls under exactly one rule. Weights: ${weightWords()}`;
}

const rankedLabels = (leaf) =>
  [...leaf.probabilities.keys()]
    .filter((number) => leaf.probabilities[number] > 0)
    .sort((a, b) => leaf.probabilities[b] - leaf.probabilities[a])
    .slice(0, 3);

function drawComparison() {
  if (!DATA.comparison.length) return;
  $("comparison-section").hidden = false;
  const heads = [
    { name: "learner" },
    { name: "F1", number: true },
    { name: "" },
    { name: "accuracy", number: true },
    { name: "splits", number: true },
    { name: "parameters", number: true },
    {
      name: "seconds",
      number: true,
      title: "Processor time for predicting and learning, all batches",
    },
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
        row.f1[0] === null ? "–" : `${row.f1[0].toFixed(3)} ± ${row.f1[1].toFixed(3)}`,
        shareBar(row.f1[0], 72, "chance"),
        row.accuracy === null ? "–" : row.accuracy.toFixed(3),
        size(row.splits),
        row.parameters === null ? "–" : whole(row.parameters),
        figure(row.seconds),
      ]),
    ),
  );
  $("comparison-words").textContent = [
    "Each row was predicted before it was learnt. F1: mean ± standard deviation over batches;",
    "splits and parameters: means; seconds: in all.",
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
