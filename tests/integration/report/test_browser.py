"""The HTML report in a real Chromium: drawn, silent, usable, and asking nobody for anything."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from unit.report.synthetic import Toy, make_run

from tuner.report.render import render_all

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
DRIVER = shutil.which("chromedriver")

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(
        CHROMIUM is None or DRIVER is None, reason="needs chromium and chromedriver"
    ),
]
webdriver = pytest.importorskip("selenium.webdriver")


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--window-size=1280,900"):
        options.add_argument(argument)
    options.add_argument("--disable-background-networking")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER))
    try:
        yield driver
    finally:
        driver.quit()


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A synthetic run of 200 trials."""
    run = make_run(tmp_path_factory.mktemp("runs"), Toy(trials=200, gpu=True, seed=3))
    return render_all(run)[0]


@pytest.fixture
def page(browser: Any, report: Path) -> Any:
    """The report, charts drawn, with the logs of earlier pages thrown away."""
    browser.get("about:blank")
    browser.get_log("browser")
    browser.get_log("performance")
    browser.get(report.as_uri())
    wait_for(lambda: run(browser, "return document.documentElement.dataset.charts"))
    return browser


def run(page: Any, script: str, *arguments: Any) -> Any:
    return page.execute_script(script, *arguments)


def wait_for(condition: Callable[[], Any], seconds: float = 30.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.05)


def test_every_chart_is_drawn_without_a_word_on_the_console(page: Any) -> None:
    assert run(page, "return document.documentElement.dataset.charts") == "drawn"
    empty = "return [...document.querySelectorAll('.plot')].filter(p => !p.querySelector('svg'))"
    assert run(page, empty) == []
    assert run(page, "return document.querySelectorAll('.plot').length") >= 10
    assert page.get_log("browser") == []


def test_only_the_file_itself_is_asked_for(page: Any, report: Path) -> None:
    messages = [json.loads(entry["message"])["message"] for entry in page.get_log("performance")]
    asked = [
        m["params"]["request"]["url"]
        for m in messages
        if m["method"] == "Network.requestWillBeSent"
    ]
    assert report.as_uri() in asked
    assert [u for u in asked if u != report.as_uri() and not u.startswith(("data:", "blob:"))] == []


def test_a_click_on_a_point_opens_its_trial(page: Any) -> None:
    center = run(
        page,
        """
        const plot = document.querySelector('[data-figure=pareto]');
        plot.scrollIntoView({block: 'center'});
        const box = plot.querySelector('.points path').getBoundingClientRect();
        return [Math.round(box.x + box.width / 2), Math.round(box.y + box.height / 2)];
        """,
    )
    actions = webdriver.ActionChains(page)
    actions.w3c_actions.pointer_action.move_to_location(*center)
    actions.perform()
    hovering = "return document.querySelector('[data-figure=pareto] .hovertext')?.textContent || ''"
    wait_for(lambda: "trial" in run(page, hovering))
    webdriver.ActionChains(page).click().perform()
    wait_for(lambda: run(page, "return document.querySelector('tr.chosen details[open]')"))
    assert run(page, "return document.activeElement.id").startswith("trial-")


def test_the_table_of_trials_can_be_filtered(page: Any) -> None:
    shown = "return document.querySelectorAll('.trials > tbody > tr:not([hidden])').length"
    assert run(page, shown) == 200
    page.find_element("id", "filter-text").send_keys("out of memory")
    wait_for(lambda: 0 < run(page, shown) < 200)
    failed = run(page, shown)
    assert run(page, "return document.querySelector('#filter-count').value") == (
        f"{failed} of 200 trials"
    )


@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_fits_the_screen_in_light_and_dark(page: Any, width: int, scheme: str) -> None:
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    page.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
    screen = {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": width < 500}
    page.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", screen)
    try:
        page.refresh()
        wait_for(lambda: run(page, "return document.documentElement.dataset.charts"))
        assert run(page, "return document.documentElement.scrollWidth") <= width
        text, ground, chart = run(
            page,
            """
            const style = getComputedStyle(document.body);
            const tick = getComputedStyle(document.querySelector('.plot .xtick text'));
            return [style.color, style.backgroundColor, tick.fill];
            """,
        )
        assert (brightness(text) > brightness(ground)) is (scheme == "dark")
        assert brightness(chart) == pytest.approx(brightness(text), abs=2)
    finally:
        page.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
        page.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})


def brightness(color: str) -> float:
    """Mean of the red, green and blue of ``rgb(…)``."""
    numbers = color[color.index("(") + 1 : color.index(")")].split(",")[:3]
    return sum(float(n) for n in numbers) / 3


def test_without_javascript_the_words_and_tables_are_there(browser: Any, report: Path) -> None:
    browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    try:
        browser.get(report.as_uri())
        text = browser.find_element("tag name", "body").text
    finally:
        browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})
    assert "Improved" in text
    assert "The charts need JavaScript" in text
