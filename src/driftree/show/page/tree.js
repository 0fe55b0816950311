// The tree as a picture: splits above, a card for each leaf, edges as wide as their share of rows.

const CARD = { gap: 10, head: 26, line: 17, weights: 3, level: 78, bar: 40, band: 6 };
// Of a card, what the room allows; where inputs stand with a label each, narrow ones say too little.
const WIDTHS = [232, 204, 180, 160, 144, 132].filter((width) => isBinary || width >= 180);
const MAX_SPLIT = 190; // pixels of a condition
const LEAST_SCALE = 0.88; // at which all is still read
const MAX_DRAWN = 4; // leaves that can be read in a picture on paper; more are printed as text
const tree = { nodes: [], tallest: 0, card: WIDTHS[0] };

function drawTree(nodes, row, count) {
  const present = isPresent(count, row);
  const shares = sharesOf(nodes, row, present);
  const changed = changedBy(count - 1);
  const box = $("tree");
  const known = new Map(leavesOf(nodes).map((leaf) => [leaf.node, leafAt(leaf, row, present)]));
  const sizes = [...known.values()].flatMap(({ weights }) => weights.map(({ value }) => value));
  const largest = Math.max(...sizes.map(Math.abs), 1e-9); // one scale for all
  const shown = [...known.values()].flatMap(({ weights }) => weights.slice(0, CARD.weights));
  const drawBodies = (card) => {
    const pairs = shown.map(({ pair }) => pair);
    const nameOf = cardNames(pairs, card - 26 - CARD.bar);
    tree.card = card;
    return new Map(
      [...known].map(([node, leaf]) => [node, leafBody(node, leaf, present, largest, nameOf)]),
    );
  };
  const heights = [...drawBodies(WIDTHS[0]).values()].map((body) => body.height);
  const cardHeight = Math.max(...heights);
  const { card, level, places, width } = layOutInRoom(nodes, cardHeight, box.clientWidth);
  const bodies = drawBodies(card);
  const depth = Math.max(...[...nodes.values()].map((at) => at.depth));
  const height = depth * level + cardHeight + 40;

  const edges = svg("g", { class: "edges" });
  const drawn = svg("g", {});
  tree.nodes = [];
  for (const at of walk(nodes)) {
    const { x, y } = places.get(at.node);
    const kind = changed.get(at.node);
    if (at.left >= 0) {
      const split = drawSplit(at, x, y, kind);
      tree.nodes.push(split);
      drawn.append(split);
      for (const child of [at.left, at.right])
        edges.append(
          ...drawEdge(x, y, places.get(child), child, child === at.left, shares.get(child)),
        );
    } else {
      const card = drawLeaf(at, x, y, shares.get(at.node), bodies.get(at.node), cardHeight, kind);
      tree.nodes.push(card);
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
  rove(picture, tree.nodes);
  const scale = Math.min(1, Math.max(LEAST_SCALE, box.clientWidth / width));
  picture.style.width = `${Math.floor(width * scale)}px`;
  picture.style.height = "auto";
  box.replaceChildren(picture, textTree(nodes, shares, present));
  box.classList.toggle("many", bodies.size > MAX_DRAWN);
  // What stands below should not jump when the tree shrinks, within reason.
  tree.tallest = Math.max(tree.tallest, picture.clientHeight);
  box.style.minHeight = `${Math.min(tree.tallest, window.innerHeight / 2)}px`;
  const centre = [view.node, ...changed.keys()]
    .filter((node) => places.has(node))
    .map((node) => places.get(node).x)[0];
  if (width * scale > box.clientWidth && centre !== undefined)
    box.scrollLeft = centre * scale - box.clientWidth / 2;
}

// Places of the nodes, from the bottom up: two branches stand as close as their outlines allow.
// An outline has, per band of the height, how far a branch reaches to the left and to the right.
function layOut(nodes, card, cardHeight, level) {
  const places = new Map();
  const band = (y) => Math.floor(y / CARD.band);
  const reach = (outline, from, to, left, right) => {
    for (let b = band(from); b <= band(to); b += 1) {
      const [l, r] = outline.get(b) ?? [left, right];
      outline.set(b, [Math.min(l, left), Math.max(r, right)]);
    }
  };
  for (const at of [...walk(nodes)].reverse()) {
    const y = 30 + at.depth * level;
    const outline = new Map();
    if (at.left < 0) {
      reach(outline, y - 16, y - 16 + cardHeight, -card / 2, card / 2);
      places.set(at.node, { y, outline, shift: 0 });
      continue;
    }
    const [left, right] = [places.get(at.left), places.get(at.right)];
    let apart = 0;
    for (const [b, [, r]] of left.outline)
      if (right.outline.has(b)) apart = Math.max(apart, r - right.outline.get(b)[0] + CARD.gap);
    left.shift = -apart / 2;
    right.shift = apart / 2;
    for (const child of [left, right])
      for (const [b, [l, r]] of child.outline)
        reach(outline, b * CARD.band, b * CARD.band, l + child.shift, r + child.shift);
    const half = splitWidth(at) / 2;
    reach(outline, y - 28, y + 15, -half, half);
    reach(outline, y + 16, y + level - 17, -apart / 2, apart / 2); // the lines to the children
    places.set(at.node, { y, outline, shift: 0 });
  }
  const all = [...places.get(0).outline.values()];
  const start = CARD.gap - Math.min(...all.map(([l]) => l));
  for (const at of walk(nodes)) {
    const own = places.get(at.node);
    own.x = own.shift + (at.parent >= 0 ? places.get(at.parent).x : start);
  }
  const width = start + Math.max(...all.map(([, r]) => r)) + CARD.gap;
  return { card, level, places, width };
}

// The widest cards that have room, narrow ones also a little smaller; else with levels so far apart
// that cards stand above each other. Of many leaves the picture scrolls, and nothing is tried.
function layOutInRoom(nodes, cardHeight, room) {
  const narrowest = WIDTHS.at(-1);
  if (leavesOf(nodes).length * narrowest > 3 * room)
    return layOut(nodes, narrowest, cardHeight, CARD.level);
  let first = null;
  for (const level of [CARD.level, cardHeight + 28])
    for (const card of WIDTHS) {
      const laidOut = layOut(nodes, card, cardHeight, level);
      const scale = card < 160 || card === WIDTHS.at(-1) ? LEAST_SCALE : 1;
      if (laidOut.width * scale <= room) return laidOut;
      if (level === CARD.level) first = laidOut;
    }
  return first;
}

const splitText = (at) => {
  const cut = (_, length) => shortCondition(at.condition, length);
  return fitText(condition(at.condition), MAX_SPLIT, FONTS.strong, cut);
};
const splitWidth = (at) => Math.max(64, textWidth(splitText(at), FONTS.strong) + 28);

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
        x: (x + below.x) / 2 + (isLeft ? -8 : 8), // above the line, where no other node stands
        y: middle - 3 - thickness / 2,
        "text-anchor": isLeft ? "end" : "start",
      },
      isLeft ? "yes" : "no",
    ),
  ];
}

function drawSplit(at, x, y, kind) {
  const width = splitWidth(at);
  return svg(
    "g",
    {
      class: `node split-node${kind ? ` changed ${kind}` : ""}`,
      role: "button",
      "data-node": at.node,
      "aria-label": `Inner node ${at.node}, splits by ${condition(at.condition)}`,
      "aria-pressed": "false",
      onclick: () => chooseNode(at.node),
    },
    svg("title", {}, `${condition(at.condition)}: rows that pass go left${sinceWords(at)}`),
    svg("rect", { class: "card", x: x - width / 2, y: y - 15, width, height: 30, rx: 15 }),
    svg("text", { x, y: y + 4.5, "text-anchor": "middle" }, splitText(at)),
    kind && at.node === EVENTS[view.count - 1].node ? badge(kind, x, y - 15) : null,
  );
}

// A word and a shape, so that nobody needs the colour.
function badge(kind, x, y) {
  const text = {
    split: "new split",
    replace: "replaced",
    shift: "moved",
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
  const left = x - tree.card / 2;
  const top = y - 16;
  const { rule } = leaf;
  const isChangedItself = kind && EVENTS[view.count - 1].node === leaf.node;
  const rail = tree.card - 20;
  return svg(
    "g",
    {
      class: `node leaf${kind ? ` changed ${kind}` : ""}`,
      role: "button",
      "data-node": leaf.node,
      "aria-label": `Leaf ${leaf.node}, share of rows: ${percent(share)}, rule: ${rule}`,
      "aria-pressed": "false",
      transform: `translate(${left},${top})`,
      onclick: () => chooseNode(leaf.node),
    },
    svg("title", {}, rule),
    svg("rect", { class: "card", width: tree.card, height, rx: 8 }),
    svg("text", { class: "strong", x: 10, y: 18 }, `leaf ${leaf.node}`),
    svg(
      "text",
      { class: "quiet", x: tree.card - 10, y: 18, "text-anchor": "end" },
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
    isChangedItself ? badge(kind, tree.card / 2, 0) : kind ? newLeafBadge(kind) : null,
  );
}

const newLeafBadge = (kind) =>
  svg(
    "g",
    { class: `badge ${kind}`, transform: `translate(${tree.card / 2 - 17},-12)` },
    svg("rect", { width: 34, height: 16, rx: 8 }),
    svg("text", { x: 17, y: 11.8, "text-anchor": "middle" }, "new"),
  );

// What a card says below its share: the probable label or the mean, then the strongest weights.
function leafBody(node, known, present, largest, nameOf) {
  const parts = [];
  let y = CARD.head + 8;
  const now = present ? leafNow(node) : null;
  const best = now ? rankedLabels(now)[0] : undefined;
  if (best !== undefined) {
    const name = now.is_new ? `before: ${labelName(best)}` : labelName(best);
    const chance = percent(now.probabilities[best]);
    const room = tree.card - 28 - textWidth(chance, FONTS.plain);
    y += 14;
    parts.push(
      svgText(cardLabel(name, best, room), name, { x: 10, y }),
      svg("text", { class: "quiet", x: tree.card - 10, y, "text-anchor": "end" }, chance),
    );
    y += 6;
  }
  if (now && isNumber) {
    y += 14;
    const bar = gaugeBar(now, tree.card - 20);
    bar.setAttribute("x", 10);
    bar.setAttribute("y", y + 5);
    parts.push(
      svg("text", { x: 10, y }, now.is_new ? "mean so far" : "mean"),
      svg("text", { class: "quiet", x: tree.card - 10, y, "text-anchor": "end" }, now.mean_text),
      bar,
    );
    y += 22;
  }
  for (const { pair, value } of known.weights.slice(0, CARD.weights)) {
    y += CARD.line;
    const curve = curveOf(now, pair);
    const bar = curve ? curveLine(curve, largest, CARD.bar) : effectBar(value, largest, CARD.bar);
    bar.setAttribute("x", tree.card - 10 - CARD.bar);
    bar.setAttribute("y", y - 10);
    parts.push(
      svgText(nameOf(pair), weightName(pair), { class: "small", x: 10, y }),
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

function markNode(node) {
  for (const drawn of tree.nodes) {
    const isChosen = Number(drawn.dataset.node) === node;
    drawn.classList.toggle("chosen", isChosen);
    drawn.setAttribute("aria-pressed", isChosen);
  }
}
