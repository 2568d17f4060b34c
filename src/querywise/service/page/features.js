// Names of features, with what they mean where the service says so: under the pointer, or when they are reached by keyboard.

import { make } from "./elements.js";
import { state } from "./state.js";

let count = 0;

/** The name of a feature; with a description it is a button that shows it. */
export function feature(name, kind = "") {
  const about = new Map(Object.entries(state.model.feature_descriptions)).get(name);
  const words = make("code", {}, ...name.split(/(?<=[._])/).flatMap((piece, place) => (place ? [make("wbr"), piece] : [piece])));
  if (about === undefined) return make("span", { class: kind }, words);
  count += 1;
  const id = `meaning-${count}`;
  const button = make("button", { type: "button", class: "plain meant", "aria-describedby": id }, words);
  return make("span", { class: `feature ${kind}` }, button, make("span", { class: "meaning", role: "tooltip", id, text: about }));
}

const shown = () => document.querySelector(".feature:hover:not(.away) .meaning, .feature:focus-within:not(.away) .meaning");

/** Escape puts a description away, and nothing else, until it is asked for again. */
export function watchFeatures() {
  document.addEventListener("keydown", (event) => {
    const meaning = event.key === "Escape" ? shown() : null;
    if (meaning === null) return;
    event.preventDefault();
    meaning.parentNode.classList.add("away");
  }, true);
  document.addEventListener("focusin", (event) => {
    event.target.closest?.(".feature")?.querySelector(".meaning").scrollIntoView({ block: "nearest" });
  });
  for (const kind of ["pointerover", "focusin", "click"]) {
    document.addEventListener(kind, (event) => {
      for (const each of document.querySelectorAll(".feature.away")) {
        if (kind === "click" || !each.contains(event.target)) each.classList.remove("away");
      }
    });
  }
}
