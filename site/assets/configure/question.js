/* The question: the form's fields, the command line's words, and the address. A field's name is its option's. */

const SWITCH = "text-only";
const OLD = { "prompt-tokens": "input-tokens", concurrency: "load", isl: "input-tokens", osl: "output-tokens", images: "image" };
const LISTS = ["with", "without"];

export class Question {
  constructor(form) {
    this.form = form;
    this.extra = new Map();  // what the address has and no field can show: the recommender says what is wrong with it
    form.addEventListener("input", event => this.extra.delete(event.target.name));
  }

  field(name) {
    return this.form.elements[name];
  }

  /** Return the options and values that are set, in the order of the form. */
  values() {
    const values = [];
    const text = name => this.field(name).value.trim();
    const add = (name, value) => value && values.push([name, value]);
    add("model", text("model"));
    const count = text("count");
    add("gpu", text("gpu") && count && count !== "1" ? `${text("gpu")}:${count}` : text("gpu"));
    add(this.field("arrival").value, text("amount"));
    for (const name of this.#others()) {
      if (name === "image" && /^(none|text|0)$/i.test(text(name))) add(SWITCH, "yes");
      else if (LISTS.includes(name)) for (const each of text(name).split(/[\s,]+/)) add(name, each);
      else if (this.field(name).type === "file") add(name, this.field(name).files[0]?.name);
      else add(name, this.extra.has(name) ? "" : text(name));
    }
    return [...values, ...this.extra];
  }

  #others() {
    const names = [...new Set([...this.form.elements].map(each => each.name).filter(Boolean))];
    return names.filter(name => !["model", "gpu", "count", "arrival", "amount"].includes(name));
  }

  words() {
    return this.values().flatMap(([name, value]) => (name === SWITCH ? [`--${name}`] : [`--${name}`, value]));
  }

  /** Return the address of the question, without what only this browser has. */
  address() {
    const values = this.values().filter(([name]) => this.field(name)?.type !== "file");
    return `?${new URLSearchParams(values)}`;
  }

  /** Fill the form from an address; one without values leaves it as it is. */
  restore(search) {
    const values = [...new URLSearchParams(search)].filter(([, value]) => value !== "");
    if (!values.length) return;
    this.clear();
    const lists = new Map();
    const sized = values.some(([name]) => (OLD[name] ?? name) === "image");
    for (let [name, value] of values) {
      name = OLD[name] ?? name;
      if (name === SWITCH && !sized) this.set("image", "none");
      else if ((name === "rps" || name === "load") && !this.field("amount").value) {
        this.set("arrival", name);
        this.set("amount", value);
      } else if (LISTS.includes(name)) lists.set(name, [...(lists.get(name) ?? []), value]);
      else if (name === "gpu") {
        const [, gpu, count] = value.match(/^(.*?)(?::(\d+))?$/);
        this.set("gpu", gpu);
        if (count) this.set("count", count);
      } else if (!this.set(name, value)) this.extra.set(name, value);
    }
    for (const [name, each] of lists) this.set(name, each.join(", "));
  }

  /** Take the form back to the question that the page came with. */
  begin() {
    this.extra.clear();
    for (const field of this.form.elements) {
      if (field.type === "radio") field.checked = field.defaultChecked;
      else if (field.tagName === "SELECT") field.selectedIndex = Math.max(0, [...field.options].findIndex(each => each.defaultSelected));
      else if (field.name) field.value = field.defaultValue;
    }
  }

  /** Change the question as an offer's options say, such as "--gpu t4:4". */
  apply(options) {
    const words = options.split(/\s+(?=--)/).filter(Boolean);
    const values = new Map(this.values().filter(([name]) => !LISTS.includes(name)));
    for (const word of words) {
      const [, name, value] = word.match(/^--(\S+)\s*(.*)$/) ?? [];
      if (name === "load" || name === "concurrency") values.delete("rps");
      if (name === "rps") values.delete("load");
      if (name === SWITCH) values.delete("image");
      if (name) values.set(OLD[name] ?? name, value || "yes");
    }
    this.restore(new URLSearchParams([...values]).toString());
  }

  /** Leave an option out. */
  leave(name) {
    this.extra.delete(name);
    this.set(["load", "concurrency", "rps"].includes(name) ? "amount" : name === SWITCH ? "image" : OLD[name] ?? name, "");
  }

  set(name, value) {
    const field = this.field(name);
    if (!field || field.type === "file") return false;
    if (field.tagName === "SELECT" && ![...field.options].some(each => each.value === value)) {
      field.add(new Option(value, value));  // the answer says what is wrong with it
    }
    field.value = value;
    return field.value === value;
  }

  clear() {
    this.extra.clear();
    for (const field of this.form.elements) {
      if (field.type === "radio") field.checked = field.defaultChecked;
      else if (field.name) field.value = "";
    }
    this.set("count", "1");
  }

  /** Read the chosen files, by name. */
  async files() {
    const fields = [...this.form.elements].filter(each => each.type === "file" && each.files.length);
    return Object.fromEntries(await Promise.all(fields.map(async each => [each.files[0].name, await each.files[0].text()])));
  }
}

/** Quote words for a shell. */
export function shell(words) {
  return words.map(word => (/^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", `'"'"'`)}'`)).join(" ");
}
