// The page of the service: asks the API at this address, shows what it answers, and keeps nothing but the token.

const SHOWN = 10; // documents of a list at first
const STEP = 20; // documents that "show more" adds
const TERMS = 8; // features of an explanation at first
const PULLERS = 5; // neighbours of an explanation
const EXAMPLES = 6;
const PAUSE = 120; // milliseconds without a key before suggestions are asked for
const PATIENCE = 60; // seconds for an answer
const TOKEN = "querywise.token";
const VIEWS = ["welcome", "bare", "token", "problem", "nothing", "results"];

const at = (id) => document.getElementById(id);
const state = { model: null, asked: null, found: null, show: SHOWN, place: null, again: null, beside: "everyone", chosen: null };
const running = {}; // what is being asked for, by purpose: a new question ends the one before it

// Elements. Everything that comes from the service goes in as text, never as markup.

function make(tag, properties = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "text") made.textContent = value;
    else if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children.filter((child) => child !== null));
  return made;
}

const unseen = (text) => make("span", { class: "unseen", text });

/** A number to read, and the very number the service gave for whoever wants it. */
function number(value, { sign = false, percent = false } = {}) {
  return make("data", { value: String(value), text: written(value, sign, percent) });
}

function written(value, sign = false, percent = false) {
  const size = Math.abs(percent ? 100 * value : value);
  let digits = percent ? 1 : Math.min(Math.max(2 - Math.floor(Math.log10(size || 1)), 0), 4);
  if (size > 0 && Number(size.toFixed(digits)) === 0) digits = percent ? 2 : 6;
  const shown = size.toFixed(digits);
  const mark = Number(shown) === 0 ? "" : value < 0 ? "−" : sign ? "+" : "";
  return mark + (Number(shown) === 0 ? "0" : shown) + (percent ? " %" : "");
}

const counted = (count, one, many = `${one}s`) => `${count.toLocaleString("en")} ${count === 1 ? one : many}`;

/** A bar from a middle line, to the left below 0 and to the right above it. */
function bar(value, most, kind) {
  const share = most > 0 ? (50 * Math.abs(value)) / most : 0;
  const made = make("span", { class: `bar ${kind}` });
  made.style.left = `${value < 0 ? 50 - share : 50}%`;
  made.style.width = `${share}%`;
  return made;
}

const bars = (...made) => make("span", { class: "bars", "aria-hidden": "true" }, ...made);
const largest = (values) => Math.max(...values.map(Math.abs), 0);

// Asking

class Problem extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

async function ask(purpose, path, body) {
  running[purpose]?.abort();
  const control = new AbortController();
  running[purpose] = control;
  const token = sessionStorage.getItem(TOKEN);
  const headers = token ? { authorization: `Bearer ${token}` } : {};
  const options = body ? { method: "POST", body: JSON.stringify(body), headers: { ...headers, "content-type": "application/json" } } : { headers };
  const late = new Problem(0, `The service at ${location.host} has not answered for ${PATIENCE} seconds.`);
  const timer = setTimeout(() => control.abort(late), 1000 * PATIENCE);
  let answer;
  let said;
  try {
    answer = await fetch(path, { ...options, signal: control.signal });
    said = await answer.json().catch((error) => {
      if (control.signal.aborted) throw error;
      return null;
    });
  } catch (error) {
    if (control.signal.aborted) throw error;
    throw new Problem(0, `The service at ${location.host} cannot be reached. Is it still running?`);
  } finally {
    clearTimeout(timer);
  }
  if (!answer.ok || said === null) {
    throw new Problem(answer.status, said?.error?.message ?? `The service answered with status ${answer.status}.`);
  }
  return said;
}

function forget(purpose) {
  running[purpose]?.abort();
}

/** Do something that asks; say what went wrong where it did. */
async function attempt(doing) {
  try {
    await doing();
  } catch (error) {
    if (error.name === "AbortError") return;
    if (!(error instanceof Problem)) throw error;
    busy(false);
    state.again = () => attempt(doing);
    if (error.status === 401) showToken();
    else showProblem(error.message);
  }
}

// What is on the page

function view(name) {
  for (const each of VIEWS) at(each).hidden = each !== name;
  document.querySelector(".keys").hidden = name !== "results";
  document.querySelector(".keys .grades").hidden = !state.found?.judging;
  at("columns").classList.remove("waiting");
  busy(false);
}

function busy(is) {
  at("progress").hidden = !is;
  at("main").setAttribute("aria-busy", String(is));
}

const say = (text) => {
  at("status").textContent = text;
};

function showProblem(message) {
  at("problem-message").textContent = message;
  view("problem");
  say("");
}

function showToken() {
  const refused = sessionStorage.getItem(TOKEN) !== null;
  sessionStorage.removeItem(TOKEN);
  at("token-title").textContent = refused ? "That token was not accepted" : "This service asks for a token";
  view("token");
  at("token-box").value = "";
  at("token-box").focus();
}

function showWelcome(queries) {
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

const named = (query) => query.text || `Query ${query.id}`;
const kind = (query) => (query.class ? make("span", { class: "kind", text: query.class }) : null);

function showBare() {
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

function showModel() {
  const { ranker, feature_count: count, version, judged_queries: judged, searches } = state.model;
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

// Where we are is in the address: ?q=… a text, ?qid=… a judged query

function address(asked) {
  return `/?${new URLSearchParams(asked)}`;
}

function askedFor() {
  const given = new URLSearchParams(location.search);
  if (given.get("qid")) return { qid: given.get("qid") };
  return given.get("q")?.trim() ? { q: given.get("q").trim() } : null;
}

function go(asked) {
  const path = asked === null ? "/" : address(asked);
  if (path !== location.pathname + location.search) history.pushState(null, "", path);
  arrive();
}

function arrive() {
  state.place = location.pathname + location.search;
  closeSuggestions();
  for (const purpose of ["search", "examples"]) forget(purpose);
  if (at("why").open) at("why").close();
  state.asked = askedFor();
  state.show = SHOWN;
  if (state.asked !== null) attempt(search);
  else if (!state.model.searches && state.model.judged_queries === 0) showBare();
  else {
    at("box").value = "";
    attempt(async () => showWelcome(state.model.judged_queries ? (await ask("examples", "/v1/queries?limit=500")).queries : []));
  }
}

async function start() {
  busy(true);
  state.model = await ask("model", "/v1/model");
  showModel();
  arrive();
}

// Searching

async function search() {
  const { asked, show } = state;
  if (asked.q !== undefined) at("box").value = asked.q;
  waiting();
  const found = await ask("search", `/v1/search?${new URLSearchParams({ ...asked, show })}`);
  state.found = found;
  if (found.judging) found.judging.grades = new Map(Object.entries(found.judging.grades));
  if (asked.qid !== undefined) at("box").value = found.query.text ?? found.query.id;
  document.title = `${named(found.query)} – querywise`;
  if (found.documents.length) showResults();
  else {
    at("nothing-title").textContent = `Nothing found for “${named(found.query)}”`;
    view("nothing");
    say("Nothing found.");
  }
  if (found.model !== state.model.version) {
    state.model = await ask("model", "/v1/model");
    showModel();
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
    at("beside-line").hidden = !(state.model.feature_names ?? []).some((name) => /^(H1\.bm25|run\..+\.score)$/.test(name));
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
const shownDocuments = () => [...state.found.documents].sort((one, two) => one.rank - two.rank);

function showResults() {
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
  cutLong();
  drawTies();
  say(`${counted(ours.length, "document")} for ${named(found.query)}. ${change}`);
}

// The order beside that of the model: one model for all, or what the first stage made of the query

const NOTHING = "";
const EVERYONE = "everyone";
const RUNS = { bm25: "BM25", vectors: "Vectors", fused: "All runs fused" };
const runName = (run) => RUNS[run] ?? run;
const before = (found) => state.beside === EVERYONE ? found.rank_everyone : new Map(Object.entries(found.ranks)).get(state.beside) ?? Infinity;
const otherName = () => state.beside === EVERYONE ? "One model for all" : runName(state.beside);
const inOther = () => state.beside === EVERYONE ? "under one model for all" : `in the order of ${state.beside === "fused" ? "all runs fused" : runName(state.beside)}`;

/** What there is to choose from; what was chosen for the query before stays chosen where it can. */
function showBeside() {
  const { explanation, runs } = state.found;
  const usual = explanation === null ? NOTHING : EVERYONE;
  const choices = [[usual, explanation === null ? "nothing" : "One model for all"], ...runs.map((run) => [run, runName(run)])];
  state.beside = choices.some(([name]) => name === state.chosen) ? state.chosen : usual;
  at("beside").replaceChildren(...choices.map(([value, text]) => make("option", { value, text, selected: value === state.beside })));
  at("beside-line").hidden = choices.length < 2;
  at("theirs-title").textContent = otherName();
  document.querySelector(".switch [data-side=theirs]").textContent = otherName();
}

function showNote() {
  const note = state.found.explanation?.note;
  at("note").hidden = !note;
  at("note").textContent = note ? `Backed off to the model for all queries: ${note}.` : "";
}

/** How much each run counts: a bar of this query's weights, and below it one of those for all. */
function showWeights() {
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

const COMMON = new Set("a an and are as at be by do for from how i in is it its of on or that the this to what with".split(" "));

/** A text whose words that the query asks for, in any form, stand out. */
function marked(text, query) {
  const asked = ((query ?? "").toLowerCase().match(/[\p{L}\p{N}]+/gu) ?? []).filter((word) => !COMMON.has(word));
  return text.split(/([\p{L}\p{N}]+)/u).map((piece, place) =>
    place % 2 && asked.some((word) => alike(word, piece.toLowerCase())) ? make("mark", { text: piece }) : piece);
}

/** Whether two words may be forms of one: the longer goes on after what they share by a few letters. */
function alike(one, other) {
  let shared = 0;
  while (shared < one.length && one[shared] === other[shared]) shared += 1;
  return shared >= 3 && shared >= Math.min(one.length, other.length) - 1 && Math.max(one.length, other.length) - shared <= 3;
}

/** A document in one of the two lists; `next` is the one below it, where it can be asked why. */
function listed(found, side, next) {
  const own = side === "ours";
  const words = make("div", { class: "words" },
    make("p", { class: "head" }, make("span", { class: "title", text: found.title }), graded(found)),
    found.title === found.id ? null : make("p", { class: "id", text: found.id }),
    found.snippet ? make("p", { class: "snippet" }, ...marked(found.snippet, state.found.query.text)) : null,
  );
  const ask = next && make("button", {
    type: "button", class: "ask", text: "why?", "aria-label": `Why is ${found.title} above ${next.title}?`,
    onclick: () => openWhy(found.id, next.id),
  });
  return make("li", { class: "doc", tabindex: "-1", "data-id": found.id },
    make("span", { class: "rank", text: own ? found.rank : before(found) }),
    words,
    state.beside === NOTHING ? null : own ? movement(found) : leaving(found),
    judged(found),
    ask ?? null,
  );
}

function graded({ grade }) {
  if (grade === null) return null;
  return make("span", { class: grade > 0 ? "grade good" : "grade" },
    unseen(`judged ${grade}`), make("span", { "aria-hidden": "true", text: grade > 0 ? `★ ${grade}` : "☆ 0" }));
}

// Judging, where the service keeps judgements: one grade for a document, in both lists

const judging = { last: Promise.resolve() }; // one after the other, so that the last click counts

/** A button for every grade; the one that is pressed in is what the document was given, and pressing it takes it back. */
function judged({ id, title }) {
  if (!state.found.judging) return null;
  const given = state.found.judging.grades.get(id);
  const grades = Array.from({ length: state.model.highest_grade + 1 }, (_, grade) => grade);
  return make("div", { class: "judged", role: "group", "aria-label": `Your grade of ${title}` },
    make("span", { class: "faint", "aria-hidden": "true", text: "Your grade" }),
    ...grades.map((grade) => make("button", {
      type: "button", class: "give", tabindex: "-1", "data-grade": grade, text: grade, "aria-label": `Grade ${grade}`,
      "aria-pressed": String(grade === given), onclick: () => judge(id, title, grade),
    })));
}

function judge(id, title, grade) {
  const { found, asked } = state;
  if (!found?.judging || grade > state.model.highest_grade) return;
  const { grades } = found.judging;
  const before = grades.get(id) ?? null;
  const now = before === grade ? null : grade;
  const put = (value) => {
    if (value === null) grades.delete(id);
    else grades.set(id, value);
    showGrade(found, id);
  };
  put(now);
  judging.last = judging.last.then(() => keep(asked, id, now)).then(
    () => say(now === null ? `${title}: no grade.` : `${title}: grade ${now}, kept.`),
    (error) => {
      if (!(error instanceof Problem)) throw error;
      if ((grades.get(id) ?? null) === now) put(before);
      if (error.status === 401) {
        state.again = () => attempt(search);
        showToken();
      } else complain(found, id, error.message);
    });
}

function keep(asked, document, grade) {
  const query = asked.qid === undefined ? { text: asked.q } : { id: asked.qid };
  return ask(`judge ${document}`, "/v1/judgements", { query, document, grade });
}

const itemsOf = (found, id) => state.found === found ? [...document.querySelectorAll("#columns li[data-id]")].filter((item) => item.dataset.id === id) : [];

function showGrade(found, id) {
  for (const item of itemsOf(found, id)) {
    item.querySelector(".judged .wrong")?.remove();
    for (const button of item.querySelectorAll(".give")) {
      button.setAttribute("aria-pressed", String(Number(button.dataset.grade) === found.judging.grades.get(id)));
    }
  }
  drawTies();
}

function complain(found, id, message) {
  const [item] = itemsOf(found, id).filter((each) => each.checkVisibility()).reverse();
  item?.querySelector(".judged").append(make("span", { class: "wrong", role: "alert", text: message }));
  drawTies();
}

/** How far a document moved against its place in one model for all. */
function movement(found) {
  const { rank } = found;
  const by = before(found) - rank;
  if (by === Infinity) {
    const heard = `not found ${inOther()}`;
    return make("span", { class: "move up", title: heard }, make("span", { "aria-hidden": "true", text: "new" }), unseen(heard));
  }
  if (by === 0) return make("span", { class: "move" }, unseen("in the same place"));
  const fresh = before(found) > state.show;
  const where = state.beside === EVERYONE ? "in one model for all" : inOther();
  const heard = `${counted(Math.abs(by), "place")} ${by > 0 ? "up" : "down"} from ${before(found)} ${where}`;
  return make("span", { class: `move ${by > 0 ? "up" : "down"}`, title: heard },
    make("span", { "aria-hidden": "true", text: `${by > 0 ? "▲" : "▼"} ${Math.abs(by)}` }),
    fresh ? make("span", { class: "new", "aria-hidden": "true", text: "new" }) : null,
    unseen(fresh ? `${heard}, new in this list` : heard));
}

/** In the other list: where a document went that is no longer among the first. */
function leaving({ rank }) {
  if (rank <= state.show) return null;
  const heard = `${rank} in this query’s model, not among the first ${state.show}`;
  return make("span", { class: "move gone", title: heard }, make("span", { "aria-hidden": "true", text: `→ ${rank}` }), unseen(heard));
}

/** A button after each text that does not fit, to read all of it. */
function cutLong() {
  for (const text of document.querySelectorAll("#query, #columns .snippet")) {
    const whole = text.classList.contains("whole");
    if (text.nextElementSibling?.classList.contains("cut")) {
      if (text.id !== "query" || whole) continue;
      text.nextElementSibling.remove();
    }
    if (whole || text.scrollHeight <= text.clientHeight + 2) continue;
    const button = make("button", { type: "button", class: "plain cut", text: "more", "aria-expanded": "false", onclick: () => {
      const open = text.classList.toggle("whole");
      button.textContent = open ? "less" : "more";
      button.setAttribute("aria-expanded", String(open));
      drawTies();
    } });
    const item = text.closest("li");
    if (item) button.setAttribute("tabindex", item.getAttribute("tabindex"));
    text.after(button);
  }
}

// The same document in both lists: a line between, and both lit

function drawTies() {
  const ground = at("ties");
  const room = ground.getBoundingClientRect();
  if (room.width === 0 || at("results").hidden) return;
  const middle = (item) => {
    const box = item.getBoundingClientRect();
    return box.top + box.height / 2 - room.top;
  };
  const theirs = new Map([...at("theirs").children].map((item) => [item.dataset.id, item]));
  const lines = [...at("ours").children].filter((item) => item.dataset.id && theirs.has(item.dataset.id)).map((item) => {
    const [from, to] = [middle(theirs.get(item.dataset.id)), middle(item)];
    const line = document.createElementNS("http://www.w3.org/2000/svg", "path");
    const move = item.querySelector(".move");
    line.setAttribute("class", move.classList.contains("up") ? "up" : move.classList.contains("down") ? "down" : "same");
    line.setAttribute("d", `M0 ${from} C${room.width / 2} ${from} ${room.width / 2} ${to} ${room.width} ${to}`);
    line.dataset.id = item.dataset.id;
    return line;
  });
  ground.replaceChildren(...lines);
}

function light(id) {
  for (const each of document.querySelectorAll("#columns [data-id]")) each.classList.toggle("lit", each.dataset.id === id);
  at("columns").classList.toggle("lighting", id !== null);
}

const itemOf = (event) => event.target.closest?.("#columns li[data-id]") ?? null;

function watchColumns() {
  const ground = at("columns");
  ground.addEventListener("pointerover", (event) => light(itemOf(event)?.dataset.id ?? null));
  ground.addEventListener("pointerleave", () => light(document.activeElement.closest?.("#columns li")?.dataset.id ?? null));
  ground.addEventListener("focusin", (event) => {
    const item = itemOf(event);
    if (item === null) return;
    stop(item);
    light(item.dataset.id);
  });
  ground.addEventListener("focusout", () => light(null));
  ground.addEventListener("keydown", moveThrough);
  new ResizeObserver(drawTies).observe(ground);
  for (const button of document.querySelectorAll(".switch button")) {
    button.addEventListener("click", () => side(button.dataset.side));
  }
}

/** Make a document, and the grades it can be given, the stop of its list for those who go by Tab. */
function stop(item) {
  for (const each of item.parentNode.children) {
    for (const part of [each, ...each.querySelectorAll(".give, .cut")]) part.setAttribute("tabindex", each === item ? "0" : "-1");
  }
}

function side(name) {
  at("columns").dataset.side = name;
  for (const each of document.querySelectorAll(".switch button")) {
    each.setAttribute("aria-pressed", String(each.dataset.side === name));
  }
  cutLong();
}

function moveThrough(event) {
  const item = itemOf(event);
  if (item === null || event.altKey || event.ctrlKey || event.metaKey) return;
  const list = item.parentNode;
  const across = (name) => {
    const other = at(name);
    return list === other ? null : [...other.children].find((each) => each.dataset.id === item.dataset.id) ??
      other.children[Math.min([...list.children].indexOf(item), other.children.length - 1)];
  };
  const to = {
    ArrowDown: () => item.nextElementSibling,
    ArrowUp: () => item.previousElementSibling,
    Home: () => list.firstElementChild,
    End: () => list.lastElementChild,
    ArrowLeft: () => across("theirs"),
    ArrowRight: () => across("ours"),
  }[event.key];
  if (to) {
    event.preventDefault();
    const next = to();
    if (next) side(next.parentNode.id);
    next?.focus();
  } else if (/^[0-9]$/.test(event.key) && state.found.judging) {
    event.preventDefault();
    judge(item.dataset.id, item.querySelector(".title").textContent, Number(event.key));
  } else if (event.key === "Enter" && event.target === item) {
    event.preventDefault();
    whyHere(item.dataset.id);
  }
}

// What is particular to this query's model

function showOwn() {
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

function panel(id, title, about, ...content) {
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

function neighbour({ query_id: id, distance, pull }, known, most) {
  const words = known.text || `Query ${id}`;
  const title = state.model.searches && known.text ? make("a", { href: address({ q: known.text }), text: words }) : make("span", { text: words });
  return make("li", {},
    make("p", { class: "head" }, title, kind(known)),
    make("p", { class: "facts" },
      make("code", { text: id }),
      make("span", {}, "distance ", number(distance)),
      make("span", {}, "pull ", number(pull, { sign: true, percent: true }))),
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

function full(value, most) {
  const made = make("span", { class: "bar here" });
  made.style.left = "0";
  made.style.width = `${most > 0 ? (100 * value) / most : 0}%`;
  return make("span", { class: "bars plain", "aria-hidden": "true" }, made);
}

function showDepartures({ departures, is_global: common }) {
  if (!departures.length || common) return panel("departures", "", "");
  const most = largest(departures.flatMap((each) => [each.here * each.spread, each.everyone * each.spread]));
  panel("departures", "Weights that differ most",
    "A bar is a weight times how much the feature varies among these documents; the effect is the difference between the two.",
    legend(),
    make("ol", { class: "rows" }, ...departures.map((each) =>
      make("li", {}, make("code", { class: "label", text: each.feature }),
        bars(bar(each.here * each.spread, most, "here"), bar(each.everyone * each.spread, most, "everyone")),
        make("span", { class: "figures" },
          unseen("weight in one model for all "), number(each.everyone), make("span", { "aria-hidden": "true", text: " → " }),
          unseen(", here "), number(each.here),
          make("span", { class: "faint" }, " effect ", number(each.effect, { sign: true })))))));
}

const legend = () => make("p", { class: "legend", "aria-hidden": "true" },
  make("span", { class: "here", text: "this query’s model" }), make("span", { class: "everyone", text: "one model for all" }));

// Why one document is above another

/** The document and the one below it; the last one and the one above it. */
function whyHere(id) {
  const documents = shownDocuments();
  if (documents.length < 2) return;
  const place = documents.findIndex((each) => each.id === id);
  const first = Math.min(place, documents.length - 2);
  openWhy(documents[first].id, documents[first + 1].id);
}

function openWhy(above, below) {
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
      state.again = () => attempt(search);
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
  const rows = some.map((term) => row(make("code", { text: term.feature }), values(term), term.here, term.everyone, term.feature));
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

function watchWhy() {
  const dialog = at("why");
  at("close").addEventListener("click", () => dialog.close());
  dialog.addEventListener("click", (event) => event.target === dialog && dialog.close());
  dialog.addEventListener("close", () => {
    forget("why");
    at("reason").replaceChildren();
  });
  for (const name of ["above", "below"]) at(name).addEventListener("change", explain);
}

// The box: judged queries come up while one types

const suggested = { queries: [], active: -1, timer: 0 };

const isOpen = () => !at("suggestions").hidden;

function closeSuggestions() {
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

function watchBox() {
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

// Everything else

document.addEventListener("keydown", (event) => {
  const typing = event.target.closest?.("input, select, textarea, dialog");
  if (event.key !== "/" || typing || event.ctrlKey || event.metaKey || event.altKey || at("search").hidden) return;
  event.preventDefault();
  at("box").focus();
  at("box").select();
});

document.addEventListener("click", (event) => {
  const link = event.target.closest?.("a[href^='/']");
  if (!link || event.button || event.ctrlKey || event.metaKey || event.shiftKey || event.altKey) return;
  const to = new URL(link.href);
  if (to.pathname !== "/" || state.model === null) return;
  event.preventDefault();
  history.pushState(null, "", to);
  arrive();
  scrollTo(0, 0);
  at("main").focus({ preventScroll: true });
});

addEventListener("popstate", () => {
  // A step to another part of the same page is no new question.
  if (state.model && state.place !== location.pathname + location.search) arrive();
});
at("retry").addEventListener("click", () => {
  busy(true);
  state.again();
});
at("token-form").addEventListener("submit", (event) => {
  event.preventDefault();
  sessionStorage.setItem(TOKEN, at("token-box").value.trim());
  state.again();
});
at("beside").addEventListener("change", () => {
  state.chosen = at("beside").value;
  showResults();
});
at("more").addEventListener("click", () => {
  const before = at("ours").children.length;
  state.show = Math.min(state.show + STEP, 1000);
  attempt(async () => {
    await search();
    at("ours").children[before]?.focus({ preventScroll: true });
  });
});
at("copy").addEventListener("click", async () => {
  await navigator.clipboard.writeText(at("request").textContent);
  at("copy").textContent = "Copied";
  say("Copied.");
});

watchColumns();
watchWhy();
watchBox();
attempt(start);
