// What the page knows, and the small words of drawing it. Text from data only ever becomes the
// content of text nodes or the value of attributes, never markup.

const DATA = JSON.parse(document.getElementById("data").textContent);
// Texts name what is long by number. A name that is written from right to left stays by itself.
const TURNED = /[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufeff]/;
const unfold = (text) =>
  text.replace(/\x7f(\d+)\x7f/g, (_, number) => {
    const name = DATA.names[number];
    return TURNED.test(name) ? `\u2068${name}\u2069` : name;
  });
const EVENTS = DATA.events.map((event) => ({
  ...event,
  rules: event.rules.map(unfold),
  sentence: unfold(event.sentence),
}));
const CONDITIONS = DATA.conditions.map(([text, end]) => [
  unfold(text),
  unfold(text.slice(0, end)).length,
]);
const KINDS = {
  split: { name: "split", mark: "M0,-6 L6,5 L-6,5 Z" },
  replace: { name: "replace", mark: "M0,-6.5 L6.5,0 L0,6.5 L-6.5,0 Z" },
  shift: { name: "shift", mark: "M-5,-6 L6,0 L-5,6 Z" },
  prune: { name: "prune", mark: "M0,6 L6,-5 L-6,-5 Z" },
  bend: { name: "bend", mark: "M-6.5,4 A6.5,7.5 0 0 1 6.5,4 Z" },
  unbend: { name: "straighten", mark: "M-6.5,-2.5 H6.5 V2.5 H-6.5 Z" },
  memory: { name: "memory", mark: "M-2,-6 H2 V-2 H6 V2 H2 V6 H-2 V2 H-6 V-2 H-2 Z" },
  link: { name: "restart", mark: "M-5,-5 H5 V5 H-5 Z" },
};
// Okabe and Ito: colour-blind readers can tell them apart; dashes tell them apart in grey.
const N_COLOURS = 7;
const DASHES = ["", "6 3", "2 2", "8 3 2 3", "4 2", "1 3", "10 2"];
const dashes = (number) => DASHES[(number + Math.floor(number / N_COLOURS)) % DASHES.length];

const $ = (id) => document.getElementById(id);

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined));
  return node;
}

const el = (tag, attributes, ...children) =>
  fill(document.createElement(tag), attributes, children);
const svg = (tag, attributes, ...children) =>
  fill(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);

// -------------------------------------------------------------------- words and numbers
const whole = (value) => Math.round(value).toLocaleString("en-US");
const percent = (share) =>
  share === null ? "–" : share > 0 && share < 0.01 ? "< 1 %" : `${Math.round(100 * share)} %`;
const plural = (count, word) => `${whole(count)} ${word}${count === 1 ? "" : "s"}`;
const leafCount = (count) => plural(count, "leaf").replace("leafs", "leaves");
// The oldest changes of a long log are not counted any more.
const allChanges = () => `${whole(EVENTS.length)}${DATA.first.step > 0 ? "+" : ""}`;
// Scores of labels lie between 0 and 1, errors of numbers are in their unit.
const share = (value) => (value === null ? "–" : value.toFixed(3));
const score = (value) => (DATA.metrics[0].is_share ? share(value) : figure(value, 4));

function figure(value, digits = 3) {
  if (value === null || value === undefined) return "–";
  if (value !== 0 && Math.abs(value) < 0.001) return value.toExponential(1).replaceAll("-", "−");
  const text = value.toLocaleString("en-US", { maximumSignificantDigits: digits });
  return text.replace("-", "−");
}

// Numbers in order, with as many digits as tell neighbours apart.
function figures(values, digits) {
  const texts = values.map((value) => figure(value, digits));
  const areTold = texts.every((text, place) => !place || text !== texts[place - 1]);
  return areTold || digits >= 17 ? texts : figures(values, digits + 1);
}

const nats = (value) =>
  value === null
    ? "–"
    : value
        .toLocaleString("en-US", { minimumFractionDigits: 1, maximumFractionDigits: 1 })
        .replace("-", "−");
const effect = (value) => (value > 0 ? "+" : "") + figure(value);
const shorten = (text, length) => (text.length <= length ? text : `${text.slice(0, length - 1)}…`);
// The end of a condition tells it from its neighbours, so the middle goes.
const shortenMiddle = (text, length) =>
  text.length <= length ? text : `${text.slice(0, length - 6)}…${text.slice(-5)}`;

// How wide a text is in a picture, and as much of it as has room.
const ruler = document.createElement("canvas").getContext("2d");
const FAMILY = getComputedStyle(document.documentElement).getPropertyValue("--font");
const FONTS = { plain: `12px ${FAMILY}`, strong: `600 12px ${FAMILY}`, small: `11px ${FAMILY}` };
function textWidth(text, font) {
  ruler.font = font;
  return ruler.measureText(text).width;
}
function fitText(text, room, font, cut) {
  let length = text.length;
  let shown = text;
  while (length > 7 && textWidth(shown, font) > room) {
    length -= 1;
    shown = cut(text, length);
  }
  return shown;
}

// A text in a picture that may be shortened; its tooltip has the whole.
const svgText = (text, whole, attributes) =>
  svg("text", attributes, text, text === whole ? null : svg("title", {}, whole));

const condition = (number) => CONDITIONS[number][0];
// A condition in little room: the feature's name gives way, not what is asked of it.
function shortCondition(number, length) {
  const text = condition(number);
  if (text.length <= length) return text;
  const end = CONDITIONS[number][1];
  const question = shorten(text.slice(end), length - 6);
  return shortenMiddle(text.slice(0, end), Math.max(6, length - question.length)) + question;
}
const inputName = (column) => DATA.inputs[column];
const labelName = (number) => DATA.labels[number];
const isNumber = DATA.number !== null; // then there are no labels, and weights are its own
const isBinary = isNumber ? DATA.n_outputs === 1 : DATA.labels.length <= 2;
// With two labels all weights speak about the second one; else each about its own label.
const weightName = ([label, column]) =>
  isBinary ? inputName(column) : `${labelName(label)}: ${inputName(column)}`;
const shortWeightName = ([label, column], length) =>
  isBinary
    ? shortenMiddle(inputName(column), length)
    : [
        shorten(labelName(label), Math.floor(length / 3)),
        shortenMiddle(inputName(column), Math.ceil((2 * length) / 3) - 2),
      ].join(": ");
// In a leaf's card there is little room. Where names that were cut to it would look alike, those are
// taken that were shortened so that none looks like another.
function cardNames(pairs, room) {
  const long = new Map(pairs.map((pair) => [weightName(pair), pair]));
  const cut = (text) => fitText(text, room, FONTS.small, shortenMiddle);
  const areTold = new Set([...long.keys()].map(cut)).size === long.size;
  const short = ([label, column]) =>
    (isBinary ? "" : `${DATA.short_labels[label]}: `) + DATA.short_inputs[column];
  return (pair) =>
    areTold ? cut(weightName(pair)) : fitText(short(pair), room, FONTS.small, shorten);
}
const cardLabel = (name, label, room) =>
  textWidth(name, FONTS.plain) <= room || isBinary
    ? fitText(name, room, FONTS.plain, shortenMiddle)
    : fitText(DATA.short_labels[label], room, FONTS.plain, shorten);
function weightWords() {
  const most = isNumber ? `${DATA.number} gains or loses` : "they gain or lose";
  const bent = LEAVES.some((leaf) => leaf.curves.length)
    ? ` Where a number has a curve: the most that ${most} when it grows by up to that.`
    : "";
  return `what ${gainWords()} when a number grows by ${DATA.unit}, or a yes/no input becomes yes.${bent}`;
}
function gainWords() {
  if (isNumber) return `${DATA.number} gains`;
  const label = DATA.labels[DATA.labels.length - 1];
  return isBinary ? `the log-odds of ${shorten(label, 40)} gain` : "a label's log-odds gain";
}
// A name of the user's; its tooltip has the whole.
const named = (text, length, whole = text) =>
  el(
    "span",
    { class: "name", title: whole === text && text.length <= length ? null : whole },
    shortenMiddle(text, length),
  );

// -------------------------------------------------------------------- parts that several draw
function table(caption, heads, rows) {
  const cell = (tag, content, place) =>
    el(
      tag,
      {
        class: heads[place].number ? "number" : null,
        scope: tag === "th" ? "row" : null,
        "data-head": place ? heads[place].name : null,
      },
      content,
    );
  return el(
    "table",
    {},
    el("caption", { class: "unseen" }, caption),
    el(
      "thead",
      {},
      el(
        "tr",
        {},
        heads.map((head) =>
          el(
            "th",
            { scope: "col", class: head.number ? "number" : null, title: head.title },
            head.name,
          ),
        ),
      ),
    ),
    el(
      "tbody",
      {},
      rows.map((row) =>
        el(
          "tr",
          {},
          row.map((content, place) => cell(place ? "td" : "th", content, place)),
        ),
      ),
    ),
  );
}

// A bar from a middle line: to the right for, to the left against.
function effectBar(value, largest, width = 72) {
  const half = width / 2;
  const length = Math.max(1, half * Math.min(1, Math.abs(value) / (largest || 1)));
  return svg(
    "svg",
    { class: "bar", width, height: 12, viewBox: `0 0 ${width} 12`, "aria-hidden": "true" },
    svg("rect", {
      class: value < 0 ? "against" : "for",
      x: value < 0 ? half - length : half,
      y: 2,
      width: length,
      height: 8,
      rx: 1,
    }),
    svg("line", { class: "axis", x1: half, x2: half, y1: 0, y2: 12 }),
  );
}

// The curve of a number in a leaf of the latest tree, if its line is bent there.
const curveOf = (leaf, [label, column]) =>
  leaf?.curves.find((curve) => curve[0] === label && curve[1] === column);

// A small picture of a curve, and the level of an average row. What rises by less than the largest
// effect fills less than the height.
function curveLine([, , knots, values], largest, width = 72, height = 12) {
  const middle = (Math.min(...values) + Math.max(...values)) / 2;
  const half = Math.max(Math.max(...values) - middle, largest / 2);
  const low = middle - half,
    high = middle + half;
  const x = (knot) => 1 + ((width - 2) * (knot - knots[0])) / (knots.at(-1) - knots[0] || 1);
  const y = (value) => 1 + (height - 2) * (1 - (value - low) / (high - low || 1));
  const isSeen = low <= 0 && high >= 0;
  return svg(
    "svg",
    { class: "bar", width, height, viewBox: `0 0 ${width} ${height}`, "aria-hidden": "true" },
    isSeen ? svg("line", { class: "grid", x1: 0, x2: width, y1: y(0), y2: y(0) }) : null,
    svg("path", { class: "bent", d: pathOf(knots, values, x, y) }),
  );
}

function shareBar(share, width = 72, kind = "share") {
  return svg(
    "svg",
    { class: "bar", width, height: 12, viewBox: `0 0 ${width} 12`, "aria-hidden": "true" },
    svg("rect", { class: "rail", x: 0, y: 3, width, height: 6, rx: 3 }),
    svg("rect", {
      class: kind,
      x: 0,
      y: 3,
      width: Math.max(share > 0 ? 2 : 0, width * (share ?? 0)),
      height: 6,
      rx: 3,
    }),
  );
}

// Where the mean of a leaf lies among those of all leaves, in the band of its error. The colours are
// told apart by colour-blind readers, and on light and dark pages.
const HEIGHTS = [
  [43, 93, 158],
  [133, 133, 127],
  [222, 188, 52],
];
function heightColour(part) {
  const place = Math.min(Math.max(part, 0), 1) * (HEIGHTS.length - 1);
  const below = Math.min(Math.floor(place), HEIGHTS.length - 2);
  const mixed = HEIGHTS[below].map((from, channel) =>
    Math.round(from + (place - below) * (HEIGHTS[below + 1][channel] - from)),
  );
  return `rgb(${mixed.join(",")})`;
}
function gaugeBar(leaf, width = 96) {
  const means = LEAVES.map(({ mean }) => mean);
  const low = Math.min(...LEAVES.map(({ mean, error }) => mean - error));
  const high = Math.max(...LEAVES.map(({ mean, error }) => mean + error));
  const [least, most] = [Math.min(...means), Math.max(...means)];
  const x = (number) => (high > low ? (width * (number - low)) / (high - low) : width / 2);
  const left = x(leaf.mean - leaf.error);
  return svg(
    "svg",
    { class: "bar gauge", width, height: 12, viewBox: `0 0 ${width} 12`, "aria-hidden": "true" },
    svg("rect", { class: "rail", x: 0, y: 4, width, height: 4, rx: 2 }),
    svg("rect", {
      fill: heightColour(most > least ? (leaf.mean - least) / (most - least) : 0.5),
      x: left,
      y: 2,
      width: Math.max(2, x(leaf.mean + leaf.error) - left),
      height: 8,
      rx: 1,
    }),
    svg("line", { class: "mean", x1: x(leaf.mean), x2: x(leaf.mean), y1: 0, y2: 12 }),
  );
}

// One stop for the Tab key, arrow keys inside.
function rove(container, items) {
  items.forEach((item, place) =>
    item.setAttribute("tabindex", place === items.length - 1 ? "0" : "-1"),
  );
  container.onkeydown = (event) => {
    const place = items.indexOf(document.activeElement);
    const goal = {
      ArrowLeft: place - 1,
      ArrowUp: place - 1,
      ArrowRight: place + 1,
      ArrowDown: place + 1,
      Home: 0,
      End: items.length - 1,
    }[event.key];
    if (place < 0) return;
    if (event.key === "Enter" || event.key === " ") {
      event.preventDefault();
      items[place].dispatchEvent(new MouseEvent("click", { bubbles: true }));
    } else if (goal !== undefined) {
      event.preventDefault();
      if (items[goal]) focusOn(items, items[goal]);
    }
  };
}

function focusOn(items, item) {
  for (const other of items) other.setAttribute("tabindex", other === item ? "0" : "-1");
  item.focus();
}
