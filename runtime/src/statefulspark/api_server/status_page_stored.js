// A job that has ended, as `statefulspark ui` keeps it in a file: what it stored of its past, its last log records, and how to resume.
function showStored(kept) {
  const {samples, snapshots, events} = kept.history, done = snapshots.filter(one => one.error === null), lastSample = samples[samples.length - 1], checkpoint = done[done.length - 1];
  document.body.classList.add("stored");
  document.title = kept.name + " - " + (kept.state || "history").toLowerCase();
  at("page").hidden = false;
  at("name").textContent = kept.name;
  at("state").textContent = kept.state || "HISTORY";
  at("state").className = "pill " + ({FINISHED: "good", FAILED: "bad", KILLED: "bad"}[kept.state] || "soft");
  at("since").textContent = kept.ended_ms ? "ended " + time(kept.ended_ms) : lastSample ? "stored until " + time(lastSample.to_ms) : "";
  at("headline").textContent = kept.advice || "";
  at("error").hidden = !kept.error;
  at("error").textContent = kept.error ? kept.reason + ": " + kept.error : "";
  at("notes").replaceChildren(...[["State", kept.directory], ["Manifest", kept.manifest], ["Spark's log", kept.log_file]].filter(([, text]) => text).map(([name, text]) => element("li", name + ": " + text, "soft")));
  const failures = samples.reduce((sum, one) => sum + one.failures, 0);
  cells("facts", [["rows into keyed steps", number(samples.reduce((sum, one) => sum + one.rows_in, 0))], ["rows out of keyed steps", number(samples.reduce((sum, one) => sum + one.rows_out, 0))],
    ["failures", number(failures), failures ? "warn" : ""], ["last checkpoint or savepoint", checkpoint ? checkpoint.id + " at " + clock(checkpoint.ended_ms) : "none"],
    ["slots at the end", lastSample ? number(lastSample.slots) : "-"]]);
  at("range").value = "0";
  drawn = {samples, snapshots, events, to: lastSample ? lastSample.to_ms : kept.ended_ms || Date.now()};
  drawCharts(drawn);
  showFailedSnapshots(snapshots);
  showEvents(events);
  showCheckpoints(done.slice(-20), "ended_ms", "None.");
  at("log").replaceChildren(...(kept.records.length ? kept.records.map(record) : [element("p", "This machine has kept no log records.", "soft")]));
  at("log").scrollTop = at("log").scrollHeight;
  at("log-level").parentElement.hidden = true;
  scrollable();
}
