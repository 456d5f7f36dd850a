"""List the site's texts that have no translation: ``python -m recommender.site.missing_translations vi``."""

import sys

from babel.messages.catalog import Catalog
from babel.messages.pofile import write_po

from recommender.site.i18n.translation import catalogue
from recommender.site.page_list import texts


def lacking(language: str) -> tuple[list[str], list[str]]:
    """Return the texts that a catalogue lacks, and those that no page uses."""
    used, known = texts(language), catalogue(language)
    return [text for text in used if text not in known], [text for text in known if text not in used]


def main(language: str) -> None:
    """Print both as parts of a catalogue."""
    lacks, unused = lacking(language)
    entries = Catalog(locale=language)
    for text in lacks:
        entries.add(text)
    write_po(sys.stdout.buffer, entries, width=0, omit_header=True)
    sys.stdout.buffer.write("".join(f"# Not used by any page: {text}\n" for text in unused).encode())


if __name__ == "__main__":
    main(*sys.argv[1:])
