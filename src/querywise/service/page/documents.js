// A document in one of the two lists.

import { before, EVERYONE, inOther, NOTHING } from "./beside.js";
import { counted, make, unseen } from "./elements.js";
import { judged } from "./judging.js";
import { state } from "./state.js";
import { marked } from "./texts.js";
import { openWhy } from "./why.js";

/** A document in one of the two lists; `next` is the one below it, where it can be asked why. */
export function listed(found, side, next) {
  const own = side === "ours";
  const words = make("div", { class: "words" },
    make("p", { class: "head" }, make("span", { class: "title", text: found.title }), graded(found)),
    found.title === found.id ? null : make("p", { class: "id", text: found.id }),
    found.snippet ? make("p", { class: "snippet" }, ...marked(found.snippet, state.found.query.text)) : null,
  );
  const ask = next && make("button", {
    type: "button", class: "ask", text: "why?", "aria-label": `Why is ${found.title} above ${next.title}?`,
    onclick: () => openWhy(found.id, next.id),
  });
  return make("li", { class: "doc", tabindex: "-1", "data-id": found.id },
    make("span", { class: "rank", text: own ? found.rank : before(found) }),
    words,
    state.beside === NOTHING ? null : own ? movement(found) : leaving(found),
    judged(found),
    ask ?? null,
  );
}

function graded({ grade }) {
  if (grade === null) return null;
  return make("span", { class: grade > 0 ? "grade good" : "grade" },
    unseen(`judged ${grade}`), make("span", { "aria-hidden": "true", text: grade > 0 ? `★ ${grade}` : "☆ 0" }));
}

/** How far a document moved against its place in one model for all. */
function movement(found) {
  const { rank } = found;
  const by = before(found) - rank;
  if (by === Infinity) {
    const heard = `not found ${inOther()}`;
    return make("span", { class: "move up", title: heard }, make("span", { "aria-hidden": "true", text: "new" }), unseen(heard));
  }
  if (by === 0) return make("span", { class: "move" }, unseen("in the same place"));
  const fresh = before(found) > state.show;
  const where = state.beside === EVERYONE ? "in one model for all" : inOther();
  const heard = `${counted(Math.abs(by), "place")} ${by > 0 ? "up" : "down"} from ${before(found)} ${where}`;
  return make("span", { class: `move ${by > 0 ? "up" : "down"}`, title: heard },
    make("span", { "aria-hidden": "true", text: `${by > 0 ? "▲" : "▼"} ${Math.abs(by)}` }),
    fresh ? make("span", { class: "new", "aria-hidden": "true", text: "new" }) : null,
    unseen(fresh ? `${heard}, new in this list` : heard));
}

/** In the other list: where a document went that is no longer among the first. */
function leaving({ rank }) {
  if (rank <= state.show) return null;
  const heard = `${rank} in this query’s model, not among the first ${state.show}`;
  return make("span", { class: "move gone", title: heard }, make("span", { "aria-hidden": "true", text: `→ ${rank}` }), unseen(heard));
}
