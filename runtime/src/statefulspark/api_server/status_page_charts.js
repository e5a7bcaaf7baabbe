// Charts of the job's history, as SVG made of DOM nodes. Texts of the job reach the page as text nodes only, never as markup.
const NAMESPACE = at("svg").namespaceURI, HISTORY_MS = 10000, GAP_MS = 120000, HEIGHT = 144, LEFT = 66, BOTTOM = 18, TOP = 8;
const PARTS = ["input", "begin", "process", "output", "encode", "durable"];
const STRIPS = 6;  // of the map: more would be a wall, and thousands of cells
let historyAt = -Infinity, drawn = null, eventsShown = "", wasRange = "";

function shape(tag, attributes, text) {
  const made = document.createElementNS(NAMESPACE, tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  if (text !== undefined) made.textContent = text;
  return made;
}
const instant = (ms, from, to) => {
  const text = new Date(ms).toISOString();
  return to - from > 172800000 ? text.slice(5, 10) : to - from > 600000 ? text.slice(11, 16) : text.slice(11, 19);
};
const short = value => value >= 1e9 ? (value / 1e9).toFixed(1) + " G" : value >= 1e6 ? (value / 1e6).toFixed(1) + " M" : value >= 1e4 ? (value / 1e3).toFixed(0) + " k"
  : value >= 100 || value === Math.round(value) ? String(Math.round(value)) : value.toPrecision(2);
function roundUp(value, binary) {  // the next 1, 2 or 5 times a power of ten, or power of two
  if (!(value > 0)) return 1;
  if (binary) return 2 ** Math.ceil(Math.log2(value));
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 5, 10].find(step => step * power >= value * (1 - 1e-9)) * power;
}
function frame(box, title, keys, top, format, from, to, width) {
  const caption = element("figcaption"), svg = shape("svg", {class: "chart", viewBox: "0 0 " + width + " " + HEIGHT, role: "img", tabindex: "0"});
  caption.append(element("b", title));
  keys.forEach((name, i) => { const key = element("span", null, "key"); key.append(element("i", null, "f" + i % 6), name); key.title = name; caption.append(key); });
  for (const share of [0, .5, 1]) {
    const y = TOP + (1 - share) * (HEIGHT - TOP - BOTTOM);
    svg.append(shape("line", {class: "grid", x1: LEFT, x2: width, y1: y, y2: y}), shape("text", {x: LEFT - 6, y: y + 4, "text-anchor": "end"}, format(share * top)));
  }
  for (const share of width > 420 ? [0, .25, .5, .75, 1] : [0, .5, 1])
    svg.append(shape("text", {x: LEFT + share * (width - LEFT), y: HEIGHT - 3, "text-anchor": share === 0 ? "start" : share === 1 ? "end" : "middle"},
      instant(from + share * (to - from), from, to)));
  box.replaceChildren(caption, svg);
  return svg;
}
// A chart of samples: lines, or areas on top of each other. series: [name, sample => number or null].
function chart(box, title, samples, series, format, {stacked = false, binary = false, from, to}) {
  const width = Math.max(240, box.clientWidth - 26), x = ms => LEFT + (width - LEFT) * Math.min(1, Math.max(0, (ms - from) / Math.max(1, to - from)));
  const values = samples.map(sample => series.map(([, value]) => value(sample)));
  const sums = values.map(row => row.map((_, i) => stacked ? row.slice(0, i + 1).reduce((sum, each) => sum + (each || 0), 0) : row[i]));
  const top = roundUp(Math.max(0, ...sums.flat().filter(value => value !== null)), binary), y = value => TOP + (1 - value / top) * (HEIGHT - TOP - BOTTOM);
  const svg = frame(box, title, series.length > 1 ? series.map(([name]) => name) : [], top, format, from, to, width);
  const middle = sample => x((sample.from_ms + sample.to_ms) / 2), apart = i => i > 0 && samples[i].from_ms - samples[i - 1].to_ms > GAP_MS;
  series.forEach((_, k) => {
    let runs = [], run = [];
    samples.forEach((sample, i) => {
      if (sums[i][k] === null || apart(i)) { runs.push(run); run = []; }
      if (sums[i][k] !== null) run.push(i);
    });
    runs.push(run);
    runs = runs.filter(each => each.length);
    for (const each of runs) {
      const edge = each.map(i => middle(samples[i]).toFixed(1) + " " + y(sums[i][k]).toFixed(1));
      if (stacked) {
        const below = each.map(i => middle(samples[i]).toFixed(1) + " " + y(k ? sums[i][k - 1] : 0).toFixed(1)).reverse();
        svg.append(shape("path", {class: "area f" + k % 6, d: "M" + [...edge, ...below].join("L") + "Z"}));
      } else if (each.length === 1) svg.append(shape("circle", {class: "f" + k % 6, cx: middle(samples[each[0]]), cy: y(sums[each[0]][k]), r: 2.5}));
      else svg.append(shape("path", {class: "line l" + k % 6, d: "M" + edge.join("L")}));
    }
  });
  const says = i => time(samples[i].to_ms) + ": " + series.map(([name], k) => (series.length > 1 ? name + " " : "") + (values[i][k] === null ? "none" : format(values[i][k]))).join(", ");
  readable(svg, title, samples.length, says, i => middle(samples[i]));
}
// Bars of checkpoints: the whole bar is `value`, its lower part `part`. Those that failed reach to the top.
function bars(box, title, snapshots, names, value, part, format, {binary = false, from, to}) {
  const width = Math.max(240, box.clientWidth - 26), x = ms => LEFT + 3 + (width - LEFT - 6) * (ms - from) / Math.max(1, to - from);
  const top = roundUp(Math.max(0, ...snapshots.map(one => value(one) || 0)), binary), tall = amount => Math.max(1, amount / top * (HEIGHT - TOP - BOTTOM));
  const svg = frame(box, title, names, top, format, from, to, width), thick = Math.max(2, Math.min(10, (width - LEFT) / (snapshots.length || 1) * .7));
  for (const one of snapshots) {
    const failed = one.error !== null, bar = (kind, amount) => shape("rect", {class: kind, x: x(one.ended_ms) - thick / 2, width: thick, y: HEIGHT - BOTTOM - tall(amount), height: tall(amount)});
    if (failed) svg.append(bar("failed", top)); else svg.append(bar("f0", value(one)), bar("f1", part(one)));
  }
  readable(svg, title, snapshots.length, i => {
    const one = snapshots[i];
    return (one.format === "canonical" ? "canonical " : "") + one.kind + (one.id === null ? "" : " " + one.id) + " at " + time(one.ended_ms) + ": "
      + (one.error !== null ? "failed: " + one.error : format(value(one)) + ", " + names[1] + " " + format(part(one)));
  }, i => x(snapshots[i].ended_ms));
}
function readable(svg, title, count, says, x) {  // a pointer, or the arrow keys, read the values
  svg.setAttribute("aria-label", title + (count ? ". Latest: " + says(count - 1) + ". The arrow keys read earlier values." : ". No data yet."));
  if (!count) { svg.append(shape("text", {x: LEFT + 8, y: HEIGHT / 2}, "No data yet")); return; }
  const cursor = shape("line", {class: "cursor", y1: TOP, y2: HEIGHT - BOTTOM, visibility: "hidden"});
  let now = count;
  const show = i => {
    now = Math.min(count - 1, Math.max(0, i));
    for (const end of ["x1", "x2"]) cursor.setAttribute(end, x(now));
    cursor.setAttribute("visibility", "visible");
    at("reading").textContent = title + ", " + says(now);
  };
  svg.append(cursor);
  svg.addEventListener("pointermove", event => {
    const box = svg.getBoundingClientRect(), here = (event.clientX - box.left) / box.width * svg.viewBox.baseVal.width;
    let nearest = 0;
    for (let i = 1; i < count; i++) if (Math.abs(x(i) - here) < Math.abs(x(nearest) - here)) nearest = i;
    show(nearest);
  });
  svg.addEventListener("pointerleave", () => cursor.setAttribute("visibility", "hidden"));
  svg.addEventListener("keydown", event => {
    const step = {ArrowLeft: -1, ArrowRight: 1, Home: -count, End: count}[event.key];
    if (step) { event.preventDefault(); show(now + step); }
  });
}
function panels(parent, number) {
  while (parent.children.length < number) parent.append(element("figure"));
  return parent.children;
}
const rate = (sample, value) => sample.active_ms > 0 ? value * 1000 / sample.active_ms : null;
function drawCharts(found) {
  const range = Number(at("range").value), to = found.to || Date.now(), samples = range ? found.samples.filter(one => one.to_ms > to - range) : found.samples;
  const first = Math.min(to - 60000, samples.length ? samples[0].from_ms : to), from = range ? Math.max(to - range, first) : first, when = {from, to};  // a young job fills its charts
  const charts = panels(at("charts"), 8), seconds = value => span(value * 1000);
  const uids = [...new Set(samples.flatMap(sample => Object.keys(sample.states)))].sort();
  chart(charts[0], "Rows per second", samples, [["rows in", s => rate(s, s.rows_in)], ["rows out", s => rate(s, s.rows_out)]], short, when);
  chart(charts[1], "Mean time of a batch in a slot, by part", samples,
    PARTS.map(part => [part, s => s.step_batches ? (s.parts[part] || 0) / s.step_batches : null]), seconds, {...when, stacked: true});
  chart(charts[2], "Watermark lag", samples, [["lag", s => s.watermark_lag_ms]], span, when);
  chart(charts[3], "Back-pressure: share of time that exchanges wait", samples,
    [["slot is busy", s => s.active_ms && s.slots ? Math.min(100, s.send_wait_s * 1e5 / s.active_ms / s.slots) : null],
     ["slot is not ready", s => s.active_ms && s.slots ? Math.min(100, s.slot_wait_s * 1e5 / s.active_ms / s.slots) : null]], value => value.toFixed(value < 10 ? 1 : 0) + " %", when);
  chart(charts[4], "State by keyed step", samples, uids.map(uid => [uid, s => s.states[uid] ?? 0]), bytes, {...when, stacked: true, binary: true});
  chart(charts[5], "Memory of the largest slot", samples, [["used", s => s.memory_bytes || null], ["sized for", s => s.memory_budget_bytes || null]], bytes, {...when, binary: true});
  chart(charts[6], "Skew: rows of the fullest key group / mean", samples, [["skew", s => s.skew || null]], value => value.toFixed(1), when);
  chart(charts[7], "Slots and failures", samples, [["slots", s => s.slots], ["failures", s => s.failures + s.failed_checkpoints]], short, when);
  drawUserCharts(samples, when);
  const boxes = panels(at("snapshot-charts"), 2), since = found.snapshots.filter(one => one.ended_ms >= from);
  bars(boxes[0], "Duration", since, ["whole", "synchronous part"], one => one.duration_ms, one => one.sync_ms, span, when);
  bars(boxes[1], "Size", since, ["all files", "uploaded"], one => one.size_bytes, one => one.uploaded_bytes, bytes, {...when, binary: true});
  fill(at("samples"), [["until"], ["rows/s in", "number"], ["rows/s out", "number"], ["batches", "number"], ["watermark lag", "number"], ["state", "number"], ["largest slot", "number"], ["failures", "number"]],
    samples.slice(-60).reverse().map(s => [time(s.to_ms), short(rate(s, s.rows_in) || 0), short(rate(s, s.rows_out) || 0), s.batches,
      s.watermark_lag_ms === null ? null : span(s.watermark_lag_ms), bytes(Object.values(s.states).reduce((sum, each) => sum + each, 0)), bytes(s.memory_bytes), s.failures + s.failed_checkpoints]), "No samples yet.");
}
function drawUserCharts(samples, when) {  // one chart for each series, because their units differ
  const names = kind => [...new Set(samples.flatMap(sample => Object.keys(sample[kind])))].sort(), counts = names("counts");
  const told = (name, end) => name.endsWith(end) && counts.includes(name.slice(0, -end.length) + (end === ".sum" ? ".count" : ".sum"));
  const drawn = [
    ...(samples.some(s => s.backlog_rows !== null) ? [["Backlog of the sources: rows", s => s.backlog_rows]] : []),
    ...(samples.some(s => s.backlog_files !== null) ? [["Backlog of the sources: files", s => s.backlog_files]] : []),
    ...counts.filter(name => !told(name, ".sum")).flatMap(name => {
      if (!told(name, ".count")) return [[name + ", per second", s => name in s.counts ? rate(s, s.counts[name]) : null]];
      const base = name.slice(0, -6);
      return [[base + ", mean", s => s.counts[name] ? s.counts[base + ".sum"] / s.counts[name] : null]];
    }),
    ...names("gauges").map(name => [name + ", greatest over slots", s => s.gauges[name] ?? null]),
  ];
  const boxes = at("user-charts");
  while (boxes.children.length > drawn.length) boxes.lastChild.remove();
  panels(boxes, drawn.length);
  drawn.forEach(([title, value], i) => chart(boxes.children[i], title, samples, [["value", value]], short, when));
}
function showEvents(events) {
  const text = JSON.stringify(events);
  if (text === eventsShown) return;  // an open traceback stays open
  eventsShown = text;
  const rows = events.slice().reverse().map(event => {
    const first = event.message.split("\n")[0], failed = event.reason !== "";
    const what = time(event.last_ms) + " - " + event.kind + (event.slot === null ? "" : " " + event.slot) + (event.count > 1 ? " (" + number(event.count) + " times since " + time(event.first_ms) + ")" : "") + ": ";
    if (!failed) return element("p", what + first, "soft");
    const box = element("details"), line = element("summary", what);
    line.append(element("b", event.reason + ": " + first, event.kind === "failed" ? "bad" : "warn"));
    box.append(line, element("pre", event.message));
    return box;
  });
  const earlier = rows.splice(5);
  if (earlier.length) {
    const box = element("details");
    box.append(element("summary", "Earlier: " + number(earlier.length)), ...earlier);
    rows.push(box);
  }
  at("events").replaceChildren(...(rows.length ? rows : [element("p", "None.", "soft")]));
}
function showFailedSnapshots(snapshots) {
  const failed = snapshots.filter(one => one.error !== null).slice(-10).reverse();
  let box = at("failed-snapshots");
  if (!box) { box = element("div"); box.id = "failed-snapshots"; at("checkpoints").parentElement.after(box); }
  const text = failed.map(one => time(one.ended_ms) + " - " + (one.format === "canonical" ? "canonical " : "") + one.kind + " failed: " + one.error);
  box.replaceChildren(...text.map(each => element("p", each, "warn")));
}
async function refreshHistory() {
  const range = at("range").value, due = performance.now() - historyAt >= HISTORY_MS || range !== wasRange;
  if (document.hidden || !due) return;
  const since = Number(range) ? Math.max(0, Date.now() - Number(range)) : 0;
  const [within, whole] = await Promise.all([call("v1/history?since_ms=" + since + "&samples=" + (innerWidth < 640 ? 120 : 240)), call("v1/history?samples=1")]);
  const {snapshots, events} = await whole.json();  // failures are listed whatever the range of the charts
  drawn = {samples: (await within.json()).samples, snapshots, events};
  [historyAt, wasRange] = [performance.now(), range];
  drawCharts(drawn);
  showFailedSnapshots(drawn.snapshots);
  showEvents(drawn.events);
}
function forgetHistory() {
  historyAt = -Infinity;
  drawn = null;
  for (const id of ["charts", "snapshot-charts", "user-charts", "events", "map"]) at(id).replaceChildren();
  eventsShown = at("reading").textContent = at("action").textContent = "";
}
function showMap(status) {  // key groups from left to right, darker where the slot has more rows per key group; the fullest key groups are marked
  const steps = Object.entries(status.skew).sort(([, one], [, other]) => other.ratio - one.ratio);
  const strips = steps.slice(0, STRIPS).flatMap(([uid, skew]) => {
    const most = Math.max(1, ...skew.slots.map(one => one.rows_mean)), strip = element("div", null, "strip"), groups = status.max_parallelism;
    for (const slot of status.slots) {
      const rows = skew.slots.find(one => one.slot === slot.slot), cell = element("div", null, "cell"), shade = element("i");
      cell.style.left = 100 * slot.first / groups + "%";
      cell.style.width = 100 * (slot.last - slot.first + 1) / groups + "%";
      shade.style.opacity = rows ? .1 + .5 * rows.rows_mean / most : 0;
      cell.title = "slot " + slot.slot + ", key groups " + slot.first + " to " + slot.last + ": " + (rows ? number(Math.round(rows.rows_mean)) + " rows per key group, at most " + number(rows.rows_max) : "no rows");
      cell.append(shade, element("span", "slot " + slot.slot));
      strip.append(cell);
    }
    for (const one of skew.ratio > 2 ? skew.top.filter(each => each.rows > 2 * most) : []) {
      const peak = element("div", null, "peak");
      peak.style.left = 100 * one.key_group / groups + "%";
      peak.style.width = 100 / groups + "%";
      peak.title = "key group " + one.key_group + ": " + number(one.rows) + " rows";
      strip.append(peak);
    }
    strip.setAttribute("role", "img");
    strip.setAttribute("aria-label", "Rows of " + uid + " by slot: " + skew.slots.map(one => "slot " + one.slot + " " + number(Math.round(one.rows_mean)) + " per key group").join(", "));
    return [element("span", uid, "soft"), strip];
  });
  if (steps.length > STRIPS) strips.push(element("p", "The " + STRIPS + " keyed steps with most skew; the table has all " + number(steps.length) + ".", "soft"));
  at("map").replaceChildren(...strips);
}
at("range").addEventListener("change", () => drawn && drawn.to ? drawCharts(drawn) : refreshHistory().catch(() => {}));
addEventListener("resize", () => { if (drawn) drawCharts(drawn); });
at("samples").closest("details").addEventListener("toggle", scrollable);
