// What the theme leaves out for those who use a keyboard or a screen reader.

// Tables and charts that scroll sideways: the keyboard must reach them to scroll them.
const WIDE = ".md-typeset__scrollwrap, .data-scroll, .chart, .compare";

// On a phone a wide table becomes a card for each row, and each cell names its column. What changes the layout of a
// table takes its roles away, so that they are written.
const PHONE = matchMedia("(max-width: 44.9375em)");
const ROLES = { table: "table", thead: "rowgroup", tbody: "rowgroup", tr: "row", th: "rowheader", td: "cell" };
const BOX = ".md-typeset__scrollwrap, .data-scroll";
const LONG = 36;
const TALL = 160;

function card(table) {
  const heads = [...table.querySelectorAll("thead th")].map(each => each.textContent.trim());
  for (const row of table.tBodies[0].rows) {
    [...row.cells].forEach((cell, place) => {
      const text = cell.textContent.trim();
      cell.dataset.head = place && text ? heads[place] ?? "" : "";
      cell.toggleAttribute("data-long", text.length > LONG);
    });
  }
  for (const each of [table, ...table.querySelectorAll("*")]) {
    const role = each.matches("thead th") ? "columnheader" : ROLES[each.localName];
    if (role) each.setAttribute("role", role);
  }
  table.dataset.cards = "";
}

/** Whether a column is so narrow that its texts make rows of many lines. */
function isNarrow(table) {
  return table.tHead.rows[0].cells.length > 2 && [...table.tBodies[0].rows].some(row => row.offsetHeight > TALL);
}

function cards() {
  for (const table of document.querySelectorAll(".md-typeset__table > table, .data-scroll > table")) {
    if (!PHONE.matches) delete table.dataset.cards;
    else if (!("cards" in table.dataset) && table.tHead && (table.offsetWidth > table.closest(BOX).clientWidth - 32 || isNarrow(table))) card(table);
  }
}

/** Say what each of the theme's buttons copies: they all have one name. */
function nameCopies() {
  for (const button of document.querySelectorAll("[data-clipboard-target]")) {
    const [line] = document.querySelector(button.dataset.clipboardTarget)?.textContent.trim().split("\n") ?? [];
    if (line) button.ariaLabel = `${button.title}: ${line}`;
  }
}

function reach() {
  cards();
  nameCopies();
  for (const box of document.querySelectorAll(WIDE)) {
    if (box.scrollWidth > box.clientWidth) box.tabIndex = 0;
    else box.removeAttribute("tabindex");
  }
}

// The theme puts its boxes around tables while it starts; windows and unfolded parts change widths later.
addEventListener("load", () => {
  reach();
  new ResizeObserver(reach).observe(document.body);
});

// A sign behind each heading links to it: its name says to which. Written here, they are not in every page.
for (const heading of document.querySelectorAll("article :is(h1, h2, h3)[id]")) {
  const link = document.createElement("a");
  Object.assign(link, { className: "headerlink", href: `#${heading.id}`, textContent: "¶", ariaLabel: `¶ ${heading.textContent}` });
  heading.append(link);
}

// On a phone the headings of the page are below its name in the drawer: a copy, as the theme hides the list itself.
// Of many, those of the first level; none where the drawer would still be too long.
const DRAWER = 40;
const headings = document.querySelector("[data-md-component=toc]")?.cloneNode(true);
const links = () => document.querySelectorAll(".pages a").length + headings.querySelectorAll("a").length;
if (headings && links() > DRAWER) headings.querySelectorAll("ul").forEach(each => each.remove());
if (headings && links() <= DRAWER) {
  headings.removeAttribute("data-md-component");
  headings.className = "headings";
  document.querySelector(".pages [aria-current]")?.after(headings);
}
