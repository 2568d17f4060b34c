// What the page knows, and where it is, which is in the address: ?q=… a text, ?qid=… a judged query, and
// &by=… in which order it was stepped to.

export const SHOWN = 10; // documents of a list at first

export const state = { model: null, asked: null, found: null, show: SHOWN, place: null, again: null, by: null, beside: "everyone", chosen: null };

export const shownDocuments = () => [...state.found.documents].sort((one, two) => one.rank - two.rank);

export function address(asked) {
  return `/?${new URLSearchParams(asked)}`;
}

export function askedFor() {
  const given = new URLSearchParams(location.search);
  if (given.get("qid")) return { qid: given.get("qid") };
  return given.get("q")?.trim() ? { q: given.get("q").trim() } : null;
}

export function go(asked) {
  const path = address(asked);
  if (path !== location.pathname + location.search) history.pushState(null, "", path);
  arrive();
}

/** Whether the address is that of the experiment: ?experiment. */
export const wantsExperiment = () => new URLSearchParams(location.search).has("experiment");

/** By which end one steps through judged queries, loss or gain; null if one does not. */
export function stepsBy() {
  const by = new URLSearchParams(location.search).get("by");
  return by === "loss" || by === "gain" ? by : null;
}

/** Show what the address asks for; `page.js` does it. */
export const arrive = () => dispatchEvent(new Event("arrive"));
