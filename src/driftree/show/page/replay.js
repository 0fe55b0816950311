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
  const nodes = new Map(DATA.snapshot.map((values) => [values[0], { ...spot(values), made: -1 }]));
  EVENTS.slice(0, count).forEach((event, number) => {
    const at = nodes.get(event.node);
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

const lifeOf = (leaf) => LIVES.get(`${leaf.node}/${leaf.since_step}`);

// What is known of a leaf by a row: its share and its strongest weights, as last seen.
function leafAt(leaf, row) {
  const life = lifeOf(leaf);
  if (!life) return { share: null, rows: null, weights: [] };
  let place = 0;
  while (place + 1 < life.at.length && DATA.samples[life.at[place + 1]][1] <= row) place += 1;
  const weights = life.pairs
    .map((pair, number) => ({ pair, value: life.weights[number][place] }))
    .filter((weight) => weight.value !== null)
    .sort((a, b) => Math.abs(b.value) - Math.abs(a.value));
  return {
    share: life.share[place],
    rows: life.rows[place],
    row: DATA.samples[life.at[place]][1],
    weights,
  };
}

// Without a history it is not known since when a node is what it is.
const sinceWords = (at) => (DATA.is_kept ? `, since row ${whole(at.since_row)}` : "");

const isPresent = (count, row) => count === EVENTS.length && row >= DATA.last.row;
const leafNow = (node) => DATA.leaves.find((leaf) => leaf.node === node);

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
