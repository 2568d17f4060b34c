// The box: judged queries come up while one types.

import { ask, forget, Problem } from "./asking.js";
import { at, kind, make, named } from "./elements.js";
import { go, state } from "./state.js";
import { attempt } from "./views.js";

const PAUSE = 120; // milliseconds without a key before suggestions are asked for

const suggested = { queries: [], active: -1, timer: 0 };

const isOpen = () => !at("suggestions").hidden;

export function closeSuggestions() {
  clearTimeout(suggested.timer);
  forget("suggestions");
  at("suggestions").hidden = true;
  at("box").setAttribute("aria-expanded", "false");
  at("box").removeAttribute("aria-activedescendant");
  suggested.active = -1;
}

function suggest() {
  clearTimeout(suggested.timer);
  if (!state.model.judged_queries) return;
  activate(-1);
  suggested.timer = setTimeout(async () => {
    const like = new URLSearchParams({ like: at("box").value.trim(), limit: 8 });
    let chosen;
    try {
      const { queries } = await ask("suggestions", `/v1/queries?${like}`);
      chosen = suggested.queries[suggested.active]?.id; // by the keyboard, since the last key that was typed
      suggested.queries = queries;
    } catch (error) {
      if (error.name !== "AbortError" && !(error instanceof Problem)) throw error;
      return; // suggestions are a comfort: without them one can still search
    }
    showSuggestions();
    activate(suggested.queries.findIndex((query) => query.id === chosen));
  }, PAUSE);
}

function showSuggestions() {
  const { queries } = suggested;
  const searches = state.model.searches;
  at("suggestions").replaceChildren(
    ...queries.map((query, place) =>
      make("li", {
        id: `suggestion-${place}`, role: "option", "aria-selected": "false",
        onpointerdown: (event) => event.preventDefault(), onclick: () => choose(place),
      }, make("span", { text: named(query) }), kind(query))),
    ...(queries.length || searches ? [] : [make("li", { class: "none", role: "option", "aria-disabled": "true", text: "No judged query has these letters." })]),
  );
  suggested.active = -1;
  at("suggestions").hidden = at("suggestions").children.length === 0 || document.activeElement !== at("box");
  at("box").setAttribute("aria-expanded", String(isOpen()));
  at("box").removeAttribute("aria-activedescendant");
}

function activate(place) {
  suggested.active = place;
  for (const [each, option] of [...at("suggestions").children].entries()) {
    option.setAttribute("aria-selected", String(each === place));
    if (each === place) option.scrollIntoView({ block: "nearest" });
  }
  if (place < 0) at("box").removeAttribute("aria-activedescendant");
  else at("box").setAttribute("aria-activedescendant", `suggestion-${place}`);
}

function choose(place) {
  const query = suggested.queries[place];
  at("box").value = named(query);
  go({ qid: query.id });
}

async function submit(event) {
  event.preventDefault();
  const text = at("box").value.trim();
  if (suggested.active >= 0) return choose(suggested.active);
  if (state.model.searches) return text ? go({ q: text }) : null;
  return attempt(async () => {
    const like = new URLSearchParams({ like: text, limit: 1 });
    suggested.queries = (await ask("suggestions", `/v1/queries?${like}`)).queries;
    if (suggested.queries.length) choose(0);
    else showSuggestions();
  });
}

export function watchBox() {
  const box = at("box");
  at("search").addEventListener("submit", submit);
  box.addEventListener("input", suggest);
  box.addEventListener("click", () => isOpen() || state.model.searches || suggest());
  box.addEventListener("blur", closeSuggestions);
  box.addEventListener("keydown", (event) => {
    const count = suggested.queries.length;
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (event.key === "Escape" && isOpen()) {
      event.preventDefault();
      closeSuggestions();
    } else if (step && isOpen() && count) {
      event.preventDefault();
      activate(((suggested.active + 1 + step + count + 1) % (count + 1)) - 1);
    } else if (event.key === "ArrowDown" && !isOpen()) {
      event.preventDefault();
      const first = at("results").hidden || event.altKey || at(at("columns").dataset.side).firstElementChild;
      if (first instanceof HTMLElement && !first.classList.contains("blank")) first.focus();
      else suggest();
    }
  });
}
