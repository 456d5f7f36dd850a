// What the theme has on each page: what it keeps of a reader's choices, and the chosen palette before the first paint.
// The names are those that the theme's script uses.
globalThis.__md_scope = new URL("..", document.currentScript.src);
globalThis.__md_get = (name, storage = localStorage, scope = __md_scope) => JSON.parse(storage.getItem(`${scope.pathname}.${name}`));
globalThis.__md_set = (name, value, storage = localStorage, scope = __md_scope) => {
  try {
    storage.setItem(`${scope.pathname}.${name}`, JSON.stringify(value));
  } catch {
    // The browser keeps nothing for this site.
  }
};
const SCHEMES = [["light", "default"], ["dark", "slate"]];  // as in mkdocs.yml
globalThis.choosePalette = () => {
  const form = document.querySelector("[data-md-component=palette]");
  form.innerHTML = form.dataset.names.split("|").map((name, place) => `
    <input class="md-option" data-md-color-media="(prefers-color-scheme: ${SCHEMES[place][0]})" data-md-color-scheme="${SCHEMES[place][1]}" aria-label="${name}" type="radio" name="__palette" id="__palette_${place}">
    <label class="md-header__button md-icon" title="${name}" for="__palette_${1 - place}" hidden><i class="icon palette"></i></label>`).join("");
  for (const [key, value] of Object.entries(__md_get("__palette")?.color ?? {})) document.body.setAttribute(`data-md-color-${key}`, value);
};
