// The reading: why a change was made, or what a leaf says, was and is.

const MAX_LISTED = 12;

// What the two losses are losses of.
const RIVALS = {
  split: ["one model", "two models"],
  replace: ["the old branch", "two new models"],
  prune: ["the branch", "one model"],
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
  const [before, after] = RIVALS[event.kind];
  const figures = [
    [`Loss of ${before}`, nats(event.before)],
    [`Loss of ${after}`, nats(event.after)],
    ...comparison(event).map(([words, , value]) => [words, nats(value)]),
    ["Rows it rests on", event.rows === null ? "–" : whole(event.rows)],
  ];
  if (event.runner) {
    figures.push([
      ["Next best: ", named(shortCondition(event.runner[0], 40), 60, condition(event.runner[0]))],
      nats(event.runner[1]),
    ]);
  }
  $("reading").replaceChildren(
    el(
      "p",
      { class: "kicker" },
      `Change ${whole(number + 1)} of ${whole(EVENTS.length)}, step ${whole(event.step)}`,
    ),
    el("h2", { class: `event-title ${event.kind}` }, shape(event.kind), `${titleOf(event)}`),
    body([
      [
        el("p", { class: "sentence" }, event.sentence),
        event.removed.length ? removedList(event.removed) : null,
      ],
      [drawGain(event)],
      [
        table(
          "The figures that were compared",
          [
            { name: "Compared" },
            {
              name: "nats",
              number: true,
              title: "Natural-log loss, summed over the rows: 0.69 per row is a coin",
            },
          ],
          figures,
        ),
      ],
    ]),
  );
}

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
    prune: () => `No longer split by ${shortCondition(event.old, length)}`,
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
      el(
        "li",
        { class: "quiet" },
        plural(removed.length - splits.length, "leaf").replace("leafs", "leaves"),
      ),
    ),
  );
}

// -------------------------------------------------------------------- a leaf
function readLeaf(nodes, node, row, count) {
  const leaf = nodes.get(node);
  const now = isPresent(count, row) ? leafNow(node) : null;
  const then = leafAt(leaf, row);
  const share = now ? now.share : then.share;
  const rows = now ? now.rows : then.rows;
  $("reading").replaceChildren(
    el("p", { class: "kicker" }, `Leaf ${node}${sinceWords(leaf)}`),
    el("h2", { title: leaf.rule }, shorten(leaf.rule, 240)),
    body([
      [
        el(
          "p",
          { class: "sentence" },
          [
            share === null
              ? "Its share of the rows is not known yet."
              : `It takes ${percent(share)} of the rows`,
            share === null || rows === null ? "" : ` and has learnt ${whole(rows)} of them`,
            share === null ? "" : ".",
            now && now.floor ? ` ${percent(now.floor)} of its labels look random.` : "",
          ].join(""),
        ),
        now ? probabilityTable(now) : null,
      ],
      weightParts(leaf, row, now),
      [historyPart(nodes, node, count)],
    ]),
  );
}

function probabilityTable(now) {
  const ranked = [...now.probabilities.keys()]
    .filter((number) => now.probabilities[number] > 0)
    .sort((a, b) => now.probabilities[b] - now.probabilities[a]);
  if (!ranked.length) return null;
  return el(
    "div",
    { class: "part" },
    el("h3", {}, "Labels of its rows"),
    table(
      "Labels of its rows",
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

function weightParts(leaf, row, now) {
  const life = lifeOf(leaf);
  if (!life)
    return [
      el(
        "p",
        { class: "quiet" },
        "It stood too short a time to be in a sample, so its weights are not known.",
      ),
    ];
  const known = leafAt(leaf, row);
  const largest = Math.max(...known.weights.map((weight) => Math.abs(weight.value)), 1e-9);
  const heads = [{ name: "input" }, { name: "effect", number: true }, { name: "" }];
  if (now) heads.splice(2, 0, { name: "per unit", number: true });
  const rows = known.weights.map(({ pair, value }) => {
    const number = life.pairs.findIndex((other) => other === pair);
    const cells = [
      [lineSample(number), named(shortWeightName(pair, 36), 60, weightName(pair))],
      effect(value),
      effectBar(value, largest, 56),
    ];
    if (now) cells.splice(2, 0, figure(value * DATA.factors[pair[1]]));
    return cells;
  });
  return [
    el(
      "div",
      { class: "part" },
      el("h3", {}, "Strongest weights"),
      el(
        "p",
        { class: "quiet" },
        `Effect: ${weightWords()}`,
        life.n_weights > life.pairs.length ? ` ${chosenWords(life, now)}` : "",
      ),
      table("Strongest weights", heads, rows),
      life.at.length > 1 ? weightChart(life, row) : null,
      el("p", { class: "quiet" }, `As of row ${whole(known.row)}.`),
    ),
  ];
}

const chosenWords = ({ pairs, n_weights }, now) =>
  isBinary || !now
    ? `The ${pairs.length} strongest of ${whole(n_weights)}.`
    : `The ${pairs.length} strongest of the most frequent labels; in all there are ${whole(n_weights)}.`;

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
          "stroke-dasharray": DASHES[number % DASHES.length],
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
  return el(
    "div",
    { class: "part" },
    el("h3", {}, "How it came to be"),
    el(
      "ol",
      { class: "plain story" },
      changes.slice(0, MAX_LISTED).map((number) => el("li", {}, changeButton(number))),
      changes.length > MAX_LISTED
        ? el(
            "li",
            { class: "quiet" },
            `and ${plural(changes.length - MAX_LISTED, "earlier change")}`,
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
  $("reading").replaceChildren(el("p", { class: "kicker" }, "Read more"), el("p", {}, words));
}
