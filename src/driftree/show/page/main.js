// What is shown at present, and who changes it. Whoever chooses something is taken to what is said
// about it; whoever only moves in time stays where they are.

const PAPER_WIDTH = 700;
const view = { row: 0, count: 0, node: null, since: null };

// Show the tree after the first `count` changes, at a row.
function show(row, count, node = null) {
  keepFocus(() => draw(row, count, node));
}

function draw(row, count, node) {
  view.row = Math.min(Math.max(row, DATA.first.row), lastRow());
  view.count = count;
  const nodes = treeAfter(count);
  const stands = node !== null && nodes.has(node) ? node : null;
  view.node = stands;
  view.since = stands === null ? null : nodes.get(stands).since_step;
  drawTree(nodes, view.row, count);
  markNode(stands);
  moveCursor(view.row, stands === null ? count - 1 : null);
  tellPlace(nodes);
  drawConfusion(view.row);
  if (stands !== null && nodes.get(stands).left < 0) readLeaf(nodes, stands, view.row, count);
  else if (stands !== null) readSplit(nodes, stands, view.row, count);
  else if (count > 0) readEvent(count - 1);
  else
    readNothing(
      EVENTS.length
        ? "No change yet: the log starts with this tree. Select a change or a node for details."
        : `${DATA.notice} Select a leaf to see its rule and its weights.`,
    );
}

function tellPlace(nodes) {
  const { row, count } = view;
  const slider = $("slider");
  const leaves = leavesOf(nodes).length;
  const size = leafCount(leaves);
  const last = EVENTS[count - 1];
  const step =
    last && last.row === row
      ? `, step ${whole(last.step)}`
      : row === DATA.last.row
        ? `, step ${whole(DATA.last.step)}`
        : "";
  slider.value = row;
  slider.setAttribute(
    "aria-valuetext",
    `Row ${whole(row)}, ${size}, ${countWords(count)}`,
  );
  $("place").replaceChildren(
    el("strong", {}, `Row ${whole(row)}`),
    `${step} · ${size} · ${countWords(count)}`,
  );
  $("tree-words").textContent = last ? `Marked is the last change, at row ${whole(last.row)}.` : "";
  $("tree-title").textContent = `The tree after row ${whole(row)}`;
  // Not `disabled`, which would take the focus from who steps to the end.
  $("previous").setAttribute("aria-disabled", count === 0);
  $("next").setAttribute("aria-disabled", count === EVENTS.length);
  $("latest").setAttribute("aria-disabled", isPresent(count, row));
  for (const button of $("changes").querySelectorAll("button")) {
    button.setAttribute("aria-current", Number(button.dataset.event) === count - 1);
  }
}

const countWords = (count) =>
  `${whole(count)} of ${allChanges()} change${EVENTS.length === 1 ? "" : "s"}`;

// -------------------------------------------------------------------- focus
// What is drawn again loses the focus: then what stands for the same thing gets it.
function keepFocus(action) {
  const active = document.activeElement;
  const home = active?.closest("#timeline, #tree, #reading");
  action();
  if (!home || active.isConnected) return;
  const { event, node } = active.dataset;
  const again =
    event !== undefined
      ? home.querySelector(`[data-event="${event}"]`)
      : node !== undefined
        ? home.querySelector(`.node[data-node="${node}"]`)
        : null;
  (again ?? $("reading-title")).focus({ preventScroll: true });
}

function goToReading() {
  const isStill = window.matchMedia("(prefers-reduced-motion: reduce)").matches;
  $("reading-title").focus({ preventScroll: true });
  // Beside the tree it can be read where it is.
  const block = isBeside() ? "nearest" : "start";
  $("reading").scrollIntoView({ block, behavior: isStill ? "auto" : "smooth" });
}

const isBeside = () =>
  $("reading").getBoundingClientRect().left >= $("tree").getBoundingClientRect().right;

// From the reading to what it is about.
function goBack() {
  const isNode = view.node !== null;
  const goal = isNode
    ? tree.nodes.find((drawn) => Number(drawn.dataset.node) === view.node)
    : timeline.marks[view.count - 1];
  focusOn(isNode ? tree.nodes : timeline.marks, goal);
  goal.scrollIntoView({ block: "center" });
}

// -------------------------------------------------------------------- ways to move
// A node that still is what it was at the new time stays chosen.
function move(row, count) {
  const at = view.node === null ? undefined : treeAfter(count).get(view.node);
  show(row, count, at && at.since_step === view.since ? at.node : null);
}

function goToRow(row) {
  if (!DATA.is_kept) return; // only the present tree is known
  const allowed = Math.min(Math.max(row, DATA.first.row), lastRow());
  move(Math.round(allowed), countUntilRow(Math.round(allowed)));
}

function goToEnd() {
  move(DATA.last.row, EVENTS.length);
}

function goToChange(count) {
  if (count < 0 || count > EVENTS.length) return;
  show(count ? EVENTS[count - 1].row : DATA.first.row, count);
}

function chooseEvent(number) {
  show(EVENTS[number].row, number + 1);
  const mark = timeline.marks[number];
  focusable(timeline.marks, mark);
  goToReading();
}

function chooseNode(node) {
  show(view.row, view.count, node);
  const drawn = tree.nodes.find((other) => Number(other.dataset.node) === node);
  focusable(tree.nodes, drawn);
  goToReading();
}

function onSliderKey(event) {
  const goal = {
    ArrowLeft: view.count - 1,
    ArrowDown: view.count - 1,
    ArrowRight: view.count + 1,
    ArrowUp: view.count + 1,
  }[event.key];
  if (goal === undefined || !EVENTS.length) return;
  event.preventDefault();
  if (goal > EVENTS.length) goToEnd();
  else goToChange(goal);
}

function redraw(width) {
  tree.tallest = 0;
  keepFocus(() => {
    drawTimeline(width);
    drawStream();
    move(view.row, view.count);
  });
}

// -------------------------------------------------------------------- start
function start() {
  drawNumbers();
  drawLegend();
  drawChanges();
  drawRules();
  drawComparison();
  drawImportance();
  drawAlarmList();
  drawStream();
  drawSettings();
  const slider = $("slider");
  slider.min = 0;
  slider.max = lastRow();
  slider.addEventListener("input", () => goToRow(Number(slider.value)));
  slider.addEventListener("keydown", onSliderKey);
  $("previous").addEventListener("click", () => goToChange(view.count - 1));
  $("next").addEventListener("click", () => goToChange(view.count + 1));
  $("latest").addEventListener("click", goToEnd);
  $("why").addEventListener("click", goToReading);
  $("time-words").textContent = DATA.time_words;
  $("tree-key").textContent = DATA.tree_key;
  // Without a history there is no time to move in; without scores there is nothing to see of it.
  for (const part of document.querySelectorAll(".slide, .controls, #keys"))
    part.hidden = !DATA.is_kept;
  $("time").hidden = !DATA.is_kept && !DATA.curves.length;
  drawTimeline();
  view.row = DATA.last.row;
  show(DATA.last.row, EVENTS.length);
  // Paper is as wide as it is, whatever the screen.
  window.addEventListener("beforeprint", () => redraw(PAPER_WIDTH));
  window.addEventListener("afterprint", () => redraw());
  let width = $("timeline").clientWidth;
  new ResizeObserver(() => {
    if ($("timeline").clientWidth === width) return;
    width = $("timeline").clientWidth;
    redraw();
  }).observe($("timeline"));
}

start();
