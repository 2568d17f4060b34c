// The page of the service: asks the API at this address and shows what it answers.

import { ask, forget, TOKEN } from "./asking.js";
import { closeSuggestions, watchBox } from "./box.js";
import { watchColumns } from "./columns.js";
import { at } from "./elements.js";
import { showExperiment } from "./experiment.js";
import { watchFeatures } from "./features.js";
import { search, showResults } from "./results.js";
import { arrive, askedFor, SHOWN, state, stepsBy, wantsExperiment } from "./state.js";
import { showStanding, showSteps, watchSteps } from "./steps.js";
import { attempt, busy, say } from "./views.js";
import { showBare, showModel, showWelcome } from "./welcome.js";
import { watchWhy } from "./why.js";

const STEP = 20; // documents that "show more" adds

function arrived() {
  state.place = location.pathname + location.search;
  closeSuggestions();
  for (const purpose of ["search", "examples", "experiment"]) forget(purpose);
  if (at("why").open) at("why").close();
  state.asked = askedFor();
  state.by = stepsBy();
  state.show = SHOWN;
  if (wantsExperiment() && state.model.experiment) attempt(showExperiment);
  else if (state.asked !== null) attempt(search);
  else if (!state.model.searches && state.model.judged_queries === 0) showBare();
  else {
    at("box").value = "";
    showStanding();
    attempt(async () => showWelcome(state.model.judged_queries ? (await ask("examples", "/v1/queries?limit=500")).queries : []));
  }
}

async function start() {
  busy(true);
  state.model = await ask("model", "/v1/model");
  showModel();
  showSteps();
  arrive();
}

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

addEventListener("arrive", arrived);
watchColumns();
watchFeatures();
watchSteps();
watchWhy();
watchBox();
attempt(start);
