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
globalThis.choosePalette = () => {
  for (const [key, value] of Object.entries(__md_get("__palette")?.color ?? {})) document.body.setAttribute(`data-md-color-${key}`, value);
};
