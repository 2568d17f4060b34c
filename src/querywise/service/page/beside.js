// The order beside that of the model: one model for all, or what the first stage made of the query.

import { at, make } from "./elements.js";
import { state } from "./state.js";

/** Features that tell of the order of a first stage. */
export const RUN_FEATURE = /^(H1\.bm25|run\..+\.score)$/;
export const NOTHING = "";
export const EVERYONE = "everyone";
const RUNS = { bm25: "BM25", vectors: "Vectors", fused: "All runs fused" };
export const runName = (run) => RUNS[run] ?? run;
export const before = (found) => state.beside === EVERYONE ? found.rank_everyone : new Map(Object.entries(found.ranks)).get(state.beside) ?? Infinity;
const otherName = () => state.beside === EVERYONE ? "One model for all" : runName(state.beside);
export const inOther = () => state.beside === EVERYONE ? "under one model for all" : `in the order of ${state.beside === "fused" ? "all runs fused" : runName(state.beside)}`;

/** What there is to choose from; what was chosen for the query before stays chosen where it can. */
export function showBeside() {
  const { explanation, runs } = state.found;
  const usual = explanation === null ? NOTHING : EVERYONE;
  const choices = [[usual, explanation === null ? "nothing" : "One model for all"], ...runs.map((run) => [run, runName(run)])];
  state.beside = choices.some(([name]) => name === state.chosen) ? state.chosen : usual;
  at("beside").replaceChildren(...choices.map(([value, text]) => make("option", { value, text, selected: value === state.beside })));
  at("beside-line").hidden = choices.length < 2;
  at("theirs-title").textContent = otherName();
  document.querySelector(".switch [data-side=theirs]").textContent = otherName();
}
