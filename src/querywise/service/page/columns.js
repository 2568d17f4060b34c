// The two lists, gone through by keyboard or pointer.

import { at } from "./elements.js";
import { judge } from "./judging.js";
import { state } from "./state.js";
import { cutLong } from "./texts.js";
import { drawTies, light } from "./ties.js";
import { whyHere } from "./why.js";

const itemOf = (event) => event.target.closest?.("#columns li[data-id]") ?? null;

export function watchColumns() {
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
export function stop(item) {
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
