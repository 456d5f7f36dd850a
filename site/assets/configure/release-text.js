/* The difference of two releases in the page's language, from the JSON of `recommend diff`: lines and their depth. */

import { fill } from "./dom.js";

/** Return the lines of the command's text: `texts` has its words, `own` the translations of what records say. */
export function lines(diff, { texts, own }) {
  const found = [];
  const add = (depth, text) => found.push({ depth, text });
  const said = text => own[text] ?? text;
  // As name_holes of the command.
  const named = text => text.replaceAll("{lmdeploy}", "<release>").replaceAll("{model.hub}", "<model>")
    .replace(/\{(?:\w+\.)?(\w+)\}/g, (_, name) => `<${name.replaceAll("_", " ")}>`);
  const list = text => text.split(" ").filter(Boolean).join(", ") || texts.none;

  function part(title, items, show) {
    if (items.length) add(0, "");
    if (items.length) add(0, texts[title].toUpperCase());
    if (title === "removed" && items.length) add(1, fill(texts.rejects, diff));
    items.forEach(show);
  }

  function moved(when) {
    return option => {
      const served = option.read_by.some(each => ["turbomind", "server"].includes(each));
      const reader = served ? "" : `, ${fill(texts.only, { who: option.read_by.map(said).join(", ") })}`;
      add(1, `${option.name} (${fill(texts[when], option)}${reader})`);
      add(2, said(option.summary));
      if (option.see.length) add(2, fill(texts.see, { options: option.see.join(", ") }));
    };
  }

  function changed(option) {
    add(1, option.name);
    for (const { what, before, after } of option.changes) {
      if (what === "meaning") {
        if (before) add(2, `${texts.was}: ${said(before)}`);
        add(2, `${texts.now}: ${after ? said(after) : texts.over}`);
      } else add(2, `${texts[what]}: ${list(before)} → ${list(after)}`);
    }
  }

  function rule(release) {
    return each => {
      const [message, remedy] = own[each.id] ?? [each.text, each.more];
      add(1, named(message.replaceAll("{lmdeploy}", release)));
      add(2, `${texts.fix}: ${named(remedy)}`);
    };
  }

  function issue(each) {
    add(1, said(each.text));
    add(2, each.more);
  }

  add(0, fill(diff.back ? texts.back : texts.opening, diff));
  if (diff.old === diff.new) add(0, texts.same);
  part("removed", diff.removed, moved("last"));
  part("changed", diff.changed, changed);
  part("added", diff.added, moved(diff.back ? "in" : "since"));
  part("requirements", diff.needs, need => add(1, `${need.name}: ${need.before || texts.none} → ${need.after || texts.none}`));
  part("rules-gone", diff.rules_gone, rule(diff.old));
  part("rules-new", diff.rules_new, rule(diff.new));
  part("threads-gone", diff.threads_gone, issue);
  part("threads-new", diff.threads_new, issue);
  const verdict = each => add(1, `${said(each.more)}: ${said(each.text)}`);
  part("claims-gone", diff.claims_gone, verdict);
  part("claims-new", diff.claims_new, verdict);
  return found;
}
