// The last log records, newest at the end. The list follows the newest one while it is scrolled to its end.
const LOG_LINES = 500, LOG_KINDS = {warning: "warn", error: "bad", critical: "bad"};
let logAfter = 0;

function forgetLog() {
  logAfter = 0;
  at("log").replaceChildren();
}
async function refreshLog() {
  const level = at("log-level").value;
  const answer = await (await call("v1/logs?records=" + LOG_LINES + "&after=" + logAfter + "&level=" + level)).json();
  if (level !== at("log-level").value) return;  // another level was chosen meanwhile
  if (answer.last < logAfter) { forgetLog(); return; }  // another driver answers: it counts from 1
  logAfter = answer.last;
  at("log-rest").hidden = !answer.elsewhere;
  at("log-rest").textContent = answer.elsewhere || "";
  const list = at("log"), follows = list.scrollHeight - list.scrollTop - list.clientHeight < 8;
  list.append(...answer.records.map(record));
  while (list.childElementCount > LOG_LINES) list.firstElementChild.remove();
  if (!list.childElementCount) list.append(element("p", "No records of this level yet.", "soft"));
  else if (list.childElementCount > 1 && list.firstElementChild.tagName === "P") list.firstElementChild.remove();
  if (follows && answer.records.length) list.scrollTop = list.scrollHeight;
}
function record(one) {
  const line = element("div", null, LOG_KINDS[one.level]), {exception, slot, uid, key_group, ...rest} = one.facts;
  const origin = [["slot", slot], ["key group", key_group], ["uid", uid]].filter(([, value]) => value !== undefined && value !== null);
  const named = Object.entries(rest).map(([name, value]) => name + "=" + (typeof value === "string" ? value : JSON.stringify(value)));
  line.append(element("span", one.timestamp.slice(11, 19), "soft"), " " + one.level.toUpperCase() + " ",
    origin.length ? "[" + origin.map(([name, value]) => name + " " + value).join(", ") + "] " : "", [one.event, ...named].join(" "));
  if (exception) {
    const more = element("details");
    more.append(element("summary", "stack trace"), element("pre", exception));
    line.append(more);
  }
  return line;
}
at("log-level").addEventListener("change", () => { forgetLog(); refreshLog().catch(() => {}); });
