// `statefulspark ui` passes the token in the fragment, which browsers send to no server; it leaves the address bar and the history at once.
const given = new URLSearchParams(location.hash.slice(1)).get("token");
if (given) {
  sessionStorage.setItem(KEY, given);
  history.replaceState(null, "", location.pathname);
}
if (location.protocol === "file:") showStored(JSON.parse(at("stored").textContent)); else if (sessionStorage.getItem(KEY)) refresh(); else login(false);
