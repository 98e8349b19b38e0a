"""Takes the pictures of docs/dashboard.md from a dashboard that runs.

scripts/screenshots.py http://127.0.0.1:7700 GROUP Type/key
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from playwright.sync_api import sync_playwright

ASSETS = Path(__file__).parent.parent / "docs" / "assets"


def main(url: str, group: str, actor: str) -> None:
    """Writes a picture for each page that the docs show."""
    chromium = shutil.which("chromium") or "chromium-browser"
    pages = {"overview": "", "group": f"groups/{group}", "actor": f"actors/{actor}"}
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1180, "height": 760})
        for name, path in pages.items():
            page.goto(f"{url}/{path}")
            page.locator("#live[data-on]").wait_for()
            page.screenshot(path=ASSETS / f"dashboard-{name}.png")
        browser.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
