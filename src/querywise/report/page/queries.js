"use strict";
// The table of every query: found, filtered and sorted here, a hundred rows at a time. All of it is text, never HTML.
(() => {
  const place = document.getElementById("every-query");
  const data = JSON.parse(document.getElementById("queries-data").textContent);
  const ROWS = 100, TOP = 10, METHODS = 12;
  const MOVES = Symbol("difference"); // a method may have any name
  const count = data.ids.length;
  const base = data.methods.indexOf(data.baseline);
  const state = {
    method: data.shown === null ? base : data.methods.indexOf(data.shown),
    words: "", kind: null, outcome: "all", sort: data.shown === null ? "textquery" : MOVES, down: true, page: 0, open: new Set(),
  };
  const loading = new Map(); // the number of a file → what waits for it

  const make = (name, attributes = {}, ...inside) => {
    const element = document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) {
      if (value !== null && value !== undefined && value !== false) element.setAttribute(key, value === true ? "" : value);
    }
    element.append(...inside.filter((each) => each !== null));
    return element;
  };
  const four = (value) => value === null ? "" : value.toFixed(4);
  const signed = (value) => value === null ? "" : (value < 0 ? "−" : "+") + Math.abs(value).toFixed(4);
  const text = (query) => data.texts[query] ?? data.ids[query];
  const difference = (query) => {
    const [ours, theirs] = [data.values[state.method][query], data.values[base][query]];
    return ours === null || theirs === null ? null : ours - theirs;
  };

  // Columns: heading, class of its cells, value to sort by, text of a cell. Of very many methods, some have one: the two
  // that are compared and the first others. Where there is little room, minor columns are left out.
  const listed = () => {
    const two = [base, state.method];
    const others = [...data.methods.keys()].filter((each) => !two.includes(each));
    const kept = new Set([...two, ...others.slice(0, METHODS - 2)]);
    return [...data.methods.keys()].filter((each) => kept.has(each));
  };
  const columns = () => [
    { name: "query", kind: "text", value: text },
    ...(data.classes ? [{ name: "class", kind: "minor", value: (query) => data.classes[query] }] : []),
    { name: "relevant", kind: "number minor", value: (query) => data.relevant[query] },
    ...(state.method === base ? [] : [{ name: "difference", kind: "number", value: difference, shown: signed, moves: true }]),
    ...listed().map((method) => ({
      name: data.methods[method], kind: method === base || method === state.method ? "number method" : "number method minor",
      value: (query) => data.values[method][query], shown: four })),
  ];

  const key = (column) => column.moves ? MOVES : column.kind.split(" ")[0] + column.name;

  const chosen = () => {
    const words = state.words.toLowerCase().split(/\s+/).filter((each) => each);
    const kept = [];
    for (let query = 0; query < count; query++) {
      if (state.kind !== null && data.classes[query] !== state.kind) continue;
      if (state.outcome !== "all") {
        const moved = difference(query);
        const outcome = moved === null || moved === 0 ? "tie" : moved > 0 ? "gain" : "loss";
        if (outcome !== state.outcome) continue;
      }
      if (words.length) {
        const whole = `${data.ids[query]} ${data.texts[query] ?? ""}`.toLowerCase();
        if (!words.every((word) => whole.includes(word))) continue;
      }
      kept.push(query);
    }
    const column = columns().find((each) => key(each) === state.sort) ?? columns()[0];
    const values = new Array(count);
    for (const query of kept) {
      const value = column.value(query) ?? null;
      values[query] = typeof value === "string" ? value.toLowerCase() : value;
    }
    return kept.sort((one, two) => {
      const [a, b] = [values[one], values[two]];
      if (a === null || b === null) return (a === null) - (b === null) || one - two;
      const order = a < b ? -1 : a > b ? 1 : 0;
      return (state.down ? -order : order) || one - two;
    });
  };

  // Rankings

  window.querywiseRankings = (part) => Object.assign(data.rankings, part);
  const withRankings = (query, then) => {
    if (data.rankings[query]) return then(data.rankings[query]);
    const number = data.file[query];
    if (loading.has(number)) return loading.get(number).push([query, then]);
    loading.set(number, [[query, then]]);
    const script = make("script", { src: `rankings/${number}.js` });
    const done = () => {
      const waiting = loading.get(number);
      loading.delete(number);
      for (const [each, call] of waiting) call(data.rankings[each] ?? null);
    };
    script.onload = script.onerror = done;
    document.head.append(script);
  };

  const arrow = (here, there) => here === there ? "" : here < there ? " ↑" : " ↓";
  const unjudged = () => make("span", { title: "not judged" }, make("span", { "aria-hidden": "true" }, "–"),
    make("span", { class: "unseen" }, "not judged"));
  const reasons = (parts) => {
    const made = make("span", { class: "why" }, make("span", { class: "unseen" }, "why: "));
    for (let place = 0; place < parts.length; place += 2) {
      const value = parts[place + 1];
      made.append(place ? ", " : "", `${data.features[parts[place]]} `,
        make("b", { class: value < 0 ? "loss" : "gain" }, (value < 0 ? "−" : "+") + Math.abs(value).toFixed(2)));
    }
    return made;
  };
  // Said above a ranking whose documents have no reasons
  const unexplained = (ranking, method) => {
    if (!data.features || ranking.why?.[method]) return null;
    return make("p", { class: "about" }, data.unexplained[method] ?? "Its reasons were not computed for this query, since they take long; they were for others.");
  };
  const row = (ranking, method, other, document_) => {
    const [here, there] = [ranking.ranks[method][document_], ranking.ranks[other][document_]];
    const grade = ranking.grades[document_];
    const title = ranking.titles?.[document_];
    const name = title ? [title, " ", make("span", { class: "id" }, ranking.documents[document_])] : [ranking.documents[document_]];
    const why = ranking.why?.[method]?.[document_];
    if (why) name.push(reasons(why));
    return make("tr", { class: grade > 0 ? "relevant" : null },
      make("td", { class: "number" }, String(here)),
      make("td", {}, make("span", { class: "grade" }, grade === null ? unjudged() : String(grade))),
      make("td", {}, ...name),
      make("td", { class: "number" }, there ? `${there}${other === base ? arrow(here, there) : ""}` : "not found"));
  };
  const list = (ranking, query, method, other) => {
    const ranks = ranking.ranks[method];
    const ordered = [...ranks.keys()].filter((each) => ranks[each] > 0).sort((one, two) => ranks[one] - ranks[two]);
    const first = ordered.filter((each) => ranks[each] <= TOP);
    const further = ordered.filter((each) => ranks[each] > TOP && ranking.grades[each] > 0);
    const body = make("tbody", {}, ...first.map((each) => row(ranking, method, other, each)));
    if (further.length) {
      body.append(make("tr", { class: "further" }, make("td", { colspan: 4 }, "Relevant, further down")),
        ...further.map((each) => row(ranking, method, other, each)));
    }
    const heads = ["rank", "grade", "document", `rank in ${data.methods[other]}`];
    return make("div", {},
      make("h3", {}, `${data.methods[method]}: ${data.measure} ${four(data.values[method][query])}`),
      unexplained(ranking, method),
      make("table", { "aria-label": `Ranking by ${data.methods[method]}` },
        make("thead", {}, make("tr", {}, ...heads.map((each, number) => make("th", { scope: "col", class: number % 3 ? null : "number" }, each)))), body));
  };
  const opened = (query, width) => {
    const inside = make("div", { class: "inside" });
    const cell = make("td", { colspan: width }, inside);
    const facts = [`query ${data.ids[query]}`, `${data.relevant[query]} relevant`, `${data.candidates[query]} candidates`];
    if (data.classes?.[query]) facts.splice(1, 0, `class ${data.classes[query]}`);
    if (data.distances && data.distances[query] !== null) facts.push(`distance to the nearest training query ${data.distances[query].toPrecision(3)}`);
    const whole = make("p", { class: "whole" }, text(query));
    const link = make("a", { href: `#query=${encodeURIComponent(data.ids[query])}` }, "link to this query");
    const rest = make("div", { class: "rankings" }, make("p", {}, "Loading…"));
    inside.append(whole, make("p", { class: "facts" }, `${facts.join(" · ")} · `, link), rest);
    withRankings(query, (ranking) => {
      if (ranking === null) {
        rest.replaceChildren(make("p", {}, `The rankings of this query are in rankings/${data.file[query]}.js beside this page, which is not there.`));
        return;
      }
      if (ranking.text) whole.textContent = ranking.text;
      const pair = state.method === base ? [[base, base]] : [[base, state.method], [state.method, base]];
      rest.replaceChildren(...pair.map(([method, other]) => list(ranking, query, method, other)));
      if (ranking.why?.some((each) => each)) {
        rest.after(make("p", { class: "about" }, "Below a document: the features that set it apart most from this query's candidates, "
          + "in standard deviations of their scores; of the first five documents, and of the next relevant ones."));
      }
    });
    return make("tr", { class: "opened" }, cell);
  };

  // The table

  const status = make("p", { role: "status" });
  const table = make("table", { class: data.methods.length > 4 ? "all many" : "all", "aria-label": "Every query" });
  const before = make("button", { type: "button" }, "Previous");
  const after = make("button", { type: "button" }, "Next");
  let order = [];

  const toggle = (query, line, button, width) => {
    const open = button.getAttribute("aria-expanded") === "true";
    button.setAttribute("aria-expanded", String(!open));
    if (open) {
      line.nextElementSibling.remove();
      state.open.delete(query);
    } else {
      line.after(opened(query, width));
      state.open.add(query);
    }
  };
  const line = (query, all) => {
    const cells = all.map((column) => {
      const value = column.value(query);
      if (column.name === "query" && column.kind === "text") {
        const button = make("button", { type: "button", class: "open", "aria-expanded": "false" }, value);
        if (data.long[query]) button.append(" ", make("span", { class: "more" }, "more"));
        return make("td", { class: "text" }, button);
      }
      const sign = !column.moves || !value ? "" : value > 0 ? " gain" : " loss";
      return make("td", { class: (column.kind + sign).trim() || null }, column.shown ? column.shown(value) : String(value ?? ""));
    });
    const made = make("tr", { class: "query" }, ...cells);
    made.addEventListener("click", (event) => {
      if (String(getSelection()) && !event.target.closest("button")) return;
      toggle(query, made, made.querySelector("button"), all.length);
    });
    return made;
  };
  const heading = (column, number) => {
    const sorted = state.sort === key(column);
    const button = make("button", { type: "button", title: column.kind.includes("method") ? column.name : null }, column.name);
    button.addEventListener("click", () => {
      state.down = sorted ? !state.down : column.kind.startsWith("number");
      state.sort = key(column);
      state.page = 0;
      sort();
      table.tHead.rows[0].cells[number].querySelector("button").focus();
    });
    return make("th", { scope: "col", class: column.kind.replace("text", "").trim() || null,
      "aria-sort": sorted ? (state.down ? "descending" : "ascending") : null }, button);
  };
  const render = () => {
    const all = columns();
    const shown = order.slice(state.page * ROWS, (state.page + 1) * ROWS);
    const lines = shown.map((query) => line(query, all));
    table.replaceChildren(make("thead", {}, make("tr", {}, ...all.map(heading))), make("tbody", {}, ...lines));
    for (const [number, query] of shown.entries()) {
      if (state.open.delete(query)) toggle(query, lines[number], lines[number].querySelector("button"), all.length);
    }
    const [first, last] = [state.page * ROWS + 1, Math.min((state.page + 1) * ROWS, order.length)];
    const many = (number) => number.toLocaleString("en");
    const found = order.length === count ? `${many(count)} queries` : `${many(order.length)} of ${many(count)} queries`;
    status.textContent = order.length > ROWS ? `${found}; ${many(first)} to ${many(last)} are shown` : found;
    if (order.length > ROWS) status.append(make("span", { class: "printed" }, "; all of them are in queries.csv and values.csv beside this page"));
    before.disabled = state.page === 0;
    after.disabled = last >= order.length;
  };
  const sort = () => { order = chosen(); render(); };
  const turn = (by) => { state.page += by; render(); table.scrollIntoView(); };
  before.addEventListener("click", () => turn(-1));
  after.addEventListener("click", () => turn(1));

  // What is asked for

  const select = (label, options, value, change) => {
    const made = make("select", {}, ...options.map(([key, name]) => make("option", { value: key, selected: key === value }, name)));
    made.addEventListener("change", () => { state.page = 0; change(made.value); sort(); });
    return [make("label", {}, label, made), made];
  };
  const find = make("input", { type: "search", autocomplete: "off" });
  let waiting = 0;
  find.addEventListener("input", () => {
    clearTimeout(waiting);
    waiting = setTimeout(() => { state.words = find.value; state.page = 0; sort(); }, 120);
  });
  const controls = make("div", { class: "controls" }, make("label", {}, "Find in queries", find));
  const resets = [];
  if (data.classes) {
    const kinds = [...new Set(data.classes)].filter((each) => each).sort();
    const [label, made] = select("Class", [["", "all classes"], ...kinds.map((each, number) => [String(number), each])], "",
      (value) => { state.kind = value === "" ? null : kinds[Number(value)]; });
    controls.append(label);
    resets.push(() => { made.value = ""; state.kind = null; });
  }
  if (data.methods.length > 1) {
    const others = data.methods.map((name, number) => [String(number), name]).filter(([number]) => Number(number) !== base);
    const [label] = select(`Compare ${data.baseline} with`, others, String(state.method), (value) => { state.method = Number(value); });
    const outcomes = [["all", "all queries"], ["gain", "gains"], ["loss", "losses"], ["tie", "no change"]];
    const [second, made] = select("Difference", outcomes, "all", (value) => { state.outcome = value; });
    controls.append(label, second);
    resets.push(() => { made.value = "all"; state.outcome = "all"; });
  }
  const linked = () => {
    if (!location.hash.startsWith("#query=")) return;
    const query = data.ids.indexOf(decodeURIComponent(location.hash.slice(7)));
    if (query < 0) return;
    resets.forEach((each) => each());
    find.value = state.words = "";
    order = chosen();
    state.page = Math.floor(order.indexOf(query) / ROWS);
    state.open.add(query);
    render();
    const line_ = table.tBodies[0].querySelectorAll("tr.query")[order.indexOf(query) % ROWS];
    line_.scrollIntoView();
    line_.querySelector("button").focus({ preventScroll: true });
  };
  const region = make("div", { role: "region", "aria-label": "Every query" }, table);
  place.append(controls, make("div", { class: "pager" }, before, after, status), region);
  sort();
  linked();
  addEventListener("hashchange", linked);
})();
