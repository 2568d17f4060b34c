// Which part of the page is seen, and what goes wrong.

import { Problem, TOKEN } from "./asking.js";
import { at } from "./elements.js";
import { state } from "./state.js";

const VIEWS = ["welcome", "bare", "token", "problem", "nothing", "results", "experiment"];

export function view(name) {
  at("main").dataset.view = name;
  for (const each of VIEWS) at(each).hidden = each !== name;
  for (const each of ["rankings", "experiment"]) {
    if ((name === "experiment") === (each === "experiment")) at(`tab-${each}`).setAttribute("aria-current", "page");
    else at(`tab-${each}`).removeAttribute("aria-current");
  }
  document.querySelector(".keys").hidden = name !== "results";
  document.querySelector(".keys .grades").hidden = !state.found?.judging;
  at("columns").classList.remove("waiting");
  busy(false);
}

export function busy(is) {
  at("progress").hidden = !is;
  at("main").setAttribute("aria-busy", String(is));
}

export const say = (text) => {
  at("status").textContent = text;
};

function showProblem(message) {
  at("problem-message").textContent = message;
  view("problem");
  say("");
}

export function showToken() {
  const refused = sessionStorage.getItem(TOKEN) !== null;
  sessionStorage.removeItem(TOKEN);
  at("token-title").textContent = refused ? "That token was not accepted" : "This service asks for a token";
  view("token");
  at("token-box").value = "";
  at("token-box").focus();
}

/** Do something that asks; say what went wrong where it did. */
export async function attempt(doing) {
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
