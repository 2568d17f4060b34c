// The same document in both lists: a line between, and both lit.

import { at } from "./elements.js";

export function drawTies() {
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

export function light(id) {
  for (const each of document.querySelectorAll("#columns [data-id]")) each.classList.toggle("lit", each.dataset.id === id);
  at("columns").classList.toggle("lighting", id !== null);
}
