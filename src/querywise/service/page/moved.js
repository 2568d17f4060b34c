// How judged queries moved this query's vector, and what that changed among the documents nearest to it.

import { ask, forget, Problem } from "./asking.js";
import { at, largest, make, number, unseen } from "./elements.js";
import { panel, teacher } from "./own.js";
import { state } from "./state.js";

const UNMOVED = "similarity.plain"; // a feature of models whose query vectors learned
const DEEP = 100; // documents that have a rank

/** After what was found, so that nothing waits for it; an answer that does not come leaves the part out. */
export async function showMoved() {
  const { found, model } = state;
  at("moved").hidden = true;
  forget("moved");
  if (!found.query.text || found.without_vectors || !model.searches || !(model.feature_names ?? []).includes(UNMOVED)) return;
  let shift;
  try {
    ({ shift } = await ask("moved", "/v1/vector", { query: { text: found.query.text }, explain: true }));
  } catch (error) {
    if (error instanceof Problem || error.name === "AbortError") return;
    throw error;
  }
  if (shift === null || state.found !== found) return;
  const { cosine, pulls, gained, lost } = shift;
  at("moved-lead").replaceChildren("Its vector went to where the answers of judged queries like it are. The cosine to where it was is ",
    number(cosine), gained.length ? "." : "; the ten documents nearest to it are the same.");
  const most = largest(pulls.map((each) => each.share));
  panel("pulls", "Judged queries that moved it", "Share is that of the whole shift; below 0 a query held it back.",
    ...(pulls.length ? [make("ol", { class: "neighbours" }, ...pulls.map(({ query, similarity, share }) =>
      teacher(query, [["cosine ", number(similarity)], ["share ", number(share, { sign: true, percent: true })]], share, most)))] : []));
  panel("shifted", "Documents gained and lost", "Among the ten nearest, by vectors alone and of the whole index: the rank before, and now.",
    ...(gained.length || lost.length ? [make("ol", { class: "neighbours" },
      ...gained.map((each) => shifted(each, "up", "gained")), ...lost.map((each) => shifted(each, "down", "lost")))] : []));
  at("moved").hidden = false;
}

const place = (rank) => rank === null ? `below ${DEEP}` : String(rank);

const shifted = ({ id, title, rank, rank_plain: before }, way, said) => make("li", {},
  make("p", { class: "head" }, make("span", { text: title })),
  make("p", { class: "facts" }, make("code", { text: id })),
  make("span", { class: `move ${way}` }, unseen(`${said}, rank `), `${place(before)} → ${place(rank)}`));
