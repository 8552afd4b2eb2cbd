"""Look at the built site in Chromium: its first page, the page to play with, the verification and a
page of text, as people see them.

Run by `make docs`; the argument is the site's folder. Ends with exit code 1 where a page is wider
than the screen or not as dark as the system, a picture is missing, or a link leads nowhere.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from tests.play.browser import Browser, brightness, find

PAGES = (
    "index.html",
    "play/index.html",
    "start.html",
    "examples.html",
    "results/index.html",
    "results/verification-report.html",
    "results/verification-full-report.html",
)
WIDTHS = (390, 1280)
GROUND = "getComputedStyle(document.body).backgroundColor"
CUT = (
    "[...document.querySelectorAll('.front-pair .md-typeset__table, .front-pair table')]"
    ".some(t => t.scrollWidth > t.clientWidth + 1)"
)
"""Whether a part of the first page's table can only be seen by scrolling in it."""
BROKEN = "[...document.images].filter(i => i.complete && !i.naturalWidth).map(i => i.src)"
LINKS = "[...document.querySelectorAll('article a[href]')].map(a => a.href.split('#')[0])"


def faults(browser: Browser, folder: Path) -> list[str]:
    """What is wrong, one sentence each."""
    found = []
    for dark in (False, True):
        for width in WIDTHS:
            for name in PAGES:
                browser.show((folder / name).as_uri(), width, dark=dark)
                wide = browser.run("document.documentElement.scrollWidth")
                if wide > width:
                    found.append(f"{name} is {wide} pixels wide on a screen of {width}.")
                if (brightness(browser.run(GROUND)) < 128) is not dark:
                    found.append(
                        f"{name} is not {'dark' if dark else 'light'} where that is asked."
                    )
                if browser.run(CUT):
                    found.append(f"A table of {name} is cut on a screen of {width}.")
                found += [f"{name} lacks the picture {src}." for src in browser.run(BROKEN)]
                for link in browser.run(LINKS):
                    if (
                        link.startswith("file:")
                        and not Path(link.removeprefix("file://")).is_file()
                    ):
                        found.append(f"{name} has a link to {link}, which is not there.")
    browser.show((folder / "index.html").as_uri())
    if not any(link.endswith("/play/index.html") for link in browser.run(LINKS)):
        found.append("The first page has no link to the page to play with.")
    return sorted(set(found))


def main() -> int:
    program = find()
    if program is None:
        print("There is no Chromium here: the site was built and not looked at.")
        return 0
    with (
        tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile,
        Browser(program, Path(profile)) as browser,
    ):
        found = faults(browser, Path(sys.argv[1]).resolve())
    for fault in found:
        print(fault)
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
