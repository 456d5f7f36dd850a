/* A text box with a list to choose from: the combobox of the ARIA Authoring Practices, with filtering by alias. */

const SHOWN = 60;
const plain = text => text.toLowerCase().replace(/[\s_-]+/g, "");

/** Return the items that hold every word of the text, in their id, name or aliases; exact and early matches first. */
export function matching(items, text) {
  const words = text.toLowerCase().split(/[\s/_-]+/).filter(Boolean);
  const whole = plain(text);
  const rank = item => (item.names.some(name => plain(name) === whole) ? 0 : item.names.some(name => plain(name).startsWith(whole)) ? 1 : 2);
  return items
    .filter(item => words.every(word => item.search.includes(word)))
    .map((item, place) => [item.part ? 3 : rank(item), place, item])
    .sort((one, other) => one[0] - other[0] || one[1] - other[1])
    .map(each => each[2]);
}

export function prepared(items) {
  return items.map(item => {
    const names = [item.id, item.name, ...(item.aliases ?? [])];
    return { ...item, names, search: `${names.join(" ")} ${names.map(plain).join(" ")}`.toLowerCase() };
  });
}

/** Return the id of the item that goes by this name, or the text. */
export function named(items, text) {
  return prepared(items).find(item => item.names.some(name => plain(name) === plain(text)))?.id ?? text;
}

export function combobox(input, items, chosen) {
  const list = document.getElementById(input.getAttribute("aria-controls"));
  let active = -1;

  const options = () => [...list.children];

  function open(all) {
    const found = matching(items, all ? "" : input.value.trim()).slice(0, SHOWN);
    list.replaceChildren(...found.map((item, place) => {
      const option = document.createElement("li");
      option.id = `${list.id}-${place}`;
      option.role = "option";
      option.dataset.value = item.id;
      option.setAttribute("aria-selected", "false");
      const name = document.createElement("span");
      name.textContent = item.name;
      const detail = document.createElement("small");
      detail.textContent = item.detail;
      option.append(name, detail);
      return option;
    }));
    active = -1;
    input.removeAttribute("aria-activedescendant");
    show(found.length > 0);
  }

  function show(on) {
    list.hidden = !on;
    input.setAttribute("aria-expanded", String(on));
  }

  function move(to) {
    const every = options();
    every[active]?.setAttribute("aria-selected", "false");
    active = (to + every.length) % every.length;
    every[active].setAttribute("aria-selected", "true");
    every[active].scrollIntoView({ block: "nearest" });
    input.setAttribute("aria-activedescendant", every[active].id);
  }

  function choose(option) {
    input.value = option.dataset.value;
    show(false);
    chosen();
  }

  input.addEventListener("input", () => open(false));
  input.addEventListener("click", () => list.hidden && (input.select(), open(true)));
  input.addEventListener("keydown", event => {
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      event.preventDefault();
      if (list.hidden) open(!input.value);
      if (options().length) move(active < 0 && event.key === "ArrowUp" ? -1 : active + (event.key === "ArrowDown" ? 1 : -1));
    } else if (event.key === "Enter") {
      event.preventDefault();
      if (!list.hidden && active >= 0) choose(options()[active]);
      else {
        show(false);
        chosen();
      }
    } else if (event.key === "Escape" && !list.hidden) {
      event.stopPropagation();
      show(false);
    }
  });
  input.addEventListener("blur", () => show(false));
  // Before the blur, which hides the list.
  list.addEventListener("pointerdown", event => {
    event.preventDefault();
    const option = event.target.closest("[role=option]");
    if (option) choose(option);
  });
}
