// The reading: why a change was made, or what a leaf says, was and is.

const MAX_LISTED = 8;

// What the two losses are losses of.
const RIVALS = {
  split: ["one model", "two models"],
  replace: ["the old branch", "two new models"],
  shift: ["the rows' old side", "their new side"],
  prune: ["the branch", "one model"],
  bend: ["the model as it was", "the one with more curves"],
  unbend: ["the model as it was", "the one with fewer curves"],
  memory: ["the model as it was", "the one with this memory"],
  link: ["the tree", "one new model"],
};

// A branch that saves too little is pruned although it saves something: then its saving is told.
const isSaving = (event) =>
  event.kind === "prune" && event.threshold !== null && event.threshold <= 0;

function comparison(event) {
  return isSaving(event)
    ? [
        ["The branch saves", "saves", -event.gain],
        ["It must save more than", "must save", -event.threshold],
      ]
    : [
        ["Gain", "gain", event.gain],
        ["Gain required", "required", event.threshold],
      ];
}

function readEvent(number) {
  const event = EVENTS[number];
  $("reading").replaceChildren(
    ...heading(
      `Change ${whole(number + 1)} of ${allChanges()}, step ${whole(event.step)}`,
      el(
        "h2",
        { id: "reading-title", class: `event-title ${event.kind}`, tabindex: "-1" },
        shape(event.kind),
        titleOf(event),
      ),
    ),
    body([
      [
        el("p", { class: "sentence" }, event.sentence),
        event.removed.length ? removedList(event.removed) : null,
      ],
      [drawGain(event)],
      [figuresOf(event), el("p", { class: "quiet" }, DATA.loss_words)],
    ]),
  );
}

function figuresOf(event) {
  const [before, after] = RIVALS[event.kind];
  const figures = [
    [`Loss of ${before}`, inNats(event.before)],
    [`Loss of ${after}`, inNats(event.after)],
    ...comparison(event).map(([words, , value]) => [words, inNats(value)]),
    ["It rests on", event.rows === null ? "–" : plural(Math.round(event.rows), "row")],
  ];
  if (event.runner) {
    figures.push([
      ["Next best: ", named(shortCondition(event.runner[0], 40), 60, condition(event.runner[0]))],
      inNats(event.runner[1]),
    ]);
  }
  return table(
    "The figures that were compared",
    [{ name: "Compared" }, { name: "value", number: true }],
    figures,
  );
}

const inNats = (value) => (value === null ? "–" : `${nats(value)} nats`);

// What is told about, and the way back to it.
const heading = (words, title) => [
  el("p", { class: "kicker" }, words),
  el(
    "div",
    { class: "title" },
    title,
    el("button", { type: "button", class: "words back", onclick: goBack }, "Back to the picture"),
  ),
];

// Columns where there is room, else one below the other.
const body = (columns) =>
  el(
    "div",
    { class: "body" },
    columns
      .map((parts) => parts.filter(Boolean))
      .filter((parts) => parts.length)
      .map((parts) => el("div", { class: "column" }, parts)),
  );

const titleOf = (event, length = 70) =>
  ({
    split: () => `Split by ${shortCondition(event.condition, length)}`,
    replace: () => `Now split by ${shortCondition(event.condition, length)}`,
    shift: () => `Threshold moved: ${shortCondition(event.condition, length)}`,
    prune: () => `No longer split by ${shortCondition(event.old, length)}`,
    bend: () => `Now a curve: ${shorten(event.curves.join(", "), length)}`,
    unbend: () => `Straight again: ${shorten(event.curves.join(", "), length)}`,
    memory: () => `Now remembers some ${plural(event.memory, "row")}`,
    link: () => "Started again from one leaf",
  })[event.kind]();

const shape = (kind) =>
  svg(
    "svg",
    {
      class: `shape ${kind}`,
      width: 16,
      height: 16,
      viewBox: "-8 -8 16 16",
      role: "img",
      "aria-label": KINDS[kind].name,
    },
    svg("path", { d: KINDS[kind].mark }),
  );

// The gain against what it had to reach, and against the next best.
function drawGain(event) {
  const rivals = comparison(event).map(([, name, value], place) => [
    name,
    value,
    place ? "needed" : "own",
  ]);
  if (event.runner && !isSaving(event)) rivals.push(["next best", event.runner[1], "other"]);
  const known = rivals.filter(([, value]) => value !== null);
  const low = Math.min(0, ...known.map(([, value]) => value));
  const high = Math.max(0, ...known.map(([, value]) => value));
  if (high === low) return null;
  const x = (value) => 72 + (200 * (value - low)) / (high - low);
  return svg(
    "svg",
    {
      class: "gain",
      viewBox: `0 0 340 ${known.length * 22 + 4}`,
      width: "100%",
      role: "img",
      "aria-label": known.map(([name, value]) => `${name} ${nats(value)}`).join(", "),
    },
    known.map(([name, value, kind], place) => [
      svg("text", { x: 64, y: place * 22 + 16, "text-anchor": "end" }, name),
      svg("rect", {
        class: kind,
        x: Math.min(x(0), x(value)),
        y: place * 22 + 5,
        width: Math.max(1.5, Math.abs(x(value) - x(0))),
        height: 14,
        rx: 2,
      }),
      svg("text", { class: "quiet", x: 280, y: place * 22 + 16 }, nats(value)),
    ]),
    svg("line", { class: "axis", x1: x(0), x2: x(0), y1: 2, y2: known.length * 22 + 2 }),
  );
}

function removedList(removed) {
  const splits = removed.filter((number) => number >= 0);
  return el(
    "div",
    { class: "part" },
    el("h3", {}, `Removed: ${plural(removed.length, "node")}`),
    el(
      "ul",
      { class: "plain" },
      splits
        .slice(0, MAX_LISTED)
        .map((number) =>
          el(
            "li",
            { class: "name", title: condition(number) },
            `split by ${shortCondition(number, 44)}`,
          ),
        ),
      splits.length > MAX_LISTED
        ? el("li", { class: "quiet" }, `and ${plural(splits.length - MAX_LISTED, "more split")}`)
        : null,
      el("li", { class: "quiet" }, leafCount(removed.length - splits.length)),
    ),
  );
}

// -------------------------------------------------------------------- a leaf
function readLeaf(nodes, node, row, count) {
  const leaf = nodes.get(node);
  const now = isPresent(count, row) ? leafNow(node) : null;
  const known = leafAt(leaf, row, now !== null);
  $("reading").replaceChildren(
    ...heading(
      `Leaf ${node}${sinceWords(leaf)}`,
      el("h2", { id: "reading-title", tabindex: "-1", title: leaf.rule }, shorten(leaf.rule, 240)),
    ),
    body([
      [
        el("p", { class: "sentence" }, leafWords(known, now)),
        now ? (isNumber ? numberPart(now) : probabilityTable(now)) : null,
      ],
      weightParts(leaf, row, now, known),
      [historyPart(nodes, node, count)],
    ]),
  );
}

// -------------------------------------------------------------------- an inner node
// What it splits on, the changes that made it so, and the model that it keeps for all of its rows.
function readSplit(nodes, node, row, count) {
  const at = nodes.get(node);
  const now = isPresent(count, row) ? splitNow(node) : null;
  const shares = sharesOf(nodes, row, now !== null);
  const lastOf = (...kinds) =>
    EVENTS.slice(0, count).findLastIndex(
      (event) => event.node === node && event.step >= at.since_step && kinds.includes(event.kind),
    );
  const [made, moved] = [lastOf("split", "replace"), lastOf("shift")];
  const last = EVENTS[Math.max(made, moved)];
  $("reading").replaceChildren(
    ...heading(
      `Inner node ${node}${sinceWords(at)}`,
      el(
        "h2",
        { id: "reading-title", tabindex: "-1", title: condition(at.condition) },
        `Splits by ${shortCondition(at.condition, 160)}`,
      ),
    ),
    body([
      [
        el("p", { class: "sentence" }, splitWords(at, shares)),
        made < 0 ? unknownSplit() : el("p", { class: "sentence" }, EVENTS[made].sentence),
        moved < 0 ? null : el("p", { class: "sentence" }, EVENTS[moved].sentence),
      ],
      last ? [drawGain(last), figuresOf(last)] : [],
      now ? splitModel(now) : [],
      [historyPart(nodes, node, count)],
    ]),
  );
}

const unknownSplit = () =>
  el("p", { class: "quiet" }, DATA.is_kept ? "It is older than the log." : DATA.notice);

function splitWords(at, shares) {
  const [share, left] = [at.node, at.left].map((node) => shares.get(node));
  const whose = at.node === 0 ? "all rows" : `rows with ${shorten(at.rule, 240)}`;
  if (!share || left === null) return `It divides ${whose}.`;
  return (
    `It divides ${whose}, ${percent(share)} of the stream: of these, ${percent(left / share)} go to ` +
    `the left (yes), ${percent(1 - left / share)} to the right (no).`
  );
}

function splitModel(now) {
  const weights = now.weights.map(([label, column, value]) => ({ pair: [label, column], value }));
  const largest = Math.max(...weights.map(({ value }) => Math.abs(value)), 1e-9);
  const what = isNumber
    ? `Alone it would predict ${now.mean_text} on average, with an error of about ${now.error_text}.`
    : "";
  return [
    isNumber ? null : probabilityTable(now),
    el(
      "div",
      { class: "part" },
      el("h3", {}, "Its own model, of all its rows"),
      el("p", { class: "quiet" }, `${what} Effect: ${weightWords()}`),
      weights.length ? weightTable(weights, largest, now, () => null) : null,
      curveParts(now, largest),
    ),
  ];
}

function leafWords({ share, rows, row, first }, now) {
  if (!now && row === null)
    return first === null
      ? "It was removed before a sample was taken, so nothing is known of it."
      : `It was first sampled at row ${whole(first)}; its weights are from then.`;
  if (share === null) return "It has seen no rows yet.";
  const floor = now?.floor ? ` ${percent(now.floor)} of its labels look random.` : "";
  return `It takes ${percent(share)} of the rows and has learnt ${whole(rows)} of them.${floor}`;
}

// What a leaf of a regressor predicts: on average, and by which formula.
function numberPart(now) {
  return el(
    "div",
    { class: "part" },
    el("h3", {}, now.is_new ? "Its predictions so far" : "Its predictions"),
    table(
      "Its predictions",
      [{ name: "figure" }, { name: "value", number: true }, { name: "" }],
      [
        ["mean", now.mean_text, gaugeBar(now, 120)],
        ["error, about", now.error_text, ""],
      ],
    ),
    el("p", { class: "formula" }, now.formula),
  );
}

function probabilityTable(now) {
  const ranked = rankedLabels(now, Infinity);
  if (!ranked.length) return null;
  const title = now.is_new ? "Labels before the split" : "Labels of its rows";
  return el(
    "div",
    { class: "part" },
    el("h3", {}, title),
    table(
      title,
      [{ name: "label" }, { name: "share", number: true }, { name: "" }],
      ranked
        .slice(0, 6)
        .map((number) => [
          named(labelName(number), 40),
          percent(now.probabilities[number]),
          shareBar(now.probabilities[number], 84, "chance"),
        ]),
    ),
    ranked.length > 6
      ? el("p", { class: "quiet" }, `and ${plural(ranked.length - 6, "rarer label")}`)
      : null,
  );
}

function weightParts(leaf, row, now, known) {
  const life = lifeOf(leaf);
  if (!life || !known.weights.length) return [];
  const largest = Math.max(...known.weights.map((weight) => Math.abs(weight.value)), 1e-9);
  const n_shown = known.weights.length;
  const sampleOf = (pair) =>
    lineSample(life.pairs.findIndex(([label, input]) => label === pair[0] && input === pair[1]));
  return [
    el(
      "div",
      { class: "part" },
      el("h3", {}, "Strongest weights"),
      el(
        "p",
        { class: "quiet" },
        `Effect: ${weightWords()}`,
        life.n_weights > n_shown ? ` ${chosenWords(life, now, n_shown)}` : "",
      ),
      weightTable(known.weights, largest, now, sampleOf),
      now ? curveParts(now, largest) : null,
      el("p", { class: "quiet" }, `As of row ${whole(known.row ?? known.first)}.`),
      life.at.length > 1 ? weightChart(life, row) : null,
      life.at.length > 1
        ? el("p", { class: "quiet" }, "The weights that were largest over its life, and at its end.")
        : null,
    ),
  ];
}

function weightTable(weights, largest, now, sampleOf) {
  const heads = [{ name: "input" }, { name: "effect", number: true }, { name: "" }];
  if (now) heads.splice(2, 0, { name: "per unit", number: true });
  const rows = weights.map(({ pair, value }) => {
    const cells = [
      [sampleOf(pair), named(shortWeightName(pair, 36), 60, weightName(pair))],
      effect(value),
      effectBar(value, largest, 56),
    ];
    const isBent = curveOf(now, pair) !== undefined;
    if (now) cells.splice(2, 0, isBent ? "curve" : figure(value * DATA.factors[pair[1]]));
    return cells;
  });
  return table("Strongest weights", heads, rows);
}

// Each curve of a leaf, from where it is bent first to where it is bent last.
const curveParts = (now, largest) =>
  now.curves.map((curve) => {
    const [label, column, knots, values] = curve;
    const points = figures(knots, 4).map((knot, place) => `${effect(values[place])} at ${knot}`);
    return el(
      "figure",
      { class: "curve-part" },
      el(
        "figcaption",
        {},
        named(shortWeightName([label, column], 36), 60, weightName([label, column])),
        el("span", { class: "quiet" }, `, compared with its mean: ${points.join(", ")}`),
      ),
      curveLine(curve, largest, 220, 56),
    );
  });

const chosenWords = ({ n_weights }, now, count) => {
  if (!now) return `Of ${whole(n_weights)}, ${count} that were strong over its life.`;
  return isBinary
    ? `The ${count} strongest of ${whole(n_weights)}.`
    : `The ${count} strongest of the most frequent labels; in all there are ${whole(n_weights)}.`;
};

// The weights since the leaf is what it is; a sign that flips crosses the middle line.
function weightChart(life, row) {
  const width = 340,
    height = 132,
    left = 34,
    right = 6,
    top = 8,
    bottom = 20;
  const places = life.at.map((sample) => DATA.samples[sample][1]);
  const values = life.weights.flat().filter((value) => value !== null);
  const low = Math.min(0, ...values),
    high = Math.max(0, ...values);
  const x = (place) =>
    left + ((width - left - right) * (place - places[0])) / (places.at(-1) - places[0] || 1);
  const y = (value) => top + (height - top - bottom) * (1 - (value - low) / (high - low || 1));
  const at = Math.min(Math.max(row, places[0]), places.at(-1));
  return svg(
    "svg",
    {
      class: "weights",
      viewBox: `0 0 ${width} ${height}`,
      width: "100%",
      role: "img",
      "aria-label": `Weights from row ${whole(places[0])} to row ${whole(places.at(-1))}`,
    },
    niceTicks(low, high, 4).map((tick) => [
      svg("line", {
        class: tick === 0 ? "axis" : "grid",
        x1: left,
        x2: width - right,
        y1: y(tick),
        y2: y(tick),
      }),
      svg("text", { x: left - 6, y: y(tick) + 4, "text-anchor": "end" }, figure(tick)),
    ]),
    svg("text", { x: left, y: height - 5 }, `row ${brief(places[0])}`),
    svg("text", { x: width - right, y: height - 5, "text-anchor": "end" }, brief(places.at(-1))),
    svg("line", { class: "cursor-line", x1: x(at), x2: x(at), y1: top, y2: height - bottom }),
    life.weights.map((series, number) =>
      svg(
        "path",
        {
          class: `curve colour${number % N_COLOURS}`,
          "stroke-dasharray": dashes(number),
          d: pathOf(places, series, x, y),
        },
        svg("title", {}, weightName(life.pairs[number])),
      ),
    ),
  );
}

function historyPart(nodes, node, count) {
  const changes = changesOnPath(nodes, node, count).reverse();
  if (!changes.length) return null;
  const isLastShift = (number) =>
    number === changes.find((n) => EVENTS[n].kind === "shift" && EVENTS[n].node === EVENTS[number].node);
  const listed = changes
    .filter((number) => EVENTS[number].kind !== "shift" || isLastShift(number))
    .slice(0, MAX_LISTED);
  return el(
    "div",
    { class: "part" },
    el("h3", {}, "How it came to be"),
    el(
      "ol",
      { class: "plain story" },
      listed.map((number) => el("li", {}, changeButton(number))),
      changes.length > listed.length
        ? el(
            "li",
            { class: "quiet" },
            `and ${plural(changes.length - listed.length, "earlier change")}`,
          )
        : null,
    ),
  );
}

const changeButton = (number) =>
  el(
    "button",
    {
      type: "button",
      class: "change",
      "data-event": number,
      title: EVENTS[number].sentence,
      onclick: () => chooseEvent(number),
    },
    shape(EVENTS[number].kind),
    el("span", { class: "when" }, `row ${whole(EVENTS[number].row)}`),
    el("span", { class: "what" }, shorten(titleOf(EVENTS[number], 44), 90)),
    // On paper nothing can be chosen, so the reason itself is printed.
    el("span", { class: "why" }, EVENTS[number].sentence),
  );

function readNothing(words) {
  $("reading").replaceChildren(
    el("h2", { id: "reading-title", tabindex: "-1", class: "unprinted" }, "Read more"),
    el("p", { class: "unprinted" }, words),
  );
}
