// Metric curves above, marks of the changes by kind below, and a line at the chosen row.

const CHART = { left: 70, right: 18, top: 10, height: 168, lane: 24, axis: 26 };
const REACH = 12; // pixels around a mark that belong to it
const SAME_PLACE = 1.5; // pixels that nobody can aim between
const CROWD = 150; // marks are smaller where there are more
const timeline = { marks: [], x: null, width: 0 };

const lastRow = () =>
  Math.max(1, DATA.last.row, ...DATA.curves.map((curve) => curve.rows.at(-1) ?? 0));
const lanes = () =>
  Object.keys(KINDS).filter(
    (kind) =>
      DATA.is_kept &&
      (["split", "replace", "prune"].includes(kind) || EVENTS.some((event) => event.kind === kind)),
  );

function niceTicks(low, high, count) {
  const rough = (high - low) / count || 1;
  const power = 10 ** Math.floor(Math.log10(rough));
  const size = [1, 2, 2.5, 5, 10].map((factor) => factor * power).find((step) => step >= rough);
  const ticks = [];
  for (let k = Math.ceil(low / size - 1e-9); k * size <= high * (1 + 1e-9); k += 1)
    ticks.push(k * size + 0);
  return ticks;
}

const brief = (rows) =>
  rows >= 1e6 ? `${figure(rows / 1e6)} M` : rows >= 1e4 ? `${figure(rows / 1e3)} k` : whole(rows);

function drawTimeline(room = $("timeline").clientWidth) {
  const width = Math.max(280, room);
  const hasCurves = DATA.curves.length > 0;
  const height = hasCurves ? CHART.height : 0;
  const below = CHART.top + height + (hasCurves ? 14 : 0);
  const total = below + lanes().length * CHART.lane + CHART.axis;
  const span = width - CHART.left - CHART.right;
  timeline.x = (row) => CHART.left + (span * row) / lastRow();
  timeline.width = width;
  timeline.total = total - CHART.axis;

  const picture = svg("svg", {
    viewBox: `0 0 ${width} ${total}`,
    width: "100%",
    role: "group",
    "aria-label": hasCurves
      ? `${DATA.metric} of each learner over the rows, and the changes of the tree`
      : "Changes of the tree over the rows",
  });
  picture.append(drawDrifts());
  if (hasCurves) picture.append(drawCurves(height));
  if (DATA.alarms.length) picture.append(drawAlarms());
  picture.append(drawAxis(below, total));
  timeline.cursor = svg("g", { class: "cursor" });
  picture.append(timeline.cursor, drawMarks(below));
  picture.addEventListener("click", (event) => {
    const box = picture.getBoundingClientRect();
    const x = ((event.clientX - box.left) * width) / box.width;
    const y = ((event.clientY - box.top) * total) / box.height;
    const number = markAt(x, y);
    if (number === null) goToRow(((x - CHART.left) / span) * lastRow());
    else chooseEvent(number);
  });
  $("timeline").replaceChildren(picture);
  // The slider's thumb (16 px) stands under the line.
  const slide = $("slider").parentNode;
  slide.style.paddingLeft = `${CHART.left - 8}px`;
  slide.style.paddingRight = `${CHART.right - 8}px`;
}

function drawAxis(top, bottom) {
  const group = svg("g", { class: "axes", "aria-hidden": "true" });
  const place = bottom - CHART.axis;
  for (const row of niceTicks(0, lastRow(), Math.max(2, timeline.width / 150))) {
    const x = timeline.x(row);
    group.append(
      svg("line", { class: "tick", x1: x, x2: x, y1: CHART.top, y2: place }),
      svg(
        "text",
        { x, y: bottom - 8, "text-anchor": x > timeline.width - 40 ? "end" : "middle" },
        brief(row),
      ),
    );
  }
  group.append(svg("text", { x: 0, y: bottom - 8 }, "rows"));
  lanes().forEach((kind, number) => {
    const y = top + (number + 0.5) * CHART.lane;
    group.append(
      svg("line", {
        class: "lane",
        x1: CHART.left,
        x2: timeline.width - CHART.right,
        y1: y,
        y2: y,
      }),
      svg("text", { x: 0, y: y + 4 }, KINDS[kind].name),
    );
  });
  if (DATA.first.row > 0) {
    const x = timeline.x(DATA.first.row);
    group.append(
      svg(
        "rect",
        {
          class: "folded",
          x: CHART.left,
          y: top,
          width: Math.max(0, x - CHART.left),
          height: place - top,
        },
        svg("title", {}, `The log begins at row ${whole(DATA.first.row)}`),
      ),
    );
  }
  return group;
}

// Where the stream is known to change: a line if at once, a band if over some rows.
function drawDrifts() {
  const group = svg("g", { class: "drifts" });
  for (const [first, last] of DATA.drifts) {
    const from = timeline.x(Math.min(first, lastRow()));
    const width = Math.max(0, timeline.x(Math.min(last, lastRow())) - from);
    const rows = first === last ? `at row ${whole(first)}` : `rows ${whole(first)} to ${whole(last)}`;
    group.append(
      first === last
        ? svg(
            "line",
            { class: "drift", x1: from, x2: from, y1: CHART.top, y2: timeline.total },
            svg("title", {}, `Known drift ${rows}`),
          )
        : svg(
            "rect",
            { class: "drift", x: from, y: CHART.top, width, height: timeline.total - CHART.top },
            svg("title", {}, `Known drift ${rows}`),
          ),
    );
  }
  return group;
}

// Where the model detected a drift: a mark on top, with a description.
function drawAlarms() {
  const group = svg("g", { class: "alarms" });
  for (const [row, sentence] of DATA.alarms) {
    const x = timeline.x(Math.min(row, lastRow()));
    group.append(
      svg(
        "path",
        { class: "alarm", d: alarmShape(x, CHART.top), role: "img", "aria-label": sentence },
        svg("title", {}, sentence),
      ),
    );
  }
  return group;
}

const alarmShape = (x, y) => `M${x - 6} ${y - 10}h12l-6 10z`;

function drawCurves(height) {
  const group = svg("g", { class: "curves" });
  const known = DATA.curves.flatMap((curve) => curve.values).filter((value) => value !== null);
  const isShare = DATA.metrics[0].is_share;
  const high = isShare ? 1 : Math.max(...known, 1e-300);
  const low = isShare ? Math.min(...known, 1) : 0;
  const ticks = niceTicks(isShare ? low - 0.03 * (1 - low) : 0, high, 4);
  const bottom = Math.min(ticks[0] ?? 0, low);
  const y = (value) => CHART.top + height * (1 - (value - bottom) / (high - bottom || 1));
  for (const tick of ticks) {
    group.append(
      svg("line", {
        class: "grid",
        x1: CHART.left,
        x2: timeline.width - CHART.right,
        y1: y(tick),
        y2: y(tick),
      }),
      svg("text", { x: CHART.left - 8, y: y(tick) + 4, "text-anchor": "end" }, figure(tick)),
    );
  }
  group.append(svg("text", { x: 0, y: CHART.top + 4, class: "strong" }, DATA.metric));
  // The first learner is the model itself: drawn last, on top.
  [...DATA.curves.keys()].reverse().forEach((number) => {
    const curve = DATA.curves[number];
    group.append(
      svg("path", {
        class: `curve colour${number % N_COLOURS}${number ? "" : " own"}`,
        "stroke-dasharray": dashes(number),
        d: pathOf(curve.rows, curve.values, timeline.x, y),
      }),
    );
  });
  return group;
}

// Points that are unknown leave a gap.
function pathOf(places, values, x, y) {
  let path = "";
  let isDown = false;
  values.forEach((value, place) => {
    if (value === null) {
      isDown = false;
      return;
    }
    path += `${isDown ? "L" : "M"}${x(places[place]).toFixed(1)},${y(value).toFixed(1)}`;
    isDown = true;
  });
  return path;
}

// The nearest mark of the lane, also where marks cover each other; of those that lie on one place,
// each click takes the next.
function markAt(x, y) {
  const near = [...EVENTS.keys()]
    .map((number) => ({ number, away: Math.abs(timeline.x(EVENTS[number].row) - x) }))
    .filter(({ number, away }) => away <= REACH && Math.abs(timeline.y[number] - y) <= REACH);
  if (!near.length) return null;
  const nearest = Math.min(...near.map(({ away }) => away));
  const place = near.filter(({ away }) => away <= nearest + SAME_PLACE).map(({ number }) => number);
  const chosen = place.indexOf(view.node === null ? view.count - 1 : -1);
  return chosen < 0
    ? near.find(({ away }) => away === nearest).number
    : place[(chosen + 1) % place.length];
}

function drawMarks(top) {
  const group = svg("g", { class: "marks" });
  const kinds = lanes();
  timeline.y = EVENTS.map((event) => top + (kinds.indexOf(event.kind) + 0.5) * CHART.lane);
  timeline.marks = EVENTS.map((event, number) => {
    const y = timeline.y[number];
    return svg(
      "g",
      {
        class: `mark ${event.kind}`,
        role: "button",
        "data-event": number,
        transform: `translate(${timeline.x(event.row).toFixed(1)},${y})`,
        "aria-label": event.sentence,
        onclick: (click) => {
          if (click.isTrusted) return; // by a pointer: the picture knows what lies nearest
          click.stopPropagation();
          chooseEvent(number);
        },
      },
      svg("circle", { class: "touch", r: REACH }),
      svg("path", {
        d: KINDS[event.kind].mark,
        transform: EVENTS.length > CROWD ? "scale(0.75)" : null,
      }),
      svg("title", {}, event.sentence),
    );
  });
  group.append(...timeline.marks);
  rove(group, timeline.marks);
  return group;
}

function moveCursor(row, chosen) {
  const x = timeline.x(row);
  timeline.cursor.replaceChildren(svg("line", { x1: x, x2: x, y1: CHART.top, y2: timeline.total }));
  timeline.marks.forEach((mark, number) => {
    mark.classList.toggle("chosen", number === chosen);
    mark.setAttribute("aria-pressed", number === chosen);
  });
}

function drawLegend() {
  const named = DATA.curves.length > 1 ? DATA.curves : [];
  const drifts = DATA.drifts.length ? [el("span", { class: "drift" }, driftSample, "known drift")] : [];
  const alarms = DATA.alarms.length
    ? [el("span", { class: "drift" }, alarmSample, "drift detected by the model")]
    : [];
  $("legend").replaceChildren(
    ...named.map((curve, number) =>
      el(
        "span",
        { title: curve.title },
        lineSample(number, number === 0),
        shorten(curve.title, 32),
      ),
    ),
    ...drifts,
    ...alarms,
  );
}

const driftSample = svg(
  "svg",
  { class: "sample", width: 28, height: 12, viewBox: "0 0 28 12", "aria-hidden": "true" },
  svg("line", { class: "drift", x1: 14, x2: 14, y1: 0, y2: 12 }),
);

const alarmSample = svg(
  "svg",
  { class: "sample", width: 28, height: 12, viewBox: "0 0 28 12", "aria-hidden": "true" },
  svg("path", { class: "alarm", d: alarmShape(14, 11) }),
);

const lineSample = (number, isOwn = false) =>
  svg(
    "svg",
    { class: "sample", width: 28, height: 10, viewBox: "0 0 28 10", "aria-hidden": "true" },
    svg("line", {
      class: `curve colour${number % N_COLOURS}${isOwn ? " own" : ""}`,
      x1: 1,
      x2: 27,
      y1: 5,
      y2: 5,
      "stroke-dasharray": dashes(number),
    }),
  );
