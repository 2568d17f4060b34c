// Beside the judging page: progress, how far judges agree, and files to take out.

import { ask, Problem } from "./asking.js";
import { at, counted, make, written } from "./elements.js";

const many = (count) => count.toLocaleString("en");

function panel(id, title, ...content) {
  at(`${id}-panel`).replaceChildren(make("h2", { id: `${id}-title`, text: title }), ...content.filter(Boolean));
}

function table(heads, rows) {
  return make("table", { class: "figures-table" },
    make("thead", {}, make("tr", {}, ...heads.map((text) => make("th", { scope: "col", text })))),
    make("tbody", {}, ...rows.map((cells) => make("tr", {}, ...cells.map((text) => make("td", { text }))))));
}

export function showPanels(state, judge) {
  showProgress(state, judge);
  showExport(state);
  at("standing-panel").hidden = !state.stands;
  if (state.stands && !at("standing-panel").firstChild) closeStanding();
  if (state.judges.filter(({ graded }) => graded > 0).length > 1) showAgreement();
  else panel("agreement", "Agreement", make("p", { class: "about", text: "Told once two judges have graded the same documents." }));
}

function showProgress({ judges, pairs, graded, graded_twice: twice, in_turn: turn, drawn }, judge) {
  const rows = [["by somebody", many(graded), many(pairs - graded)], ["by two or more", many(twice), many(pairs - twice)],
    ...judges.map((each) => [each.name === judge ? `by ${each.name} (you)` : `by ${each.name}`, many(each.graded), many(pairs - each.graded)])];
  const about = drawn ? `querywise next counts grades from the first of its file on without a gap: ${many(turn)} of ${counted(pairs, "document")} now.` : null;
  panel("progress", "Decided and left", table(["graded", "documents", "left"], rows), about && make("p", { class: "about", text: about }));
}

function closeStanding(...said) {
  panel("standing", "Where the systems stand", ...said.map((text) => make("p", { class: "said", text })),
    make("p", { class: "about", text: "Say before how many you will judge: who looks often and stops at the first verdict errs in more than 5 % of cases." }),
    make("button", { type: "button", class: "plain", "data-stand": true, text: said.length ? "Look again" : "Look" }));
}

/** What is decided, when somebody asks. */
export async function showStanding() {
  closeStanding(...(await ask("standing", "/v1/judging/standing")).said);
}

async function showAgreement() {
  let agreements;
  try {
    ({ agreements } = await ask("agreement", "/v1/judging/agreement"));
  } catch (error) {
    if (error instanceof Problem) panel("agreement", "Agreement", make("p", { class: "about", text: error.message }));
    else if (error.name !== "AbortError") throw error; // it is being asked for anew
    return;
  }
  const rows = agreements.map((each) => [`${each.first}, ${each.second}`, many(each.pairs), each.same === null ? "–" : written(each.same, false, true),
    each.weighted_kappa === null ? "–" : kappa(each.weighted_kappa)]);
  const problems = agreements.filter(({ problem }) => problem).map(({ first, second, problem }) => `${first} and ${second}: ${problem}`);
  panel("agreement", "Agreement", table(["judges", "both", "same", "weighted kappa"], rows),
    make("p", { class: "about", text: "Weighted kappa with its 95 % interval: 1 is the same grade always, 0 no more than by chance." }),
    ...problems.map((text) => make("p", { class: "about", text })));
}

const short = (value) => value.toFixed(2).replace("-", "−");
const kappa = ([value, low, high]) => `${short(value)} (${short(low)} to ${short(high)})`;

function showExport({ judges, rules }) {
  const row = (of, name, said) => make("li", {}, make("button", { type: "button", class: "plain", "data-of": of, text: name }), said && make("span", { class: "faint", text: said }));
  panel("export", "Export", make("ul", { class: "exports" },
    ...Object.entries(rules).map(([rule, said]) => row(rule, `All, ${rule}`, said)),
    ...judges.map(({ name }) => row(`judge:${name}`, name, "Qrels of this judge alone.")),
    row("notes", "Notes", "A table of all notes, with grades.")));
}

/** Have the browser keep a file. */
export async function takeOut(of) {
  const text = await ask("export", `/v1/judging/export?${new URLSearchParams({ of })}`, undefined, "text");
  const link = make("a", { href: URL.createObjectURL(new Blob([text], { type: "text/plain" })), download: `${of.replace(":", "-")}.${of === "notes" ? "csv" : "qrels"}` });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
}
