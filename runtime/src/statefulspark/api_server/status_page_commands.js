// Commands: each asks for confirmation, is sent once with an idempotency key, and is followed until it has ended.
const COMMANDS = {
  savepoint: {title: "Take a savepoint", text: () => "The job continues. You own the savepoint; the job never deletes it.", fields: ["target"], yes: "Take it",
    path: "v1/savepoints", body: () => ({target: at("target").value.trim() || null}), done: result => "savepoint taken: " + result.checkpoint.path},
  rescale: {title: "Rescale the job", text: status => "It runs with " + status.parallelism + " slots, and can run with 1 to " + number(status.max_parallelism) + ". Batches pause while the slots are replaced.",
    fields: ["parallelism"], yes: "Rescale", path: "v1/rescale", body: () => ({parallelism: Number(at("parallelism").value)}), done: result => "rescaled to " + result.status.parallelism + " slots"},
  stop: {title: "Stop the job", text: status => status.name + " stops after the current batch and keeps its state. Its driver, and with it this page, ends.", fields: ["how"], yes: "Stop the job",
    path: "v1/stop", body: () => ({savepoint: at("how").value === "savepoint", drain: at("how").value === "drain"}),
    done: result => "stopped" + (result.checkpoint ? "; state: " + result.checkpoint.path : "")},
};
let asked = null, busy = false, planning = 0;

function showCommands(status) {
  for (const name of Object.keys(COMMANDS)) at(name).disabled = busy || status.state !== "RUNNING";
}
function say(text, kind) {
  at("action").textContent = text;
  at("action").className = kind;
}
function planText(plan) {  // as `statefulspark rescale` says it
  if (plan.from_parallelism === plan.to_parallelism) return "The job already runs with " + number(plan.to_parallelism) + " slots.";
  const moved = number(plan.moved_key_groups) + " of " + number(plan.max_parallelism) + " key groups change slot";
  return moved + (plan.checkpoint === null ? "; their size is not known before the first checkpoint."
    : "; slots fetch " + bytes(plan.fetch_bytes) + ", delete about " + bytes(plan.cut_bytes) + " and copy about " + bytes(plan.merged_bytes) + " of it (checkpoint " + plan.checkpoint + ").");
}
async function showPlan() {  // the button waits for it, so nobody rescales without having seen what that does
  const mine = ++planning, wanted = at("parallelism");
  at("plan").hidden = at("plan-slots").hidden = true;
  at("confirm-yes").disabled = wanted.validity.valid;  // a number that cannot be is refused by the form
  if (!wanted.validity.valid) return;
  let plan = null, text;
  try {
    plan = await (await call("v1/rescale-plan?parallelism=" + encodeURIComponent(wanted.value), {signal: AbortSignal.timeout(10000)})).json();
    text = planText(plan);
  } catch (error) {
    text = "What it does is not known: " + error.message;
  }
  if (mine !== planning) return;  // another number, or another command
  at("plan").textContent = text;
  at("plan").hidden = at("confirm-yes").disabled = false;
  at("plan-slots").hidden = !(plan && plan.slots.length);
  const part = (groups, size) => groups ? number(groups) + ": " + bytes(size) : null;
  fill(at("plan-table"), [["slot", "number"], ["key groups"], ["opens"], ["fetches", "number"], ["deletes", "number"], ["copies", "number"]], (plan ? plan.slots : []).map(one => [
    one.slot, one.first + "-" + one.last, one.opened === null ? null : "slot " + one.opened, bytes(one.fetch_bytes), part(one.cut_key_groups, one.cut_bytes), part(one.merged_key_groups, one.merged_bytes)]));
}
function ask(name) {
  const command = COMMANDS[name];
  if (!last) return;
  asked = name;
  at("confirm-title").textContent = command.title;
  at("confirm-text").textContent = command.text(last);
  at("confirm-yes").textContent = command.yes;
  for (const field of ["target", "parallelism", "how"]) at(field + "-label").hidden = !command.fields.includes(field);
  at("parallelism").max = last.max_parallelism;
  at("parallelism").value = last.parallelism;
  at("parallelism").required = name === "rescale";
  at("parallelism").disabled = name !== "rescale";
  planning++;
  at("plan").hidden = at("plan-slots").hidden = true;
  at("confirm-yes").disabled = false;
  at("confirm").showModal();
  if (name === "rescale") showPlan();
}
async function follow(name) {
  const command = COMMANDS[name], random = crypto.getRandomValues(new Uint8Array(16)), key = Array.from(random, byte => byte.toString(16).padStart(2, "0")).join("");
  busy = true;
  showCommands(last);
  say(command.title + ": requested", "soft");
  try {
    const headers = {"Content-Type": "application/json", "Idempotency-Key": key}, body = JSON.stringify(command.body());
    let operation = await (await call(command.path + "?wait=false", {method: "POST", headers, body})).json();
    const started = performance.now();
    while (operation.state === "RUNNING") {
      say(command.title + ": running for " + span(performance.now() - started), "soft");
      await new Promise(resolve => setTimeout(resolve, 1000));
      operation = await (await call("v1/operations/" + encodeURIComponent(operation.id))).json();
    }
    if (operation.error) say(command.title + " failed: " + operation.error.reason + ": " + operation.error.message, "bad");
    else say(command.title + ": " + command.done(operation), "good");
  } catch (error) {
    say(command.title + (name === "stop" && error instanceof TypeError ? ": the driver has ended" : " failed: " + error.message), name === "stop" && error instanceof TypeError ? "soft" : "bad");
  }
  busy = false;
  if (last) showCommands(last);
}
for (const name of Object.keys(COMMANDS)) at(name).addEventListener("click", () => ask(name));
at("parallelism").addEventListener("input", showPlan);
at("confirm-no").addEventListener("click", () => at("confirm").close());
at("confirm-form").addEventListener("submit", event => {
  event.preventDefault();
  at("confirm").close();
  follow(asked);
});
