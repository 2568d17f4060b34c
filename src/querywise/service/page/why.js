// Why one document is above another.

import { ask, forget, Problem } from "./asking.js";
import { at, bar, bars, largest, legend, make, number, written } from "./elements.js";
import { feature } from "./features.js";
import { neighbour } from "./own.js";
import { arrive, shownDocuments, state } from "./state.js";
import { showToken } from "./views.js";

const TERMS = 8; // features of an explanation at first
const PULLERS = 5; // neighbours of an explanation

/** The document and the one below it; the last one and the one above it. */
export function whyHere(id) {
  const documents = shownDocuments();
  if (documents.length < 2) return;
  const place = documents.findIndex((each) => each.id === id);
  const first = Math.min(place, documents.length - 2);
  openWhy(documents[first].id, documents[first + 1].id);
}

export function openWhy(above, below) {
  for (const [name, chosen] of [["above", above], ["below", below]]) {
    at(name).replaceChildren(...shownDocuments().map((each) =>
      make("option", { value: each.id, text: `${each.rank}. ${each.title}`, selected: each.id === chosen })));
  }
  at("why").showModal();
  at("why").scrollTop = 0;
  explain();
}

async function explain() {
  const [above, below] = [at("above").value, at("below").value];
  if (above === below) {
    forget("why");
    at("reason").replaceChildren(make("p", { class: "lead", text: "Choose two different documents." }));
    return;
  }
  at("reason").setAttribute("aria-busy", "true");
  if (!at("reason").querySelector(".sum")) at("reason").replaceChildren(make("div", { class: "blank" }), make("div", { class: "blank tall" }));
  const query = state.asked.qid === undefined ? { text: state.asked.q } : { id: state.asked.qid };
  try {
    showReason(await ask("why", "/v1/explain", { query, above, below }));
  } catch (error) {
    if (error.name === "AbortError") return;
    if (!(error instanceof Problem)) throw error;
    if (error.status === 401) {
      at("why").close();
      state.again = arrive;
      showToken();
    }
    at("reason").replaceChildren(make("p", { class: "lead", role: "alert", text: error.message }),
      make("button", { type: "button", class: "main", text: "Try again", onclick: explain }));
  }
  at("reason").removeAttribute("aria-busy");
}

function showReason(reason) {
  const title = (id) => state.found.documents.find((each) => each.id === id)?.title ?? id;
  const single = state.found.explanation === null;
  const [higher, lower] = reason.difference < 0 ? [reason.below, reason.above] : [reason.above, reason.below];
  const parts = [["Difference in score", "difference", "here"], ["One model for all", "everyone", "everyone"], ["This query’s own part", "local", "here"]];
  const shown = single ? parts.slice(0, 1) : parts;
  const most = largest(shown.map(([, name]) => reason[name]));
  at("reason").replaceChildren(...[
    make("p", { class: "lead" }, ...verdict(reason, title(higher), title(lower), single)),
    make("ol", { class: "rows sum" }, ...shown.map(([label, name, look]) =>
      make("li", { "data-part": name }, make("span", { class: "label", text: label }), bars(bar(reason[name], most, look)),
        make("span", { class: "figures" }, number(reason[name], { sign: true }))))),
    make("h3", { text: "Feature by feature" }),
    make("p", { class: "about", text: "What each adds to the difference, and its values in the two documents." }),
    single ? null : legend(),
    termList(reason, single, TERMS),
    ...pulledBy(reason),
    ...blendedFrom(reason),
  ].filter(Boolean));
}

function verdict({ difference, everyone, local }, higher, lower, single) {
  const size = Math.abs(difference);
  const names = [make("strong", { text: higher }), difference === 0 ? " has the same score as " : " is ahead of ", make("strong", { text: lower })];
  if (difference === 0) return [...names, "."];
  const by = [...names, ` by ${written(size)}. `];
  if (single) return by;
  if (everyone * difference > 0) {
    const adds = Math.abs(difference) >= Math.abs(everyone);
    return [...by, `One model for all agrees, by ${written(Math.abs(everyone))}; this query’s own part ${adds ? "adds" : "takes away"} ` +
      `${written(Math.abs(local))}.`];
  }
  if (everyone === 0) return [...by, "One model for all sees no difference between them."];
  return [...by, `One model for all has them the other way round, by ${written(Math.abs(everyone))}.`];
}

function termList(reason, single, count) {
  const { terms } = reason;
  const some = terms.length - count > 1 ? terms.slice(0, count) : terms;
  const rest = terms.slice(some.length);
  const sum = (name) => rest.reduce((total, each) => total + each[name], 0);
  const most = largest([...some.flatMap((each) => [each.here, single ? 0 : each.everyone]), sum("here"), single ? 0 : sum("everyone")]);
  const row = (label, facts, here, everyone, name) =>
    make("li", { "data-feature": name },
      make("span", { class: "label" }, label, facts),
      bars(bar(here, most, "here"), ...(single ? [] : [bar(everyone, most, "everyone")])),
      make("span", { class: "figures" }, number(here, { sign: true }),
        single ? null : make("span", { class: "faint" }, " for all ", number(everyone, { sign: true }))));
  const values = (term) => make("span", { class: "faint", text: `${written(term.above)} against ${written(term.below)}` });
  const rows = some.map((term) => row(feature(term.feature), values(term), term.here, term.everyone, term.feature));
  if (rest.length) {
    const all = make("button", { type: "button", class: "plain", text: "show all", onclick: () => {
      const list = termList(reason, single, terms.length);
      all.closest("ol").replaceWith(list);
      list.children[count].tabIndex = -1;
      list.children[count].focus();
    } });
    rows.push(row(`${rest.length} other features`, all, sum("here"), sum("everyone"), ""));
  }
  return make("ol", { class: "rows terms" }, ...rows);
}

function pulledBy({ neighbours, known }) {
  const hardest = neighbours.map((each, place) => [each, known[place]]).filter(([each]) => each.pull !== 0)
    .sort(([one], [two]) => Math.abs(two.pull) - Math.abs(one.pull)).slice(0, PULLERS);
  if (!hardest.length) return [];
  const most = largest(hardest.map(([each]) => each.pull));
  return [
    make("h3", { text: "Training queries that pulled hardest" }),
    make("p", { class: "about", text: `Of ${neighbours.length.toLocaleString("en")} that this query’s model learned from.` }),
    make("ol", { class: "neighbours" }, ...hardest.map(([each, words]) => neighbour(each, words, most))),
  ];
}

function blendedFrom({ models }) {
  if (!models.length) return [];
  const most = largest(models.map((each) => each.here));
  return [
    make("h3", { text: "Model by model" }),
    make("ol", { class: "rows" }, ...models.map((each) =>
      make("li", {}, make("span", { class: "label", text: each.name || `Model ${each.model + 1}` }), bars(bar(each.here, most, "here")),
        make("span", { class: "figures" }, number(each.here, { sign: true }),
          make("span", { class: "faint" }, " share ", number(each.weight, { percent: true })))))),
  ];
}

export function watchWhy() {
  const dialog = at("why");
  at("close").addEventListener("click", () => dialog.close());
  dialog.addEventListener("click", (event) => event.target === dialog && dialog.close());
  dialog.addEventListener("close", () => {
    forget("why");
    at("reason").replaceChildren();
  });
  for (const name of ["above", "below"]) at(name).addEventListener("change", explain);
}
