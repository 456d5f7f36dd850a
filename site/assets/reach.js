// What the theme leaves out for those who use a keyboard or a screen reader.

// Tables and charts that scroll sideways: the keyboard must reach them to scroll them.
const WIDE = ".md-typeset__scrollwrap, .data-scroll, .chart, .compare";

function reach() {
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
const headings = document.querySelector("[data-md-component=toc]")?.cloneNode(true);
if (headings) {
  headings.removeAttribute("data-md-component");
  headings.className = "headings";
  document.querySelector(".pages [aria-current]")?.after(headings);
}
