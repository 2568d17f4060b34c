// Judging, where the service keeps judgments: one grade for a document, in both lists.

import { ask, Problem } from "./asking.js";
import { make } from "./elements.js";
import { arrive, state } from "./state.js";
import { drawTies } from "./ties.js";
import { say, showToken } from "./views.js";

const judging = { last: Promise.resolve() }; // one after the other, so that the last click counts

/** A button for every grade; the one that is pressed in is what the document was given, and pressing it takes it back. */
export function judged({ id, title }) {
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

export function judge(id, title, grade) {
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
        state.again = arrive;
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
