// How much each run counts for a query, and whether it backed off.

import { runName } from "./beside.js";
import { at, make, number } from "./elements.js";
import { state } from "./state.js";

export function showNote() {
  const { explanation, without_vectors: wordsAlone } = state.found;
  const notes = [
    ...(explanation?.note ? [`Backed off to the model for all queries: ${explanation.note}.`] : []),
    ...(wordsAlone ? ["Found by words alone: the embedder did not make this query’s vector."] : []),
  ];
  at("note").hidden = !notes.length;
  at("note").textContent = notes.join(" ");
}

/** How much each run counts: a bar of this query's weights, and below it one of those for all. */
export function showWeights() {
  const { weights } = state.found;
  at("weights").hidden = weights.length === 0;
  const line = (title, which) => make("div", { class: "weighed" },
    make("span", { class: "faint", text: title }),
    make("span", { class: "stack", "aria-hidden": "true" }, ...weights.map((each, place) => {
      const part = make("span", { class: `part part${place % 3}` });
      part.style.width = `${100 * each[which]}%`;
      return part;
    })),
    make("span", { class: "figures" }, ...weights.map((each, place) => make("span", { class: `share share${place % 3}` },
      `${runName(each.run)} `, number(each[which], { percent: true })))));
  at("weights").replaceChildren(line("Weights for this query", "here"),
    ...(weights.every((each) => each.everyone !== null) ? [line("For all queries", "everyone")] : []));
}
