// Texts of documents: words that were asked for stand out, and what is long is cut.

import { make } from "./elements.js";
import { drawTies } from "./ties.js";

const COMMON = new Set("a an and are as at be by do for from how i in is it its of on or that the this to what with".split(" "));

/** A text whose words that the query asks for, in any form, stand out. */
export function marked(text, query) {
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

/** A button after each text that does not fit, to read all of it. */
export function cutLong() {
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
