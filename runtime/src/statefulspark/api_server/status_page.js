"use strict";
const KEY = "statefulspark-token", PERIOD_MS = 2000, WINDOW_MS = 10000, ANSWER_MS = 8000, SLOTS_SHOWN = 20, PARTITIONS_SHOWN = 5;
const at = id => document.getElementById(id);
let seen = [], timer = 0, last = null, noted = "", seenAt = 0;

function element(tag, text, kind) {
  const made = document.createElement(tag);
  if (text !== undefined && text !== null) made.textContent = text;  // textContent: what the job says is never markup
  if (kind) made.className = kind;
  return made;
}
const number = value => value.toLocaleString("en-US");
const clock = ms => new Date(ms).toISOString().slice(11, 19) + " UTC";
const time = ms => {
  const date = new Date(ms);
  return ms === null ? "none yet" : isNaN(date) ? (ms > 0 ? "end of time" : "beginning of time") : date.toISOString().slice(0, 19).replace("T", " ") + " UTC";
};
function span(ms) {
  if (ms < 1000) return Math.max(0, Math.round(ms)) + " ms";
  if (ms < 60000) return (ms / 1000).toFixed(1) + " s";
  if (ms < 3600000) return Math.floor(ms / 60000) + " min " + Math.floor(ms % 60000 / 1000) + " s";
  if (ms >= 172800000) return number(Math.floor(ms / 86400000)) + " days";
  return Math.floor(ms / 3600000) + " h " + Math.floor(ms % 3600000 / 60000) + " min";
}
function bytes(count) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  while (count >= 1024 && unit < units.length - 1) { count /= 1024; unit++; }
  return count.toFixed(unit ? 1 : 0) + " " + units[unit];
}
function fill(table, columns, rows, empty) {
  const head = element("tr");
  for (const [title, kind] of columns) { const cell = element("th", title, kind); cell.scope = "col"; head.append(cell); }
  const body = rows.map(row => {
    const line = element("tr");
    row.forEach((cell, i) => {
      const field = element("td", cell instanceof Node ? null : cell ?? "-", columns[i][1]);
      if (cell instanceof Node) field.append(cell);
      line.append(field);
    });
    return line;
  });
  if (!body.length) { const line = element("tr"), field = element("td", empty, "soft"); field.colSpan = columns.length; line.append(field); body.push(line); }
  table.replaceChildren(head, ...body);
}
function range(slot, groups) {
  const track = element("div", null, "track"), bar = element("div", null, "bar");
  bar.style.left = 100 * slot.first / groups + "%";
  bar.style.width = 100 * (slot.last - slot.first + 1) / groups + "%";
  if (slot.state === "LOST") bar.classList.add("lost"); else if (slot.state !== "RUNNING") bar.classList.add("wait");
  track.title = "key groups " + slot.first + " to " + slot.last + " of " + groups;
  track.append(bar);
  return track;
}
function level(part, whole, title, most = 1) {
  if (part === null || part === undefined || !whole) return null;
  const share = part / whole, box = element("div", null, "level"), fill = element("i");
  if (share > most) box.classList.add("bad"); else if (share > .9 * most) box.classList.add("warn");
  fill.style.width = Math.min(100, 100 * share) + "%";
  box.title = title;
  box.append(fill, element("span", bytes(part) + " of " + bytes(whole)));
  return box;
}
const percent = share => share === null || share === undefined ? null : (100 * share).toFixed(share > .999 && share < 1 ? 2 : 1) + " %";
const downloaded = slot => slot.restoring ? " (" + bytes(slot.restoring.downloaded_bytes) + " of " + bytes(slot.restoring.total_bytes) + ")" : "";
const inFlight = one => one.slots_done + " of " + one.slots + (one.total_bytes ? ", " + bytes(one.uploaded_bytes) + " of " + bytes(one.total_bytes) : "");
function notes(status) {  // problems, the worst first
  const found = [], note = (kind, text) => found.push([kind, text]), now = Date.now();
  if (status.failing)
    note("bad", "Batches fail: " + status.failing.failures + (status.failing.failures > 1 ? " times in a row" : " time") + " since " + time(status.failing.since_ms)
      + ". The last error: " + status.failing.error.reason + ": " + status.failing.error.message);
  for (const slot of status.slots) {
    if (slot.state !== "RUNNING") note(slot.state === "LOST" ? "bad" : "warn", "Slot " + slot.slot + " is " + slot.state.toLowerCase() + downloaded(slot) + ": its key groups wait.");
    if (slot.restarts > 2) note("warn", "Slot " + slot.slot + " was started again " + slot.restarts + " times in this attempt.");
    const memory = slot.memory;
    if (!memory) continue;
    if (memory.pss_bytes > memory.process_budget_bytes)
      note("bad", "Slot " + slot.slot + " takes " + bytes(memory.pss_bytes) + ", more than the " + bytes(memory.process_budget_bytes) + " its process is sized for.");
    if (memory.managed_bytes && memory.used_bytes > 1.1 * memory.managed_bytes)
      note("bad", "Slot " + slot.slot + " has " + bytes(memory.used_bytes) + " of native memory, more than its " + bytes(memory.managed_bytes) + ".");
    if (memory.managed_bytes && memory.managed_bytes < memory.budget_bytes)
      note("warn", "Slot " + slot.slot + " uses " + bytes(memory.managed_bytes) + " of its " + bytes(memory.budget_bytes) + " of managed memory, as tuned (revision " + memory.revision + ").");
  }
  const rows = status.slots.map(slot => slot.rows_in), most = Math.max(...rows, 0), mean = rows.reduce((sum, each) => sum + each, 0) / (rows.length || 1);
  if (rows.length > 1 && mean > 1000 && most > 2 * mean) note("warn", "Slot " + status.slots[rows.indexOf(most)].slot + " has had " + (most / mean).toFixed(1) + " times the rows of the average slot.");
  if (status.failed_checkpoints) note("warn", number(status.failed_checkpoints) + " checkpoints of this driver have failed.");
  const last = status.last_checkpoint;
  if (last && status.state === "RUNNING" && now - last.completed_ms > 3600000) note("warn", "The last checkpoint is " + span(now - last.completed_ms) + " old.");
  return found.sort(([one], [other]) => one === other ? 0 : one === "bad" ? -1 : 1);
}
const MARGIN = 10;  // seconds of input that a job may be behind and still keeps up
function sourceName(text) {  // as people know it: topic or path
  const kafka = /^Kafka\w*\[(?:Subscribe|SubscribePattern|Assign)\[(.*)\]\]$/s.exec(text), files = /^FileStreamSource\[(.*)\]$/s.exec(text);
  return kafka ? kafka[1] + " (Kafka)" : files ? files[1] + " (files)" : text;
}
function trend(status) {  // rows per second that the sources deliver, and by which the backlog grows: means over the last ten seconds
  const now = performance.now(), arrived = status.sources.reduce((sum, one) => sum + (one.input_rows_per_second || 0), 0), behind = status.lag ? status.lag.rows : null;
  if (seen.length && status.committed_batches < seen[seen.length - 1].batches) seen = [];
  seen.push({now, batches: status.committed_batches, arrived: status.idle ? 0 : arrived, behind, sent: status.output_rows});
  while (seen.length > 2 && now - seen[1].now >= WINDOW_MS) seen.shift();
  const first = seen[0], passed = (now - first.now) / 1000;
  return {sent: passed < 1 ? null : Math.max(0, status.output_rows - first.sent) / passed, arriving: status.sources.length ? seen.reduce((sum, one) => sum + one.arrived, 0) / seen.length : null,
    growing: passed < 4 || behind === null || first.behind === null ? null : (behind - first.behind) / passed};
}
function headline(status, {arriving, growing}) {  // the state in one sentence
  const waits = status.slots.filter(slot => slot.state !== "RUNNING"), line = text => text.split("\n")[0];
  if (status.error) return ["bad", "failed: " + line(status.error.reason + ": " + status.error.message)];
  if (status.state !== "RUNNING") return ["soft", status.state.toLowerCase() + " since " + time(status.since_ms)];
  if (status.failing) return ["bad", "failing since " + clock(status.failing.since_ms) + ": " + line(status.failing.error.reason + ": " + status.failing.error.message)];
  if (waits.length) return ["warn", "waiting for " + (waits.length > 1 ? waits.length + " slots" : "slot " + waits[0].slot + ", which is " + waits[0].state.toLowerCase() + downloaded(waits[0]))];
  if (status.lag && status.lag.rows !== null) {
    const rows = status.lag.rows, amount = short(rows) + " rows" + (arriving > 0 && rows ? ", " + span(1000 * rows / arriving) + " of input" : "");
    if (!rows) return ["good", "keeping up: all input is read"];
    if (rows <= MARGIN * (arriving || 0)) return ["good", "keeping up: " + amount + " to read"];
    return growing > 0 ? ["bad", "falling behind: " + amount + " to read" + ", growing by " + short(growing) + " rows/s"]
      : ["warn", (growing < 0 ? "catching up: " : "behind: ") + amount + " to read" + (growing < 0 ? ", shrinking by " + short(-growing) + " rows/s" : "")];
  }
  if (status.idle) return ["good", "idle: all input is read"];
  return status.batch < 0 ? ["soft", "started: no batch yet"] : ["good", "running" + (status.sources.length ? "; the sources do not report how far behind it is" : "")];
}
function usualInterval() {  // between the last checkpoints
  const ends = (drawn ? drawn.snapshots : []).filter(one => one.kind === "checkpoint" && one.error === null).slice(-9).map(one => one.ended_ms);
  const gaps = ends.slice(1).map((end, i) => end - ends[i]).sort((one, other) => one - other);
  return gaps.length ? ", every " + span(gaps[Math.floor(gaps.length / 2)]) : "";
}
function cells(place, facts) {
  at(place).replaceChildren(...facts.map(([name, value, kind]) => { const box = element("div"); box.append(element("b", value, kind), element("span", name)); return box; }));
}
function show(status, checkpoints) {
  document.title = status.name + " - " + status.state.toLowerCase();
  at("name").textContent = status.name;
  at("state").textContent = status.state;
  at("state").className = "pill " + (status.failing ? "bad" : {RUNNING: "good", FINISHED: "good", FAILED: "bad"}[status.state] || "warn");
  at("since").textContent = "for " + span(Date.now() - status.since_ms);
  at("error").hidden = !status.error;
  if (status.error) at("error").textContent = status.error.reason + ": " + status.error.message;
  const now = Date.now(), moving = trend(status), [mood, sentence] = headline(status, moving), lag = status.lag || {};
  at("headline").textContent = sentence;
  at("headline").className = mood;
  const late = Object.values(status.watermarks).filter(ms => ms !== null && !isNaN(new Date(ms))).map(ms => now - ms);
  const failures = (drawn ? drawn.events : []).filter(one => one.reason && one.last_ms > now - 3600000).reduce((sum, one) => sum + one.count, 0);
  cells("facts", [
    ["rows behind the sources", lag.rows === null || lag.rows === undefined ? "not reported" : number(lag.rows)],
    ["rows per second from the sources", moving.arriving === null ? "..." : short(moving.arriving)],
    ["watermark behind the clock", late.length ? span(Math.max(...late)) : "none yet"],
    ["last checkpoint" + usualInterval(), status.last_checkpoint ? span(now - status.last_checkpoint.completed_ms) + " ago" : "none yet"],
    ["failures in the last hour", number(failures), failures ? "warn" : ""],
    ...(status.pending_snapshot ? [[status.pending_snapshot.kind + " " + status.pending_snapshot.id + " (slots done)", inFlight(status.pending_snapshot)]] : []),
  ]);
  showPipeline(status, moving);
  cells("more", [
    ["rows into keyed steps", number(status.input_rows)], ["rows out of keyed steps", number(status.output_rows)], ["last batch", status.batch < 0 ? "none yet" : number(status.batch)],
    ["slots / key groups", status.parallelism + " / " + number(status.max_parallelism)], ["driver start (attempt)", number(status.attempt)], ["failed checkpoints", number(status.failed_checkpoints)],
  ]);
  fill(at("slots"), [["slot"], ["key groups"], ["range"], ["state"], ["epoch", "number"], ["restarts", "number"], ["executor"], ["host"], ["pid", "number"]],
    status.slots.map(slot => [slot.slot, slot.first + "-" + slot.last, range(slot, status.max_parallelism),
      element("span", slot.state + downloaded(slot), slot.state === "RUNNING" ? "good" : slot.state === "LOST" ? "bad" : "warn"),
      slot.epoch, slot.restarts, slot.executor, slot.host, slot.pid]), "No slot is running.");
  const problems = notes(status);
  if (JSON.stringify(problems) !== noted) at("notes").replaceChildren(...problems.map(([kind, text]) => element("li", text, kind)));  // a live region
  noted = JSON.stringify(problems);
  fill(at("memory"), [["slot"], ["process (PSS / budget)"], ["native (used / managed)"], ["write buffers"], ["store", "number"], ["rows", "number"], ["cache hits", "number"]],
    status.slots.map(slot => {
      const memory = slot.memory || {};
      return [slot.slot, level(memory.pss_bytes, memory.process_budget_bytes, "resident " + bytes(memory.rss_bytes || 0) + ", before the store was opened " + bytes(memory.baseline_bytes || 0)),
        level(memory.used_bytes, memory.managed_bytes, "block cache " + bytes(memory.cache_bytes || 0) + ", sized for " + bytes(memory.budget_bytes || 0)),
        level(memory.write_buffer_used_bytes, memory.write_buffer_bytes, "may be half more while they are flushed", 1.5),
        slot.store_bytes === null ? null : bytes(slot.store_bytes), number(slot.rows_in), percent(slot.cache_hit_ratio)];
    }), "No slot is running.");
  fill(at("skew"), [["keyed step"], ["fullest / mean", "number"], ["fullest key groups (slot): rows in the window"]],
    Object.entries(status.skew).map(([uid, skew]) => [uid, element("span", skew.ratio.toFixed(1), skew.ratio > 10 ? "warn" : ""),
      skew.top.map(one => one.key_group + " (" + one.slot + "): " + number(one.rows)).join(", ")]), "No keyed step has had rows.");
  fill(at("watermarks"), [["keyed step"], ["watermark"], ["behind the clock", "number"]],
    Object.entries(status.watermarks).map(([uid, ms]) => [uid, time(ms), ms === null || isNaN(new Date(ms)) ? null : span(Date.now() - ms)]), "No keyed step has a watermark.");
  showCheckpoints(checkpoints, "completed_ms", "None yet.");
}
function showCheckpoints(done, end, none) {  // the newest first; their end has another name in the history
  fill(at("checkpoints"), [["id"], ["kind"], ["batch", "number"], ["completed"], ["took", "number"], ["size", "number"], ["uploaded", "number"], ["path", "path"]],
    done.slice().reverse().map(one => [one.id, (one.format === "canonical" ? "canonical " : "") + one.kind, one.batch, time(one[end]), span(one.duration_ms), bytes(one.size_bytes),
      bytes(one.uploaded_bytes), one.path]), none);
}
function showPipeline(status, {arriving, sent}) {  // sources, keyed steps, output
  const now = Date.now(), states = drawn && drawn.samples.length ? drawn.samples[drawn.samples.length - 1].states : {};
  const node = ([title, ...facts]) => { const box = element("div"); box.append(element("b", title), ...facts.filter(Boolean).map(fact => element("span", fact))); return box; };
  const rows = count => count === null ? null : short(count) + " rows/s";
  const step = ([uid, ms]) => [uid, ms === null ? "no watermark yet" : isNaN(new Date(ms)) ? "watermark: " + time(ms) : "watermark " + span(now - ms) + " behind the clock",
    uid in states ? bytes(states[uid]) + " of state" : null, status.timers[uid] && status.timers[uid].number !== null ? number(status.timers[uid].number) + " timers" : null,
    status.skew[uid] && status.skew[uid].ratio > 2 ? "fullest key group: " + status.skew[uid].ratio.toFixed(1) + " times the mean" : null];
  const groups = [
    ["sources", status.sources.map(one => [sourceName(one.description), rows(one.input_rows_per_second), one.backlog_rows === null ? null : short(one.backlog_rows) + " rows to read"])],
    ["keyed steps", Object.entries(status.watermarks).map(step)], ["output", [["rows of all steps", rows(sent)]]],
  ].filter(([, nodes]) => nodes.length);
  at("pipeline").replaceChildren(...groups.map(([title, nodes]) => { const box = element("div", null, "group"); box.append(element("span", title, "soft"), ...nodes.map(node)); return box; }));
}
function showReported(status) {  // what sources and functions report
  const amount = value => value === null ? "-" : Math.abs(value) >= 1e15 ? value.toExponential(3) : Number.isInteger(value) ? number(value) : value.toPrecision(5).replace(/\.?0+$/, "");
  const per = value => value === null ? null : short(value);
  const behind = one => [[one.backlog_rows, "rows"], [one.backlog_files, "files"]].filter(([count]) => count !== null).map(([count, unit]) => number(count) + " " + unit)
    .concat(one.backlog_bytes === null ? [] : [bytes(one.backlog_bytes)]).join(", ") || element("span", "unknown: not reported by this source", "soft");
  const worst = one => one.partitions.filter(part => part.rows > 0).slice(0, PARTITIONS_SHOWN).map(part => part.topic + " " + part.partition + ": " + number(part.rows)).join(", ");
  fill(at("sources"), [["source", "path"], ["rows of the last batch", "number"], ["rows/s arrived", "number"], ["rows/s processed", "number"], ["behind", "number"], ["most in (topic, partition)", "path"], ["its own metrics", "path"]],
    status.sources.map(one => [sourceName(one.description), number(one.input_rows), per(one.input_rows_per_second), per(one.processed_rows_per_second), behind(one), worst(one),
      Object.entries(one.metrics).map(([name, value]) => name + " " + amount(value)).join(", ")]), "No batch has run yet.");
  const rows = Object.entries(status.user_metrics).flatMap(([uid, metrics]) => metrics.map(metric => [uid, metric]));
  const said = metric => metric.kind === "distribution" ? amount(metric.value) + " values" + (metric.value ? ", mean " + amount(metric.sum / metric.value) + ", " + amount(metric.min) + " to " + amount(metric.max) : "")
    : metric.kind === "gauge" && metric.min !== metric.max ? amount(metric.min) + " to " + amount(metric.max) : metric.kind === "gauge" ? amount(metric.max) : amount(metric.value);
  const bySlot = values => values.slice(0, SLOTS_SHOWN).map(([slot, value]) => slot + ": " + amount(value)).join(", ")
    + (values.length > SLOTS_SHOWN ? ", and " + number(values.length - SLOTS_SHOWN) + " more" : "");
  fill(at("user"), [["keyed step", "name"], ["metric", "name"], ["kind"], ["value", "number"], ["by slot", "path"]],
    rows.map(([uid, metric]) => [uid, metric.name, metric.kind, said(metric), bySlot(Object.entries(metric.slots))]),
    "No function has registered a metric (runtime_context.get_metrics_group()).");
  at("user-rest").hidden = !status.user_metrics_left_out;
  at("user-rest").textContent = number(status.user_metrics_left_out) + " further metrics are in /metrics.";
}
function scrollable() {  // what does not fit can be scrolled with the arrow keys too
  for (const box of document.querySelectorAll(".scroll")) {
    box.tabIndex = box.scrollWidth > box.clientWidth || box.scrollHeight > box.clientHeight ? 0 : -1;
    box.classList.toggle("wide", box.scrollWidth > box.clientWidth);
  }
}
async function call(path, options = {}) {
  const headers = {Authorization: "Bearer " + sessionStorage.getItem(KEY), ...options.headers};
  const answer = await fetch(path, {signal: AbortSignal.timeout(options.method ? 60000 : ANSWER_MS), ...options, headers, cache: "no-store", credentials: "omit", mode: "same-origin", redirect: "error"});
  if (answer.status === 401) { sessionStorage.removeItem(KEY); login(true); throw new Error("refused"); }
  if (!answer.ok) throw new Error(await reason(answer));
  return answer;
}
async function reason(answer) {
  try { return (await answer.json()).error.message; } catch (error) { return "HTTP " + answer.status; }
}
function freshness(text, bad) {  // announced when it is a problem, and not every two seconds
  at("fresh").setAttribute("aria-live", bad ? "polite" : "off");
  if (at("fresh").textContent !== text) at("fresh").textContent = text;
  at("fresh").className = bad ? "bad" : "soft";
}
function unreachable(error) {  // what is shown is old, and no command can be sent
  document.body.classList.add("gone");
  document.title = (last ? last.name : "statefulspark") + " - unreachable";
  at("state").textContent = "UNREACHABLE";
  at("state").className = "pill soft";
  at("since").textContent = seenAt ? "last seen " + clock(seenAt) : "";
  at("headline").textContent = "";
  for (const name of Object.keys(COMMANDS)) at(name).disabled = true;
  freshness("the driver does not answer (" + error.message + "). `statefulspark status` on its machine, or the events of its pod, say how it ended.", true);
}
async function refresh() {
  try {
    const [status, list] = await Promise.all([call("v1/status"), call("v1/checkpoints").catch(() => null)]);
    last = await status.json();
    seenAt = Date.now();
    document.body.classList.remove("gone");
    show(last, list ? (await list.json()).checkpoints : []);
    showMap(last);
    showReported(last);
    showCommands(last);
    at("login").hidden = true;
    at("page").hidden = false;  // charts are as wide as the page, which has no width while it is hidden
    scrollable();
    await Promise.all([refreshHistory(), refreshLog()]);
    freshness("as of " + clock(Date.now()), false);
  } catch (error) {
    if (!sessionStorage.getItem(KEY)) return;
    at("page").hidden = false;
    unreachable(error);
  }
  clearTimeout(timer);
  timer = setTimeout(refresh, PERIOD_MS);
}
function login(refused) {
  clearTimeout(timer);
  seen = [];
  last = null;
  forgetHistory();
  forgetLog();
  at("page").hidden = true;
  at("login").hidden = false;
  at("refused").hidden = !refused;
  at("token").focus();
}
at("form").addEventListener("submit", event => {
  event.preventDefault();
  sessionStorage.setItem(KEY, at("token").value.trim());
  at("token").value = "";
  clearTimeout(timer);
  refresh();
});
at("leave").addEventListener("click", () => { sessionStorage.removeItem(KEY); login(false); });
at("reference").addEventListener("click", async () => {
  const page = await (await call("docs")).blob();
  window.open(URL.createObjectURL(page), "_blank");
});
