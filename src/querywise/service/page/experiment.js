// The experiment: which of two models users prefer, how that went on, and whether everything is logged.

import { ask } from "./asking.js";
import { at, counted, make, unseen, written } from "./elements.js";
import { panel } from "./own.js";
import { state, wantsExperiment } from "./state.js";
import { say, view } from "./views.js";

const AGAIN = 30; // seconds after which it is looked at anew
const SOON = 2; // where the log is being read for the first time
const SVG = "http://www.w3.org/2000/svg";
const HEIGHT = 260;
const LEFT = 46; // room for the numbers of an axis
const BELOW = 40;
let timer = null;
let shown = null;
let told = null;

export async function showExperiment() {
  clearTimeout(timer);
  const found = await ask("experiment", "/v1/online");
  if (!wantsExperiment()) return;
  shown = found;
  const { verdict } = found;
  const main = verdict?.contests.at(-1);
  const title = heading(verdict, main);
  at("experiment-title").textContent = title;
  const said = verdict ? verdict.notes.at(-1) : found.problem ?? "The log is being read.";
  at("experiment-verdict").textContent = said;
  const left = verdict ? verdict.notes.slice(1, -verdict.contests.length) : [];
  const notes = [...(found.failing ? [`The log cannot be written: ${found.failing}`] : []), ...left];
  at("experiment-note").hidden = notes.length === 0;
  at("experiment-note").textContent = notes.join(" ");
  showArms(found, main);
  showHour(found);
  showKinds(verdict?.kinds ?? []);
  showLost(verdict);
  document.title = `${title} – querywise`;
  view("experiment");
  drawCurve();
  if (told !== said) say(`${title}. ${said}`);
  told = said;
  timer = setTimeout(again, 1000 * (verdict || found.problem ? AGAIN : SOON));
}

/** Look anew, without a word; what does not come now comes the next time. */
async function again() {
  if (!wantsExperiment()) return;
  try {
    await showExperiment();
  } catch {
    timer = setTimeout(again, 1000 * AGAIN);
  }
}

function heading(verdict, main) {
  if (!main) return "The experiment";
  if (main.better === null) return "Not decided yet";
  return `Users prefer ${main.better ? main.name : verdict.arms[0]}`;
}

function role(name, { model, against }) {
  return name === model ? "served" : name === against ? "compared with it" : "";
}

function table(heads, rows) {
  return make("table", { class: "figures-table" },
    make("thead", {}, make("tr", {}, ...heads.map((text) => make("th", { scope: "col", text })))),
    make("tbody", {}, ...rows.map(([first, ...cells]) => make("tr", {}, make("td", {}, ...first), ...cells.map((cell) => make("td", {}, cell))))));
}

const share = (value) => (value === null ? "–" : written(value, false, true));
const between = ([low, high]) => `${(100 * low).toFixed(1)} to ${(100 * high).toFixed(1)} %`;

function showArms(found, main) {
  const { verdict } = found;
  const names = verdict?.arms ?? [found.model, found.against].filter(Boolean);
  const wins = main ? [main.losses, main.wins] : [];
  const rows = names.map((name, place) => {
    const own = verdict?.contests[place - 1];
    const won = names.length === 2 ? wins[place] : own?.wins;
    return [[make("code", { text: name }), make("div", { class: "faint", text: role(name, found) })],
      won === undefined ? "–" : won.toLocaleString("en"), own ? share(own.win_rate) : "", own ? between(own.interval) : ""];
  });
  const about = verdict ? verdict.notes[0] : "Draws count once their click windows, of 30 minutes, have closed.";
  panel("arms", "The models", about, table(["version", "draws won", "win rate", "between"], rows));
}

const COUNTS = [
  ["interleaved", "answers of both models"], ["alone", "answers of the served model alone"],
  ["accepted", "clicks logged"], ["duplicates", "clicks sent again"], ["late", "clicks after their window"],
  ["unknown", "clicks on ids not made here", true], ["failed", "answers where the other model failed", true],
  ["lost", "requests with clicks that were not kept", true], ["impressions_lost", "impressions lost", true],
];

function showHour({ hour }) {
  const rows = COUNTS.map(([name, text, wrong]) => {
    const count = make("span", { class: wrong && hour[name] > 0 ? "wrong-count" : null, text: hour[name].toLocaleString("en") });
    return [[text], wrong && hour[name] > 0 ? make("span", {}, unseen("look into this: "), count) : count];
  });
  panel("hour", "The last hour", "What this service counted; others that share the log count for themselves.", table(["what", "count"], rows));
}

function showKinds(kinds) {
  const rows = kinds.map((each) => [[each.name, make("div", { class: "faint", text: outcome(each) })],
    `${each.wins.toLocaleString("en")} : ${each.losses.toLocaleString("en")}`, between(each.interval)]);
  panel("kinds", "Kinds of query", "Tested together: all of them are wrong in at most 5 % of experiments with equal models.",
    ...(rows.length ? [table(["queries", "won : lost", "win rate between"], rows)] : []));
}

const outcome = ({ better, draws }) =>
  `${counted(draws, "draw")}, ${better === null ? "not decided" : better ? "better" : "worse"}`;

function showLost(verdict) {
  const lost = verdict?.lost ?? [];
  const rows = lost.map(({ query, wins, losses }) => [[state.model.searches ? make("a", { href: `/?${new URLSearchParams({ q: query })}`, text: query }) : query],
    `${wins.toLocaleString("en")} : ${losses.toLocaleString("en")}`]);
  panel("lost", "Queries it loses most", `Where users click the documents of ${verdict?.arms[0] ?? ""} more.`,
    ...(rows.length ? [table(["query", "won : lost"], rows)] : []));
}

function svg(tag, properties, text) {
  const made = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(properties)) made.setAttribute(name, value);
  if (text !== undefined) made.textContent = text;
  return made;
}

/** The win rate with its bounds, after every draw with a winner. */
function drawCurve() {
  const { verdict } = shown;
  const points = verdict?.curve ?? [];
  at("curve").hidden = points.length === 0;
  if (points.length === 0) return;
  const { name, alpha } = verdict.contests.at(-1);
  const width = Math.max(at("curve").clientWidth - 44, 240);
  const last = points.at(-1).draws;
  const scale = last > 10 ? (draws) => Math.log(draws) / Math.log(last) : (draws) => (last > 1 ? (draws - 1) / (last - 1) : 1);
  const x = (draws) => LEFT + scale(draws) * (width - LEFT - 12);
  const y = (rate) => 10 + (1 - rate) * (HEIGHT - BELOW - 10);
  const along = (key) => points.map((each) => `${x(each.draws).toFixed(1)} ${y(each[key]).toFixed(1)}`);
  const said = `Win rate of ${name} after ${counted(last, "draw")} with a winner: ${share(points.at(-1).rate)}, between ${between([points.at(-1).low, points.at(-1).high])}.`;
  const plot = svg("svg", { class: "plot", viewBox: `0 0 ${width} ${HEIGHT}`, role: "img", "aria-label": said });
  for (const rate of [0, 0.25, 0.5, 0.75, 1]) {
    plot.append(svg("line", { class: rate === 0.5 ? "level" : "grid", x1: LEFT, x2: width - 12, y1: y(rate), y2: y(rate) }),
      svg("text", { x: LEFT - 8, y: y(rate) + 4, "text-anchor": "end" }, `${100 * rate} %`));
  }
  plot.append(svg("path", { class: "band", d: `M${along("low").join("L")}L${along("high").reverse().join("L")}Z` }),
    svg("path", { class: "rate", d: `M${along("rate").join("L")}` }));
  for (const draws of ticks(last, width)) {
    plot.append(svg("text", { x: x(draws), y: HEIGHT - BELOW + 18, "text-anchor": draws === last ? "end" : "middle" }, draws.toLocaleString("en")));
  }
  plot.append(svg("text", { x: (LEFT + width) / 2, y: HEIGHT - 4, "text-anchor": "middle" }, "draws with a winner"));
  panel("curve", `Win rate of ${name}`, "The line is the share of draws with a winner that it won. The true one is within the band at " +
    `all points together with ${Number((100 * (1 - alpha)).toPrecision(4))} %; decided once the band has left one half.`, plot);
}

/** Round numbers of draws for the axis, and the last one, none too near to another. */
function ticks(last, width) {
  const round = [];
  for (let draws = 1; draws <= last; draws *= 10) round.push(draws);
  const least = last > 10 ? Math.log(last) * Math.min(60 / (width - LEFT), 0.5) : 0;
  return [...round.filter((draws) => last > 10 && Math.log(last / draws) > least), last];
}

addEventListener("resize", () => {
  if (!at("experiment").hidden) drawCurve();
});
