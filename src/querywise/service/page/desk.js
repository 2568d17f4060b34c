// The judging page: one document of one query at a time, graded by somebody with a name.

import { ask, Problem, TOKEN } from "./asking.js";
import { at, counted, make } from "./elements.js";
import { showPanels, showStanding, takeOut } from "./panels.js";
import { say } from "./views.js";

const NAME = "querywise.judge";
const MEANINGS = { 1: ["not relevant", "relevant"], 3: ["not about it", "about it, no answer", "most of the answer", "a full answer"] };
const LINES = [["0 – 9", "give that grade, and go on"], ["n →", "next document"], ["p ←", "previous document"],
  ["s", "skip: it comes again at the end"], ["u", "undo your last grade"], ["e", "write a note; Ctrl Enter keeps it, Esc leaves it"],
  ["x", "take the grade of this document back"], ["?", "these keys"]];

const desk = { judge: null, state: null, pair: null, last: null, busy: false };

/** Show one part of the page. */
function part(name) {
  for (const each of ["token", "ask-name", "problem", "judging"]) at(each).hidden = each !== name;
  for (const each of ["who", "far"]) at(each).hidden = name !== "judging";
  if (name !== "judging") at("done-bar").style.width = "0";
}

/** Do one thing at a time; say what goes wrong where it did. */
async function attempt(doing) {
  if (desk.busy) return;
  desk.busy = true;
  at("main").setAttribute("aria-busy", "true");
  try {
    await doing();
  } catch (error) {
    if (!(error instanceof Problem)) throw error;
    wrong(error, doing);
  } finally {
    desk.busy = false;
    at("main").setAttribute("aria-busy", "false");
  }
}

function wrong(error, doing) {
  if (error.status === 401) {
    if (sessionStorage.getItem(TOKEN) !== null) at("token-title").textContent = "That token was not accepted";
    sessionStorage.removeItem(TOKEN);
    part("token");
    at("token-box").value = "";
    at("token-box").focus();
  } else if (desk.pair === null) {
    at("problem-message").textContent = error.message;
    at("retry").onclick = () => attempt(doing);
    part("problem");
  } else at("wrong").textContent = error.message;
}

async function start() {
  desk.state = await ask("state", "/v1/judging");
  const name = localStorage.getItem(NAME);
  if (name) await enter(name);
  else askName();
}

function askName() {
  const known = desk.state.judges.map(({ name }) => make("button", { type: "button", text: name, onclick: () => attempt(() => enter(name)) }));
  at("ask-lead").textContent = `${counted(desk.state.pairs, "document")} of ${counted(desk.state.queries, "query", "queries")} are to be graded. `
    + "Your name stands beside your grades. This browser keeps it, so you are asked once.";
  at("known").hidden = known.length === 0;
  at("known-names").replaceChildren(...known);
  desk.pair = null;
  part("ask-name");
  at("name-box").focus();
}

async function enter(name) {
  let pair;
  try {
    pair = await ask("pair", `/v1/judging/pair?${new URLSearchParams({ judge: name })}`);
  } catch (error) {
    if (!(error instanceof Problem) || error.status !== 422) throw error;
    askName();
    at("name-wrong").textContent = error.message;
    return;
  }
  localStorage.setItem(NAME, name);
  Object.assign(desk, { judge: name, last: null });
  at("name-wrong").textContent = "";
  at("who-name").textContent = name;
  show(pair);
  await refresh();
}

/** What has changed for everybody. */
async function refresh() {
  desk.state = await ask("state", "/v1/judging");
  showPanels(desk.state, desk.judge);
}

function show(pair) {
  desk.pair = pair;
  part("judging");
  const { place, pairs, graded, grade, others } = pair;
  at("far").textContent = `${place.toLocaleString("en")} of ${counted(pairs, "document")}, ${(pairs - graded).toLocaleString("en")} left`;
  at("done-bar").style.width = `${(100 * graded) / pairs}%`;
  at("all-done").hidden = graded < pairs;
  at("all-done").textContent = `You have graded all ${counted(pairs, "document")}. You may still look at them and change grades.`;
  at("asked").textContent = pair.query_text;
  at("paper-title").textContent = pair.title || "A document without a title"; // no word stands out: that would favor systems of words
  at("paper-text").textContent = pair.text;
  at("paper-cut").hidden = !pair.cut;
  at("grades").replaceChildren(...Array.from({ length: desk.state.highest + 1 }, (_, each) => make("button", {
    type: "button", class: "mark", "data-grade": each, "aria-pressed": String(each === grade), onclick: () => attempt(() => give(each)),
  }, make("strong", { text: each }), make("span", { text: MEANINGS[desk.state.highest]?.[each] ?? "" }))));
  at("wrong").textContent = "";
  at("others").hidden = others === null;
  at("others").textContent = others === null ? "" : told(others);
  at("note-box").value = pair.note;
  at("note-open").classList.toggle("noted", pair.note !== "");
  note(pair.note !== "");
  at("last").hidden = desk.last === null || (desk.last.query === pair.query && desk.last.document === pair.document);
  at("paper").scrollTop = 0;
  say(`${pair.query_text}: ${pair.title}. ${grade === null ? "No grade yet." : `Your grade is ${grade}.`}`);
}

function told(others) {
  const given = Object.entries(others).map(([name, grade]) => `${name} ${grade}`);
  return given.length ? `Grades of others: ${given.join(", ")}.` : "Nobody else has graded this one yet.";
}

const about = ({ query, document }) => ({ judge: desk.judge, query, document });

async function give(grade) {
  const { pair } = desk;
  if (grade !== null && grade > desk.state.highest) return;
  const kept = await ask("grade", "/v1/judging/grade", { ...about(pair), grade });
  desk.last = null;
  if (grade === null) show(kept);
  else {
    const other = Object.keys(kept.others ?? {}).length ? ` ${told(kept.others)}` : "";
    at("last").textContent = `“${pair.title || pair.document}” has your grade ${grade}.${other}`;
    desk.last = kept;
    if (kept.graded < kept.pairs) await move({ after: kept.place });
    else show(kept);
  }
  await refresh();
}

async function move(where) {
  if (where.place < 1 || where.place > desk.pair.pairs) return say("There is no further document.");
  show(await ask("pair", `/v1/judging/pair?${new URLSearchParams({ judge: desk.judge, ...where })}`));
  return null;
}

async function undo() {
  const undone = await ask("undo", "/v1/judging/undo", { judge: desk.judge });
  desk.last = null;
  show(undone);
  say(`Taken back. ${undone.grade === null ? "This document has no grade now." : `Its grade is ${undone.grade} again.`}`);
  await refresh();
}

/** Open or close the note; the document has the keys again once it is closed. */
function note(open) {
  at("note-form").hidden = !open;
  at("note-open").setAttribute("aria-expanded", String(open));
}

async function keepNote() {
  const kept = await ask("note", "/v1/judging/note", { ...about(desk.pair), note: at("note-box").value });
  show(kept);
  at("paper").focus();
  say(kept.note ? "The note is kept." : "There is no note.");
}

const MOVES = {
  n: () => move({ place: desk.pair.place + 1 }), p: () => move({ place: desk.pair.place - 1 }),
  s: () => move({ after: desk.pair.place }), u: undo, x: () => give(null),
};
MOVES.ArrowRight = MOVES.n;
MOVES.ArrowLeft = MOVES.p;

function writeNote() {
  note(true);
  at("note-box").focus();
}

document.addEventListener("keydown", (event) => {
  if (at("judging").hidden || event.altKey || event.metaKey) return;
  if (event.target === at("note-box")) {
    if (event.key === "Enter" && event.ctrlKey) attempt(keepNote);
    else if (event.key === "Escape") {
      at("note-box").value = desk.pair.note;
      note(desk.pair.note !== "");
      at("paper").focus();
    }
    return;
  }
  if (event.ctrlKey || event.repeat || event.target.closest("input, textarea, select, dialog")) return;
  const key = event.key.length === 1 ? event.key.toLowerCase() : event.key;
  if (/^[0-9]$/.test(key)) attempt(() => give(Number(key)));
  else if (MOVES[key]) attempt(MOVES[key]);
  else if (key === "e") writeNote();
  else if (key === "?") at("help").showModal();
  else return;
  event.preventDefault();
});

for (const [id, key] of [["back", "p"], ["forth", "n"], ["skip", "s"], ["undo", "u"]]) at(id).addEventListener("click", () => attempt(MOVES[key]));
at("note-open").addEventListener("click", () => (at("note-form").hidden ? writeNote() : note(false)));
at("note-form").addEventListener("submit", (event) => {
  event.preventDefault();
  attempt(keepNote);
});
at("help-open").addEventListener("click", () => at("help").showModal());
at("help-close").addEventListener("click", () => at("help").close());
at("change").addEventListener("click", () => attempt(async () => {
  desk.state = await ask("state", "/v1/judging");
  askName();
}));
at("name-form").addEventListener("submit", (event) => {
  event.preventDefault();
  attempt(() => enter(at("name-box").value.trim().normalize("NFC").replace(/\s+/g, "_")));
});
at("token-form").addEventListener("submit", (event) => {
  event.preventDefault();
  sessionStorage.setItem(TOKEN, at("token-box").value.trim());
  attempt(start);
});
at("export-panel").addEventListener("click", (event) => {
  const { of } = event.target.dataset;
  if (of) attempt(() => takeOut(of));
});
at("standing-panel").addEventListener("click", (event) => {
  if ("stand" in event.target.dataset) attempt(showStanding);
});
at("keys").append(...LINES.flatMap(([keys, does]) => [
  make("dt", {}, ...keys.split(" ").map((key) => (key === "–" ? " – " : make("kbd", { text: key })))), make("dd", { text: does })]));
attempt(start);
