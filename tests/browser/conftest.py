"""A headless Chromium, and pages of the report opened in it."""

import random
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, ViewportSize, sync_playwright

from harness import results
from harness.report.page import assemble, document
from tests import made
from tests.browser import sample
from tests.conftest import once

ARGUMENTS = [
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"),
    *("--disable-component-update", "--disable-sync"),
]


VIEWPORT: ViewportSize = {"width": 1280, "height": 900}
# The page listens first, so that it has read the address when this is over.
GO = """(hash) => new Promise((done) => {
  if (location.hash === hash) return done();
  addEventListener("hashchange", () => done(), { once: true });
  location.hash = hash;
})"""


@dataclass
class Opened:
    """A page that a browser shows, with what it complained of and what it asked the network for."""

    page: Page
    complaints: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    def wait(self) -> None:
        """Until every plot and table is drawn."""
        self.page.wait_for_selector("html[data-state=complete]", state="attached")

    def evaluate(self, code: str) -> Any:
        """The value of a JavaScript expression."""
        return self.page.evaluate(code)

    def until(self, code: str) -> None:
        """Wait for an expression to be true. Playwright would evaluate it as text, which the page's policy forbids."""
        while not self.evaluate(code):
            self.page.wait_for_timeout(50)

    def go(self, hash_: str) -> None:
        """Change the address, which has all that a reader chose: without any, the page is as it was opened."""
        self.page.evaluate(GO, hash_)
        self.wait()


Open = Callable[..., Opened]


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.fail("no chromium on PATH; tests/browser/packages.sh installs Debian's")
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=chromium, args=ARGUMENTS)
        yield started
        started.close()


@contextmanager
def opening(browser: Browser) -> Iterator[Open]:
    """Opens files (with a hash, perhaps) in a browser that can reach nothing but files, and must not complain."""
    pages: list[Opened] = []

    def opened(file: Path, hash_: str = "", **options: Any) -> Opened:
        context = browser.new_context(**{"viewport": VIEWPORT, "accept_downloads": True} | options)
        context.route(lambda url: not url.startswith("file:"), lambda route: route.abort())
        shown = Opened(context.new_page())
        pages.append(shown)
        shown.page.on("console", lambda message: shown.complaints.append(f"{message.type}: {message.text}"))
        shown.page.on("pageerror", lambda error: shown.complaints.append(str(error)))
        shown.page.on("request", lambda request: shown.requests.append(request.url))
        shown.page.goto(f"{file.as_uri()}{hash_}")
        shown.wait()
        return shown

    yield opened
    for shown in pages:
        shown.page.context.close()
    assert not any(shown.complaints for shown in pages), pages


@pytest.fixture
def show(browser: Browser) -> Iterator[Open]:
    """Open a file for one test."""
    with opening(browser) as opened:
        yield opened


@pytest.fixture(scope="session")
def opened_report(browser: Browser, report: Path) -> Iterator[Opened]:
    with opening(browser) as opened:
        page = opened(report)
        assert page.complaints == []
        yield page


@pytest.fixture
def shown(opened_report: Opened) -> Iterator[Opened]:
    """The report as it was opened, once for all tests: that takes seconds, most of them Plotly's start."""
    opened_report.complaints.clear()
    opened_report.page.set_viewport_size(VIEWPORT)
    opened_report.page.emulate_media(color_scheme="light")
    opened_report.go("")
    opened_report.evaluate("scrollTo(0, 0)")
    yield opened_report
    assert opened_report.complaints == []


@pytest.fixture(scope="session")
def report() -> Path:
    """The page of records of a made-up cluster, which lie beside it, and of all published results."""

    def make(folder: Path) -> None:
        sources = [str(made.save(folder / "records", sample.everything(random.Random(1)))), "reference"]
        write(assemble.page(results.load(sources), sources, "now"), folder / "report.html")

    return once("report", make) / "report.html"


@pytest.fixture(scope="session")
def records(report: Path) -> Path:
    """Those records."""
    return report.with_name("records")


def write(made_page: document.Page, file: Path) -> Path:
    """``made_page`` as a file."""
    file.write_text(document.render(made_page), encoding="utf-8")
    return file
