// Stepping through judged queries, by what the model gains or loses on each beside the order that it is compared with.

import { ask, Problem } from "./asking.js";
import { inOther, RUN_FEATURE } from "./beside.js";
import { at, counted, number } from "./elements.js";
import { go, state } from "./state.js";
import { attempt, busy, say } from "./views.js";

let known = null; // what the service said last

/** What the service says of the present model; it computes that when it is first asked. */
async function differences() {
  if (known?.model !== state.model.version) known = await ask("steps", "/v1/differences");
  return known;
}

/** The queries from the greatest loss to the greatest gain, or the other way round; the order they are compared with. */
function inOrder({ orders, queries }) {
  const against = [state.chosen, state.beside].find((each) => orders.includes(each)) ?? orders[0];
  const sign = at("by").value === "gain" ? -1 : 1;
  const gains = queries.map(({ id, value, others }) => ({ id, value, other: others[against], gain: value - others[against] }));
  return { against, sorted: gains.sort((one, two) => sign * (one.gain - two.gain)) };
}

function step(way) {
  return attempt(async () => {
    busy(true);
    const found = await differences();
    busy(false);
    const { against, sorted } = inOrder(found);
    const here = sorted.findIndex((each) => each.id === state.asked?.qid);
    const next = here < 0 && way < 0 ? sorted.length - 1 : here + way;
    if (next < 0 || next >= sorted.length) return say(`There is no ${way > 0 ? "further" : "earlier"} query.`);
    state.chosen = against;
    scrollTo(0, 0);
    return go({ qid: sorted[next].id, by: at("by").value });
  });
}

/** Where this query stands among them, once they are known or where the address asks for it. */
export async function showStanding() {
  const place = state.place;
  at("by").value = state.by ?? at("by").value;
  at("standing").replaceChildren();
  if (state.asked?.qid === undefined || (state.by === null && known === null)) return;
  let found;
  try {
    found = await differences();
  } catch (error) {
    if (error instanceof Problem) at("standing").textContent = error.message;
    else if (error.name !== "AbortError") throw error;
    return;
  }
  const { against, sorted } = inOrder(found);
  const here = sorted.findIndex((each) => each.id === state.asked?.qid);
  if (place !== state.place || here < 0 || against !== state.beside) return;
  const { value, other, gain } = sorted[here];
  const all = found.queries.length === found.judged_queries ? "" : ` compared, out of ${found.judged_queries.toLocaleString("en")}`;
  at("standing").replaceChildren(`${here + 1} of ${counted(sorted.length, "query", "queries")}${all}: ${found.measure.toUpperCase()} `,
    number(value), ` by the model, `, number(other), ` ${inOther()}, `, gained(gain));
}

function gained(gain) {
  const made = number(gain, { sign: true });
  made.className = gain > 0 ? "gain" : gain < 0 ? "loss" : "";
  return made;
}

/** Whether there is anything to step through: judged queries, and an order beside the model's. */
export function showSteps() {
  const { judged_queries: judged, per_query: local, feature_names: names } = state.model;
  const can = judged > 0 && (local || (names ?? []).some((name) => RUN_FEATURE.test(name)));
  at("steps").hidden = !can;
  document.querySelector(".keys .stepping").hidden = !can;
}

export function watchSteps() {
  at("next").addEventListener("click", () => step(1));
  at("previous").addEventListener("click", () => step(-1));
  at("by").addEventListener("change", () => {
    state.asked = null; // the other order begins at its first
    step(1);
  });
  document.addEventListener("keydown", (event) => {
    const way = { n: 1, p: -1 }[event.key];
    const typing = event.target.closest?.("input, select, textarea, dialog");
    if (!way || typing || event.ctrlKey || event.metaKey || event.altKey || !at("steps").checkVisibility()) return;
    event.preventDefault();
    step(way);
  });
}
