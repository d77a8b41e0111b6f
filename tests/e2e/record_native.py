"""Records native OpenCode's screens: python -m tests.e2e.record_native tui|web [SCENE ...].

Normalised text goes to compat_fixtures/opencode/VERSION/screens, pictures of the web UI to docs/pictures/native.
"""

from __future__ import annotations

import sys

from .support import webui
from .support.browser import Browser
from .support.places import REPO, Place
from .support.scenes import CONFIG, SCREENS, TUI_SCENES, WEB_SCENES, Shots
from .support.servers import Model, Native
from .support.tui import tui

PICTURES = REPO / "docs" / "pictures" / "native"


def keep(kind: str, name: str, shots: Shots) -> None:
    for stop, text in shots.items():
        path = SCREENS / kind / f"{name}.{stop}.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        sys.stdout.write(f"--- {path.name}\n{text}\n")


def record_tui(place: Place, native: Native, names: list[str]) -> None:
    for name in names or list(TUI_SCENES):
        terminal = tui(place, native.url)
        try:
            terminal.submit(TUI_SCENES[name].prompt)
            keep("tui", name, TUI_SCENES[name].play(terminal))
        finally:
            terminal.close()


def record_web(place: Place, native: Native, names: list[str]) -> None:
    browser = Browser(place)
    try:
        webui.know_project(browser, place)
        for name in names or list(WEB_SCENES):
            scene = WEB_SCENES[name]
            place.reset()
            webui.new_session(browser, place, native.url)
            webui.submit(browser, scene.prompt)
            shots = scene.play(browser, lambda stop, name=name: browser.screenshot(PICTURES / f"{name}.{stop}.png"))
            keep("web", name, shots)
    finally:
        browser.close()


def main(kind: str, names: list[str]) -> None:
    place = Place.make()
    model = Model(place)
    native = Native(place, model, config=CONFIG)
    try:
        {"tui": record_tui, "web": record_web}[kind](place, native, names)
    finally:
        native.close()
        model.close()
        place.remove()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
