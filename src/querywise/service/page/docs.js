// The reference of the API: reads /openapi.json of this service and shows it. Everything goes in as text.

import { TOKEN } from "./asking.js";
import { at, make } from "./elements.js";

const nameOf = (reference) => reference.split("/").pop();

/** What a value must be: a type in words, with links to the bodies that are described below. */
function kind(schema) {
  if (schema === undefined) return ["anything"];
  if (schema.$ref) return [make("a", { href: `#${nameOf(schema.$ref)}`, text: nameOf(schema.$ref) })];
  const several = schema.anyOf ?? schema.oneOf;
  if (several) return several.flatMap((each, place) => [...(place ? [" or "] : []), ...kind(each)]);
  if (schema.type === "array") return ["array of ", ...kind(schema.items)];
  if (schema.type === "object" && typeof schema.additionalProperties === "object") return ["object of ", ...kind(schema.additionalProperties)];
  const limits = [["minimum", "from"], ["maximum", "to"], ["maxLength", "up to length"]]
    .filter(([name]) => schema[name] !== undefined).map(([name, word]) => ` ${word} ${schema[name]}`);
  return [[schema.type ?? "anything"].flat().join(" or ") + limits.join("")];
}

function fields(rows) {
  return make("ul", {}, ...rows.map(([name, schema, required, about]) =>
    make("li", {}, make("code", { text: name }), " ", ...kind(schema), required ? ", required" : null,
      about ? make("p", { class: "about", text: about }) : null)));
}

function operation(path, method, said) {
  const body = said.requestBody?.content["application/json"].schema;
  const answer = said.responses["200"]?.content?.["application/json"]?.schema;
  return make("section", {},
    make("h2", {}, make("code", { text: `${method.toUpperCase()} ${path}` })),
    make("p", { text: said.description ?? said.summary ?? "" }),
    body ? make("p", {}, "Takes ", ...kind(body), ".") : null,
    said.parameters?.length ? fields(said.parameters.map((each) => [each.name, each.schema, each.required, each.description])) : null,
    answer && Object.keys(answer).length ? make("p", {}, "Gives ", ...kind(answer), ".") : null);
}

function body(name, said) {
  const required = new Set(said.required ?? []);
  return make("section", { id: name }, make("h3", {}, make("code", { text: name })), make("p", { text: said.description ?? "" }),
    fields(Object.entries(said.properties ?? {}).map(([field, schema]) => [field, schema, required.has(field), schema.description])));
}

async function show() {
  const token = sessionStorage.getItem(TOKEN);
  const answer = await fetch("/openapi.json", { headers: token ? { authorization: `Bearer ${token}` } : {} }).catch(() => null);
  if (!answer?.ok) {
    at("about").replaceChildren(answer?.status === 401 ? "This service asks for a token. Give it on " : "The service did not answer. Go to ",
      make("a", { href: "/", text: "the page" }), ", then come back.");
    return;
  }
  const said = await answer.json();
  at("about").textContent = said.info.description;
  at("paths").replaceChildren(...Object.entries(said.paths).flatMap(([path, methods]) =>
    Object.entries(methods).map(([method, each]) => operation(path, method, each))));
  at("bodies-title").hidden = false;
  at("bodies").replaceChildren(...Object.entries(said.components.schemas).map(([name, each]) => body(name, each)));
  document.getElementById(location.hash.slice(1))?.scrollIntoView();
}

show();
