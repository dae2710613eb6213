// What the page shows, and the part of its address behind "#" that carries it.

export const state = {
  source: "",
  target: "",
  text: "",
  /** The pieces of the beginning that the user fixed, by the number of the sentence. */
  kept: new Map(),
  view: "all",
  least: 0.1,
  mine: "",
  tea: "",
};

/** Read the address; what it does not name stays as it is. */
export function readAddress() {
  const given = new URLSearchParams(location.hash.slice(1));
  for (const name of ["text", "mine", "tea"]) if (given.has(name)) state[name] = given.get(name);
  if (["all", "mine", "twins"].includes(given.get("view"))) state.view = given.get("view");
  const least = Number(given.get("least"));
  if (least > 0 && least < 1) state.least = least;
  [state.source, state.target] = [given.get("from") ?? state.source, given.get("to") ?? state.target];
  state.kept = new Map(given.getAll("keep").map((one) => {
    const [number, ...prefix] = one.split(" ");
    return [Number(number), prefix];
  }).filter(([number, prefix]) => number >= 0 && prefix.length));
}

/** Write it; going back in the browser leaves the page, as people expect who only typed. */
export function writeAddress() {
  const named = new URLSearchParams({ from: state.source, to: state.target });
  if (state.text) named.set("text", state.text);
  for (const [number, prefix] of state.kept) named.append("keep", [number, ...prefix].join(" "));
  named.set("view", state.view);
  if (state.view === "all") named.set("least", state.least);
  if (state.view === "mine" && state.mine) named.set("mine", state.mine);
  if (state.view === "twins" && state.tea) named.set("tea", state.tea);
  history.replaceState(null, "", `#${named}`);
}
