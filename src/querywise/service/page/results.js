// Searching, and what was found.

import { ask } from "./asking.js";
import { before, inOther, NOTHING, RUN_FEATURE, showBeside } from "./beside.js";
import { stop } from "./columns.js";
import { listed } from "./documents.js";
import { at, counted, kind, make, named } from "./elements.js";
import { showMoved } from "./moved.js";
import { showOwn } from "./own.js";
import { SHOWN, shownDocuments, state } from "./state.js";
import { showStanding, showSteps } from "./steps.js";
import { cutLong } from "./texts.js";
import { drawTies } from "./ties.js";
import { busy, say, view } from "./views.js";
import { showNote, showWeights } from "./weights.js";
import { showModel } from "./welcome.js";

export async function search() {
  const { asked, show } = state;
  if (asked.q !== undefined) at("box").value = asked.q;
  waiting();
  const found = await ask("search", `/v1/search?${new URLSearchParams({ ...asked, show })}`);
  state.found = found;
  at("moved").hidden = true;
  if (found.judging) found.judging.grades = new Map(Object.entries(found.judging.grades));
  if (asked.qid !== undefined) at("box").value = found.query.text ?? found.query.id;
  document.title = `${named(found.query)} – querywise`;
  if (found.documents.length) {
    showResults();
    showMoved();
  } else {
    at("nothing-title").textContent = `Nothing found for “${named(found.query)}”`;
    view("nothing");
    say("Nothing found.");
  }
  if (found.model !== state.model.version) {
    state.model = await ask("model", "/v1/model");
    showModel();
    showSteps();
    showStanding();
  }
}

/** What was there stays, dimmed; where there was nothing, room is made. */
function waiting() {
  const before = !at("results").hidden;
  if (!before) {
    at("query").textContent = state.asked.q ?? "…";
    at("summary").textContent = " ";
    at("own").hidden = true;
    at("more").hidden = true;
    for (const name of ["note", "weights"]) at(name).hidden = true;
    at("beside-line").hidden = !(state.model.feature_names ?? []).some((name) => RUN_FEATURE.test(name));
    if (!at("beside").options.length) at("beside").append(make("option", { text: "…" }));
    at("ties").replaceChildren();
    columns(false);
    for (const name of ["theirs", "ours"]) {
      at(name).replaceChildren(...Array.from({ length: SHOWN }, () => make("li", { class: "doc blank", "aria-hidden": "true" })));
    }
    view("results");
  }
  at("columns").classList.add("waiting");
  busy(true);
  say("Searching …");
}

const columns = (single) => at("results").classList.toggle("single", single);

export function showResults() {
  const { found, show } = state;
  const single = found.explanation === null;
  showBeside();
  const alone = state.beside === NOTHING;
  const ours = shownDocuments().filter((each) => each.rank <= show);
  const theirs = found.documents.filter((each) => before(each) <= show).sort((one, two) => before(one) - before(two));
  const moved = ours.filter((each) => each.rank !== before(each)).length;
  view("results");
  columns(alone);
  at("query").classList.remove("whole");
  at("query").replaceChildren(`${named(found.query)} `, ...[kind(found.query)].filter(Boolean));
  at("ours-title").textContent = single ? "The model’s order" : "This query’s model";
  at("ours").replaceChildren(...ours.map((each, place) => listed(each, "ours", ours[place + 1])));
  at("theirs").replaceChildren(...(alone ? [] : theirs.map((each) => listed(each, "theirs"))));
  for (const list of document.querySelectorAll("#ours, #theirs")) if (list.firstElementChild) stop(list.firstElementChild);
  const ranked = `${counted(found.candidates, "candidate")} ranked in ${Math.max(1, Math.round(found.milliseconds))} ms`;
  const change = alone
    ? "This model is the same for all queries, so there is one order."
    : ours.length === 1
      ? "There is only one document."
      : `${moved || "None"} of the first ${ours.length} documents ${moved > 1 ? "stand" : "stands"} elsewhere than ${inOther()}.`;
  at("summary").replaceChildren(
    `${change} ${ranked}. `,
    ...(single ? [] : [make("a", { href: "#own", text: "What its model is made of" })]),
  );
  at("more").hidden = show >= found.candidates;
  at("own").hidden = single;
  if (!single) showOwn();
  showNote();
  showWeights();
  showStanding();
  cutLong();
  drawTies();
  say(`${counted(ours.length, "document")} for ${named(found.query)}. ${change}`);
}
