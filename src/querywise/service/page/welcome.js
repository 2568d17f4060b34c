// What is there before anything was asked: queries to try, a request to send, the model.

import { TOKEN } from "./asking.js";
import { at, counted, kind, make, named } from "./elements.js";
import { address, state } from "./state.js";
import { say, view } from "./views.js";

const EXAMPLES = 6;

export function showWelcome(queries) {
  const { searches, per_query: local } = state.model;
  at("welcome-title").textContent = local ? "What does a query’s own model change?" : "How does this model rank?";
  at("welcome-lead").textContent =
    `${searches ? "Search" : "Choose a judged query"}, and see ` +
    (local ? "the documents in two orders side by side: by one model for all queries, and by the model made for this query. Then"
      : "the documents in the model’s order, which is the same model for all queries. Then") +
    " ask why one is above another.";
  at("examples-title").hidden = queries.length === 0;
  at("examples").replaceChildren(
    ...varied(queries).map((query) =>
      make("li", {}, make("a", { href: address({ qid: query.id }) }, make("span", { text: named(query) }), kind(query))),
    ),
  );
  document.title = "querywise";
  view("welcome");
  say("");
}

/** Some queries, of as many classes as there are, from all over the list. */
function varied(queries) {
  const classes = new Map();
  for (const query of queries) classes.set(query.class, [...(classes.get(query.class) ?? []), query]);
  const lists = [...classes.values()];
  const chosen = [];
  for (let round = 0; chosen.length < Math.min(EXAMPLES, queries.length); round += 1) {
    for (const list of lists) {
      const each = Math.ceil(EXAMPLES / lists.length);
      const step = Math.max(1, Math.floor(list.length / each));
      const next = list.filter((_, place) => place % step === 0)[round] ?? list.find((query) => !chosen.includes(query));
      if (next && !chosen.includes(next) && chosen.length < EXAMPLES) chosen.push(next);
    }
  }
  return chosen;
}

export function showBare() {
  const { feature_names: names, feature_count: count } = state.model;
  const known = names ?? Array.from({ length: count }, (_, place) => String(place + 1));
  const values = (from) => Object.fromEntries(known.slice(0, 3).map((name, place) => [name, (from + place) / 4]));
  const body = {
    query: { id: "1", text: "what is asked" },
    documents: ["a", "b"].map((id, place) => ({ id, features: values(place + 1) })),
  };
  const token = sessionStorage.getItem(TOKEN) === null ? "" : ' \\\n  -H "Authorization: Bearer $QUERYWISE_TOKEN"';
  const quoted = JSON.stringify(body, null, 2).replaceAll("'", "'\\''");
  at("request").textContent = `curl ${location.origin}/v1/rank${token} \\\n  -H "Content-Type: application/json" -d '${quoted}'`;
  at("copy").hidden = !navigator.clipboard;
  view("bare");
}

export function showModel() {
  const { ranker, feature_count: count, version, judged_queries: judged, searches, retrain } = state.model;
  at("retrain").hidden = !retrain;
  at("tabs").hidden = !state.model.experiment;
  at("retrain-command").textContent = retrain ?? "";
  at("model").replaceChildren(
    make("strong", { text: ranker }),
    ` · ${counted(count, "feature")}`,
    make("span", { class: "version" }, " · version ", make("code", { text: version })),
  );
  const hasBox = searches || judged > 0;
  at("search").hidden = !hasBox;
  const label = searches ? "Search the index" : "Find a judged query";
  at("box-label").textContent = label;
  at("box").placeholder = searches ? "Search" : `Choose one of ${counted(judged, "judged query", "judged queries")}`;
  document.querySelector("#search .main").textContent = searches ? "Search" : "Show";
}
