/* Elements from names, attributes and children. Text is never read as HTML. */

export function make(name, attributes = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) if (value !== null && value !== undefined) element.setAttribute(key, value);
  element.append(...children);
  return element;
}

/** Put values into the {names} of a text. */
export function fill(text, values) {
  return text.replace(/\{(\w+)\}/g, (whole, name) => values[name] ?? whole);
}

export function figure(value, digits = value >= 100 ? 0 : value >= 10 ? 1 : value >= 1 ? 2 : 3) {
  return value.toLocaleString("en", { minimumFractionDigits: digits, maximumFractionDigits: digits });
}
