/* What the theme's script and ours need on each page and no page holds. recommender/site/frame.py sets THEME. */

const language = document.documentElement.lang;
const texts = THEME.texts[language];
const base = new URL("..", document.currentScript.src);
// The list of versions is in the folder of the English pages only.
const settings = { base, features: THEME.features, translations: texts, search: "", version: language === "en" ? THEME.version : null };

function add(place, name, attributes, content = "") {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.innerHTML = content;
  document.querySelector(place).append(element);
}

add("body", "script", { type: "application/json", id: "__config" }, JSON.stringify(settings));
add("body", "div", { class: "md-dialog", "data-md-component": "dialog" }, '<div class="md-dialog__inner md-typeset"></div>');
add("body", "input", { type: "checkbox", "data-md-toggle": "search", hidden: "" });
add("main", "button", { type: "button", class: "md-top md-icon", "data-md-component": "top", hidden: "" }, `<i class="icon top"></i>${texts.top}`);
for (const link of document.querySelectorAll(".md-nav--secondary li > a")) link.classList.add("md-nav__link");
Object.assign(document.querySelector("[data-search]").dataset, { index: new URL(texts.index, base), base, none: texts["search.result.none"], reset: texts["search.reset"] });
