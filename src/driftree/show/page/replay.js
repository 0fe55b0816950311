// The tree at any time: what the log begins with, and the changes until then.

const FIELDS = [
  "node",
  "parent",
  "depth",
  "condition",
  "left",
  "right",
  "since_step",
  "since_row",
  "rule",
];

const spot = (values) => Object.fromEntries(FIELDS.map((name, place) => [name, values[place]]));
const SNAPSHOT = DATA.snapshot.map((values) => [...values.slice(0, -1), unfold(values.at(-1))]);

function removeBelow(nodes, node) {
  const { left, right } = nodes.get(node);
  for (const child of [left, right]) {
    if (child < 0) continue;
    removeBelow(nodes, child);
    nodes.delete(child);
  }
}

// Return the nodes after the first `count` changes; `made` tells which change made a node.
function treeAfter(count) {
  const nodes = new Map(SNAPSHOT.map((values) => [values[0], { ...spot(values), made: -1 }]));
  EVENTS.slice(0, count).forEach((event, number) => {
    if (["bend", "unbend", "memory"].includes(event.kind)) return; // the nodes stay
    const at = nodes.get(event.node);
    if (event.kind === "shift") {
      at.condition = event.condition;
      [...walk(nodes, event.node)].slice(1).forEach((below, place) => {
        below.rule = event.rules[place];
      });
      return;
    }
    removeBelow(nodes, event.node);
    const since = { since_step: event.step, since_row: event.row };
    const grows = event.kind === "split" || event.kind === "replace";
    Object.assign(
      at,
      since,
      grows
        ? { condition: event.condition, left: event.left, right: event.right }
        : { condition: -1, left: -1, right: -1 },
    );
    if (!grows) return;
    [event.left, event.right].forEach((child, side) => {
      const leaf = spot([child, at.node, at.depth + 1, -1, -1, -1]);
      nodes.set(child, { ...leaf, ...since, rule: event.rules[side], made: number });
    });
  });
  return nodes;
}

// From the root down, left before right.
function* walk(nodes, start = 0) {
  const rest = [start];
  while (rest.length) {
    const at = nodes.get(rest.pop());
    yield at;
    if (at.left >= 0) rest.push(at.right, at.left);
  }
}

// The nodes after a step, as `tree_at` gives them in Python.
const treeAtStep = (step) =>
  [...walk(treeAfter(countUntilStep(step)))].map((at) => ({
    ...at,
    condition: at.condition < 0 ? null : condition(at.condition),
  }));

const leavesOf = (nodes) => [...walk(nodes)].filter((at) => at.left < 0);

function pathTo(nodes, node) {
  const path = [];
  for (let at = nodes.get(node); at; at = nodes.get(at.parent)) path.unshift(at);
  return path;
}

const countUntilRow = (row) => EVENTS.filter((event) => event.row <= row).length;
const countUntilStep = (step) => EVENTS.filter((event) => event.step <= step).length;

// -------------------------------------------------------------------- leaves over time
const LIVES = new Map(DATA.lives.map((life) => [`${life.node}/${life.since}`, life]));

const MAX_WEIGHTS = 6; // of a leaf
const lifeOf = (leaf) => LIVES.get(`${leaf.node}/${leaf.since_step}`);

// What is known of a leaf by a row: its share and its strongest weights, as last seen; or, if it
// was not seen by then, at which row it first was, and its weights then.
function leafAt(leaf, row, present) {
  if (present) return leafAtPresent(leaf);
  const life = lifeOf(leaf);
  if (!life) return { share: null, rows: null, row: null, first: null, weights: [] };
  let place = life.at.length - 1;
  while (place >= 0 && DATA.samples[life.at[place]][1] > row) place -= 1;
  const first = DATA.samples[life.at[0]][1];
  const weights = life.pairs
    .map((pair, number) => ({ pair, value: life.weights[number][Math.max(place, 0)] }))
    .filter((weight) => weight.value)
    .sort((a, b) => Math.abs(b.value) - Math.abs(a.value))
    .slice(0, MAX_WEIGHTS);
  if (place < 0) return { share: null, rows: null, row: null, first, weights };
  const seen = DATA.samples[life.at[place]][1];
  return { share: life.share[place], rows: life.rows[place], row: seen, first, weights };
}

// The share of an inner node when it was last seen as a leaf. Its id may be another's before.
function shareBefore(at, row) {
  const born = EVENTS[at.made]?.step ?? 0;
  const lives = DATA.lives.filter(({ node, since }) => node === at.node && since >= born);
  const shares = lives
    .map(({ since }) => leafAt({ node: at.node, since_step: since }, row))
    .filter(({ row: seen }) => seen !== null)
    .sort((a, b) => a.row - b.row);
  return shares.at(-1)?.share ?? null;
}

// The same figures as in the table of rules.
function leafAtPresent(leaf) {
  const now = leafNow(leaf.node);
  const weights = now.weights.map(([label, column, value]) => ({ pair: [label, column], value }));
  return { share: now.share, rows: now.rows, row: DATA.last.row, first: null, weights };
}

// Without a history it is not known since when a node is what it is.
const sinceWords = (at) => (DATA.is_kept ? `, since row ${whole(at.since_row)}` : "");

const isPresent = (count, row) => count === EVENTS.length && row >= DATA.last.row;
const LEAVES = DATA.leaves.map((leaf) => ({ ...leaf, rule: unfold(leaf.rule) }));
const SPLITS = DATA.splits.map((split) => ({ ...split, rule: unfold(split.rule) }));
const splitNow = (node) => SPLITS.find((split) => split.node === node);
const leafNow = (node) => LEAVES.find((leaf) => leaf.node === node);

// The changes of the nodes on a leaf's path, since each node was made.
function changesOnPath(nodes, node, count) {
  const made = new Map(pathTo(nodes, node).map((at) => [at.node, at.made]));
  return [...EVENTS.keys()].slice(0, count).filter((number) => {
    const { node: changed, left, right } = EVENTS[number];
    return (
      (made.has(changed) && number > made.get(changed)) ||
      made.get(left) === number ||
      made.get(right) === number
    );
  });
}
