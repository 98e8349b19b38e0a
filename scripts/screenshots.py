"""Takes a picture of each page of a dashboard that runs, in light and in dark.

scripts/screenshots.py http://127.0.0.1:7700 FOLDER GROUP JOB [Type/key]

Look at them, then copy what the docs show to docs/assets.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Literal

from playwright.sync_api import sync_playwright

LISTS = ("jobs", "groups", "actors", "schedules", "queues", "limits", "workers", "dispatchers")
MORE = ("filesets", "tokens", "audit", "sign-in")
SCHEMES: tuple[Literal["light", "dark"], ...] = ("light", "dark")


def main(url: str, folder: str, group: str, job: str, actor: str = "") -> None:
    """Writes a picture for each page and scheme into the folder."""
    chromium = shutil.which("chromium") or "chromium-browser"
    pages = {"overview": "", "group": f"groups/{group}", "job": f"jobs/{job}"}
    pages |= {"compared": f"groups/{group}?compare=before&only=failed"}
    pages |= {name: f"{name}/" for name in (*LISTS, *MORE[:-1])} | {"sign-in": "sign-in"}
    if actor:
        pages["actor"] = f"actors/{actor}"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        for scheme in SCHEMES:
            size = {"width": 1180, "height": 760}
            page = browser.new_page(viewport=size, color_scheme=scheme)  # type: ignore[arg-type]
            for name, path in pages.items():
                page.goto(f"{url}/{path}")
                if name != "sign-in":
                    page.locator("#live[data-on]").wait_for()
                page.screenshot(path=Path(folder) / f"{name}-{scheme}.png")
        browser.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
