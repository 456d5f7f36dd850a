/* Elements from names, attributes and children. Text is never read as HTML. */

export function make(name, attributes = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) if (value !== null && value !== undefined) element.setAttribute(key, value);
  element.append(...children);
  return element;
}

/** Copy a text, and say on the button that it is done or how to do it by hand. */
export async function copy(button, text, texts) {
  const label = (button.dataset.label ??= button.textContent);
  const name = (button.dataset.name ??= button.ariaLabel ?? "");
  try {
    await navigator.clipboard.writeText(text);
    button.textContent = texts.copied;
  } catch {
    button.textContent = texts.uncopied;
  }
  button.ariaLabel = null;  // what it says now is read out
  setTimeout(() => Object.assign(button, { textContent: label, ariaLabel: name || null }), 2000);
}

/** Put values into the {names} of a text. */
export function fill(text, values) {
  return text.replace(/\{(\w+)\}/g, (whole, name) => values[name] ?? whole);
}

export function figure(value, digits = value >= 100 ? 0 : value >= 10 ? 1 : value >= 1 ? 2 : 3) {
  return value.toLocaleString("en", { minimumFractionDigits: digits, maximumFractionDigits: digits });
}
