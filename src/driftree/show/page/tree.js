// The tree as a picture: splits above, a card for each leaf, edges as wide as their share of rows.

const CARD = { width: 152, gap: 12, head: 26, line: 17, weights: 3, level: 78 };
const MAX_DRAWN = 4; // leaves that can be read in a picture on paper; more are printed as text
const tree = { leaves: [], tallest: 0 };

function drawTree(nodes, row, count) {
  const present = isPresent(count, row);
  const shares = sharesOf(nodes, row, present);
  const changed = changedBy(count - 1);
  const places = layOut(nodes);
  const known = new Map(leavesOf(nodes).map((leaf) => [leaf.node, leafAt(leaf, row, present)]));
  const sizes = [...known.values()].flatMap(({ weights }) => weights.map(({ value }) => value));
  const largest = Math.max(...sizes.map(Math.abs), 1e-9); // one scale for all
  const bodies = new Map(
    [...known].map(([node, leaf]) => [node, leafBody(node, leaf, present, largest)]),
  );
  const cardHeight = Math.max(...[...bodies.values()].map((body) => body.height));
  const depth = Math.max(...[...nodes.values()].map((at) => at.depth));
  const width = bodies.size * (CARD.width + CARD.gap) + CARD.gap;
  const height = depth * CARD.level + cardHeight + 40;

  const edges = svg("g", { class: "edges" });
  const drawn = svg("g", {});
  tree.leaves = [];
  for (const at of walk(nodes)) {
    const { x, y } = places.get(at.node);
    const kind = changed.get(at.node);
    if (at.left >= 0) {
      drawn.append(drawSplit(at, x, y, kind));
      for (const child of [at.left, at.right])
        edges.append(
          ...drawEdge(x, y, places.get(child), child, child === at.left, shares.get(child)),
        );
    } else {
      const card = drawLeaf(at, x, y, shares.get(at.node), bodies.get(at.node), cardHeight, kind);
      tree.leaves.push(card);
      drawn.append(card);
    }
  }
  const picture = svg(
    "svg",
    {
      width,
      height,
      viewBox: `0 0 ${width} ${height}`,
      role: "group",
      "aria-label": `Tree with ${leafCount(bodies.size)}`,
    },
    edges,
    drawn,
  );
  rove(picture, tree.leaves);
  const box = $("tree");
  const scale = Math.min(1, Math.max(0.72, box.clientWidth / width));
  picture.style.width = `${Math.floor(width * scale)}px`;
  picture.style.height = "auto";
  box.replaceChildren(picture, textTree(nodes, shares, present));
  box.classList.toggle("many", bodies.size > MAX_DRAWN);
  // What stands below should not jump when the tree shrinks, within reason.
  tree.tallest = Math.max(tree.tallest, picture.clientHeight);
  box.style.minHeight = `${Math.min(tree.tallest, window.innerHeight / 2)}px`;
  const centre = [...changed.keys()]
    .filter((node) => places.has(node))
    .map((node) => places.get(node).x)[0];
  if (width * scale > box.clientWidth && centre !== undefined)
    box.scrollLeft = centre * scale - box.clientWidth / 2;
}

function layOut(nodes) {
  const places = new Map();
  let slot = 0;
  const place = (node) => {
    const at = nodes.get(node);
    const y = 30 + at.depth * CARD.level;
    if (at.left < 0) {
      places.set(node, { x: CARD.gap + slot * (CARD.width + CARD.gap) + CARD.width / 2, y });
      slot += 1;
    } else {
      place(at.left);
      place(at.right);
      places.set(node, { x: (places.get(at.left).x + places.get(at.right).x) / 2, y });
    }
  };
  place(0);
  return places;
}

// Shares of leaves as last seen, of inner nodes as sums; where a leaf below is too new to be known,
// as seen before the split, or as what the other side leaves.
function sharesOf(nodes, row, present) {
  if (present) return new Map([...nodes.keys()].map((node) => [node, DATA.shares[node]]));
  const shares = new Map();
  for (const at of [...walk(nodes)].reverse()) {
    const below = [shares.get(at.left), shares.get(at.right)];
    if (at.left < 0) shares.set(at.node, leafAt(at, row).share);
    else shares.set(at.node, below.includes(null) ? shareBefore(at, row) : below[0] + below[1]);
  }
  shares.set(0, 1);
  for (const { node, left, right } of walk(nodes)) {
    if (left < 0 || shares.get(node) === null) continue;
    for (const [child, other] of [
      [left, right],
      [right, left],
    ])
      if (shares.get(child) === null && shares.get(other) !== null)
        shares.set(child, Math.max(0, shares.get(node) - shares.get(other)));
  }
  return shares;
}

// The same tree as lines of text, which paper has room for.
function textTree(nodes, shares, present) {
  const lines = [...walk(nodes)].map((at) => {
    const above = nodes.get(at.parent);
    const answer = above ? `|--- ${above.left === at.node ? "yes" : "no"}: ` : "";
    const margin = "|   ".repeat(Math.max(0, at.depth - 1)) + answer;
    const room = Math.max(24, 88 - margin.length);
    if (at.left >= 0) return `${margin}${shortCondition(at.condition, room)}?`;
    const now = present ? leafNow(at.node) : null;
    const outcome = now && !now.is_new ? outcomeWords(now) : "";
    return `${margin}leaf ${at.node}: ${shareWords(shares.get(at.node))}${outcome}`;
  });
  return el("pre", { class: "text-tree", "aria-hidden": "true" }, lines.join("\n"));
}

function outcomeWords(now) {
  if (isNumber) return `, mean ${now.mean_text}, error about ${now.error_text}`;
  const best = rankedLabels(now)[0];
  if (best === undefined) return "";
  return `, ${shorten(labelName(best), 30)} ${percent(now.probabilities[best])}`;
}

const shareWords = (share) => (share === null ? "no rows known yet" : `${percent(share)} of rows`);

// The nodes that a change made or changed, with its kind.
function changedBy(number) {
  const event = EVENTS[number];
  if (!event) return new Map();
  return new Map(
    [event.node, event.left, event.right]
      .filter((node) => node >= 0)
      .map((node) => [node, event.kind]),
  );
}

// -------------------------------------------------------------------- nodes
function drawEdge(x, y, below, child, isLeft, share) {
  const start = y + 15;
  const end = below.y - 16;
  const middle = (start + end) / 2;
  const thickness = share === null ? 1.5 : 1.5 + 9 * share;
  return [
    svg("path", {
      class: share === null ? "edge unknown" : "edge",
      "data-child": child,
      "stroke-width": thickness.toFixed(2),
      d: `M${x},${start} C${x},${middle} ${below.x},${middle} ${below.x},${end}`,
    }),
    svg(
      "text",
      {
        class: "answer",
        x: (x + 3 * below.x) / 4 + (isLeft ? -12 : 12),
        y: middle + 2,
        "text-anchor": isLeft ? "end" : "start",
      },
      isLeft ? "yes" : "no",
    ),
  ];
}

function drawSplit(at, x, y, kind) {
  const text = shortCondition(at.condition, 28);
  const width = Math.max(64, text.length * 7.4 + 26);
  return svg(
    "g",
    { class: `node split-node${kind ? ` changed ${kind}` : ""}`, "data-node": at.node },
    svg("title", {}, `${condition(at.condition)}: rows that pass go left${sinceWords(at)}`),
    svg("rect", { x: x - width / 2, y: y - 15, width, height: 30, rx: 15 }),
    svg("text", { x, y: y + 4.5, "text-anchor": "middle" }, text),
    kind && at.node === EVENTS[view.count - 1].node ? badge(kind, x, y - 15) : null,
  );
}

// A word and a shape, so that nobody needs the colour.
function badge(kind, x, y) {
  const text = {
    split: "new split",
    replace: "replaced",
    prune: "pruned",
    bend: "bent",
    unbend: "straightened",
    memory: "other memory",
    link: "started again",
  }[kind];
  const width = text.length * 7.2 + 28;
  return svg(
    "g",
    { class: `badge ${kind}`, transform: `translate(${x - width / 2},${y - 12})` },
    svg("rect", { width, height: 16, rx: 8 }),
    svg("path", { d: KINDS[kind].mark, transform: "translate(11,8) scale(0.7)" }),
    svg("text", { x: 20, y: 11.8 }, text),
  );
}

function drawLeaf(leaf, x, y, share, body, height, kind) {
  const left = x - CARD.width / 2;
  const top = y - 16;
  const { rule } = leaf;
  const isChangedItself = kind && EVENTS[view.count - 1].node === leaf.node;
  const rail = CARD.width - 20;
  return svg(
    "g",
    {
      class: `node leaf${kind ? ` changed ${kind}` : ""}`,
      role: "button",
      "data-node": leaf.node,
      "aria-label": `Leaf ${leaf.node}, share of rows: ${percent(share)}, rule: ${rule}`,
      "aria-pressed": "false",
      transform: `translate(${left},${top})`,
      onclick: () => chooseLeaf(leaf.node),
    },
    svg("title", {}, rule),
    svg("rect", { class: "card", width: CARD.width, height, rx: 8 }),
    svg("text", { class: "strong", x: 10, y: 18 }, `leaf ${leaf.node}`),
    svg(
      "text",
      { class: "quiet", x: CARD.width - 10, y: 18, "text-anchor": "end" },
      percent(share),
    ),
    svg("rect", { class: "rail", x: 10, y: CARD.head, width: rail, height: 4, rx: 2 }),
    svg("rect", {
      class: "share",
      x: 10,
      y: CARD.head,
      width: share ? Math.max(2, rail * share) : 0,
      height: 4,
      rx: 2,
    }),
    ...body.parts,
    isChangedItself ? badge(kind, CARD.width / 2, 0) : kind ? newLeafBadge(kind) : null,
  );
}

const newLeafBadge = (kind) =>
  svg(
    "g",
    { class: `badge ${kind}`, transform: `translate(${CARD.width / 2 - 17},-12)` },
    svg("rect", { width: 34, height: 16, rx: 8 }),
    svg("text", { x: 17, y: 11.8, "text-anchor": "middle" }, "new"),
  );

// What a card says below its share: the probable label or the mean, then the strongest weights.
function leafBody(node, known, present, largest) {
  const parts = [];
  let y = CARD.head + 8;
  const now = present ? leafNow(node) : null;
  const best = now ? rankedLabels(now)[0] : undefined;
  if (best !== undefined) {
    const name = now.is_new ? `before: ${labelName(best)}` : labelName(best);
    y += 14;
    parts.push(
      svgText(shortenMiddle(name, now.is_new ? 16 : 12), name, { x: 10, y }),
      svg(
        "text",
        { class: "quiet", x: CARD.width - 10, y, "text-anchor": "end" },
        percent(now.probabilities[best]),
      ),
    );
    y += 6;
  }
  if (now && isNumber) {
    y += 14;
    const bar = gaugeBar(now, CARD.width - 20);
    bar.setAttribute("x", 10);
    bar.setAttribute("y", y + 5);
    parts.push(
      svg("text", { x: 10, y }, now.is_new ? "mean so far" : "mean"),
      svg("text", { class: "quiet", x: CARD.width - 10, y, "text-anchor": "end" }, now.mean_text),
      bar,
    );
    y += 22;
  }
  for (const { pair, value } of known.weights.slice(0, CARD.weights)) {
    y += CARD.line;
    const curve = curveOf(now, pair);
    const bar = curve ? curveLine(curve, largest, 40) : effectBar(value, largest, 40);
    bar.setAttribute("x", CARD.width - 50);
    bar.setAttribute("y", y - 10);
    parts.push(
      svgText(cardName(pair), weightName(pair), { class: "small", x: 10, y }),
      bar,
    );
  }
  if (known.row === null && !present) {
    y += CARD.line;
    const words = known.first ? `as of row ${brief(known.first)}` : "not seen in a sample";
    parts.push(svg("text", { class: "small quiet", x: 10, y }, words));
  }
  return { parts, height: y + 12 };
}

function markLeaf(node) {
  for (const card of tree.leaves) {
    const isChosen = Number(card.dataset.node) === node;
    card.classList.toggle("chosen", isChosen);
    card.setAttribute("aria-pressed", isChosen);
  }
}
