// What is particular to this query's model.

import { at, bar, bars, counted, full, kind, largest, legend, make, number, unseen } from "./elements.js";
import { feature } from "./features.js";
import { address, state } from "./state.js";

export function showOwn() {
  const { explanation } = state.found;
  const remark = explanation.remark ? ` About this query: ${explanation.remark}.` : "";
  at("own-lead").textContent = origin(explanation) + remark;
  showNeighbours(explanation);
  showShares(explanation);
  showDepartures(explanation);
}

/** Where the model that answered comes from, in a sentence. */
function origin({ is_global: common, neighbours, models, counts, note }) {
  if (common && note) return `The global model answers this query: ${note}.`;
  if (common && neighbours.length) {
    return "The global model answers this query: its neighbours teach nothing, for none has a better and a worse document.";
  }
  if (common && models.length) return "The global model answers this query: no stored model counts for it.";
  if (common) return "The global model answers this query: no training query that could teach it a model of its own is near enough.";
  if (counts.neighbours && models.length) {
    return `It is answered by ${counted(counts.models, "ranker")}, one of them trained on ` +
      `${counted(counts.neighbours, "training query", "training queries")} near it.`;
  }
  if (counts.neighbours) {
    return `Its model was trained on ${counted(counts.neighbours, "training query", "training queries")} near it.`;
  }
  const [first] = models;
  if (first?.weight === 1) {
    return `Model ${first.model + 1} of ${counts.models} stored ones answers it, which learned from ` +
      `${counted(first.queries, "training query", "training queries")}.`;
  }
  if (first) return `Its model is a blend of ${counted(counts.models, "stored model")}.`;
  return state.model.ranker === "QueryClasses" ? "It is answered by the model of its class." : "The weights are fitted to this query’s documents.";
}

export function panel(id, title, about, ...content) {
  at(id).hidden = content.length === 0;
  at(id).replaceChildren(make("h3", { id: `${id}-title`, text: title }), make("p", { class: "about", text: about }), ...content);
}

function showNeighbours({ neighbours, counts }) {
  if (!neighbours.length) return panel("neighbours", "", "");
  const most = largest(neighbours.map((each) => each.pull));
  panel("neighbours", `Nearest training queries`,
    (neighbours.length < counts.neighbours ? `${neighbours.length} of ${counts.neighbours.toLocaleString("en")}. ` : "") +
      "Pull is a query’s share in where the model went; below 0 it went against it.",
    make("ol", { class: "neighbours" }, ...neighbours.map((each, place) => neighbour(each, state.found.neighbours[place], most))));
}

export function neighbour({ distance, pull }, known, most) {
  return teacher(known, [["distance ", number(distance)], ["pull ", number(pull, { sign: true, percent: true })]], pull, most);
}

/** A training query, facts about it, and a bar of how much it pulled. */
export function teacher(known, facts, pull, most) {
  const words = known.text || `Query ${known.id}`;
  const title = state.model.searches && known.text ? make("a", { href: address({ q: known.text }), text: words }) : make("span", { text: words });
  return make("li", {},
    make("p", { class: "head" }, title, kind(known)),
    make("p", { class: "facts" }, make("code", { text: known.id }), ...facts.map((each) => make("span", {}, ...each))),
    bars(bar(pull, most, pull < 0 ? "against" : "here")));
}

function showShares({ models, counts }) {
  const some = models.filter((each) => each.weight > 0);
  if (!some.length) return panel("shares", "", "");
  const most = largest(some.map((each) => each.weight));
  panel("shares", some[0].name ? "Rankers blended" : "Stored models", `${some.length} of ${counts.models}, and how much each counts for this query.`,
    make("ol", { class: "rows" }, ...some.map((each) =>
      make("li", {}, make("span", { class: "label", text: each.name || `Model ${each.model + 1}` }),
        full(each.weight, most),
        make("span", { class: "figures" }, number(each.weight, { percent: true }),
          make("span", { class: "faint", text: each.name ? "" : ` from ${counted(each.queries, "query", "queries")}` }))))));
}

function showDepartures({ departures, is_global: common }) {
  if (!departures.length || common) return panel("departures", "", "");
  const most = largest(departures.flatMap((each) => [each.here * each.spread, each.everyone * each.spread]));
  panel("departures", "Weights that differ most",
    "A bar is a weight times how much the feature varies among these documents; the effect is the difference between the two.",
    legend(),
    make("ol", { class: "rows" }, ...departures.map((each) =>
      make("li", {}, feature(each.feature, "label"),
        bars(bar(each.here * each.spread, most, "here"), bar(each.everyone * each.spread, most, "everyone")),
        make("span", { class: "figures" },
          unseen("weight in one model for all "), number(each.everyone), make("span", { "aria-hidden": "true", text: " → " }),
          unseen(", here "), number(each.here),
          make("span", { class: "faint" }, " effect ", number(each.effect, { sign: true })))))));
}
