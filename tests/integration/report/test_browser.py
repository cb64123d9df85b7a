"""The HTML report in a real Chromium: drawn, silent, usable, and asking nobody for anything."""

from __future__ import annotations

import json
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from builders.checks import facts, nights
from builders.runs import Toy, make_run
from builders.series import ended_series

from tuner.report.check_document import render_check
from tuner.report.listing import render_series
from tuner.report.render import report_run

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
DRIVER = shutil.which("chromedriver")

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(
        CHROMIUM is None or DRIVER is None, reason="needs chromium and chromedriver"
    ),
]
webdriver = pytest.importorskip("selenium.webdriver")
select = pytest.importorskip("selenium.webdriver.support.select")


UNDRAWN = (
    "return [...document.querySelectorAll('.plot')].filter(p => !p.querySelector('svg')).length"
)


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
    """Of a synthetic run of 200 trials."""
    toy = Toy(trials=200, gpu=True, predicts=True, seed=3)
    return report_run(make_run(tmp_path_factory.mktemp("runs"), toy))[0]


@pytest.fixture
def page(browser: Any, report: Path) -> Any:
    """The report with every fold open, with the logs of earlier pages thrown away."""
    return unfolded(opened(browser, report))


def opened(browser: Any, report: Path) -> Any:
    browser.get("about:blank")
    browser.get_log("browser")
    browser.get_log("performance")
    browser.get(report.as_uri())
    wait_for(lambda: run(browser, "return document.documentElement.dataset.charts"))
    return browser


def unfolded(page: Any) -> Any:
    run(page, "document.querySelectorAll('.fold').forEach(fold => fold.open = true)")
    wait_for(lambda: run(page, UNDRAWN) == 0)
    return page


def run(page: Any, script: str, *arguments: Any) -> Any:
    return page.execute_script(script, *arguments)


def wait_for(condition: Callable[[], Any], seconds: float = 30.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.05)


def test_every_chart_is_drawn_without_a_word_on_the_console(page: Any) -> None:
    assert run(page, "return document.documentElement.dataset.charts") == "drawn"
    assert run(page, "return document.querySelectorAll('.plot').length") >= 5
    assert page.get_log("browser") == []


@pytest.mark.parametrize("status", ["killed", "failed", "infeasible", "kept"])
def test_a_run_of_any_end_is_drawn_in_silence(browser: Any, tmp_path: Path, status: str) -> None:
    page = opened(browser, report_run(make_run(tmp_path, Toy(trials=12), status))[0])
    assert run(page, "return document.documentElement.dataset.charts") == "drawn"
    assert page.get_log("browser") == []


def test_a_check_shows_its_trend_in_silence(browser: Any, tmp_path: Path) -> None:
    (tmp_path / "check.json").write_text(facts(history=nights()).model_dump_json())
    page = opened(browser, render_check(tmp_path)[0])
    assert run(page, "return document.querySelectorAll('#trend .plot .points path').length") >= 10
    assert page.get_log("browser") == []


#: Notes when the charts of a page are there.
NOTING = """
new MutationObserver(() => { window.drawnAt ??= performance.now(); })
  .observe(document, {subtree: true, attributes: true, attributeFilter: ["data-charts"]});
"""


def test_words_are_painted_before_the_charts(browser: Any, report: Path) -> None:
    command = {"source": NOTING}
    noting = browser.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", command)
    paint = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime"

    def words_come_first() -> bool:
        page = opened(browser, report)
        return bool(run(page, f"return {paint} < window.drawnAt"))

    try:
        # the process that paints may be kept waiting once
        assert any(words_come_first() for _ in range(3))
    finally:
        browser.execute_cdp_cmd("Page.removeScriptToEvaluateOnNewDocument", noting)


@pytest.mark.measuring
def test_200_trials_take_less_than_three_seconds(report: Path) -> None:
    """From the start of Python on: seconds of a processor, since others may use the machine."""
    code = (
        "import sys, pathlib; from tuner.report.render import report_run; "
        "report_run(pathlib.Path(sys.argv[1]))"
    )
    command = [sys.executable, "-c", code]
    seconds = []
    for _ in range(2):
        begin = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([*command, str(report.parent)], check=True, capture_output=True)
        end = resource.getrusage(resource.RUSAGE_CHILDREN)
        seconds.append(end.ru_utime + end.ru_stime - begin.ru_utime - begin.ru_stime)
    assert min(seconds) < 3.0


def test_page_requests_only_the_file_itself(page: Any, report: Path) -> None:
    messages = [json.loads(entry["message"])["message"] for entry in page.get_log("performance")]
    requested = [
        m["params"]["request"]["url"]
        for m in messages
        if m["method"] == "Network.requestWillBeSent"
    ]
    assert report.as_uri() in requested
    assert [
        u for u in requested if u != report.as_uri() and not u.startswith(("data:", "blob:"))
    ] == []


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
    label = run(page, hovering)
    assert [words for words in ("max batch", " ms") if words not in label] == [], label
    webdriver.ActionChains(page).click().perform()
    wait_for(lambda: run(page, "return document.querySelector('tr.chosen details[open]')"))
    assert run(page, "return document.activeElement.id").startswith("trial-")


def test_the_table_of_trials_can_be_filtered(page: Any) -> None:
    visible_count = "return document.querySelectorAll('.trials > tbody > tr:not([hidden])').length"
    assert run(page, visible_count) == 200
    page.find_element("id", "filter-text").send_keys("out of memory")
    wait_for(lambda: 0 < run(page, visible_count) < 200)
    failed = run(page, visible_count)
    assert run(page, "return document.querySelector('#filter-count').value") == (
        f"{failed} of 200 trials"
    )


def test_outcomes_can_be_chosen(page: Any) -> None:
    outcome = select.Select(page.find_element("id", "filter-outcome"))
    outcome.select_by_visible_text("failed")
    visible_rows = "return [...document.querySelectorAll('.trials > tbody > tr:not([hidden])')]"
    outcomes = f"{visible_rows}.map(row => row.cells[1].textContent)"
    wait_for(lambda: set(run(page, outcomes)) == {"failed"}, seconds=5)
    assert 0 < len(run(page, outcomes)) < 200


def test_the_table_of_trials_can_be_sorted_by_keyboard(page: Any) -> None:
    scores = "return [...document.querySelectorAll('.trials > tbody > tr')].map(r => r.cells[3]"
    heads = page.find_elements("css selector", ".trials > thead button")
    (goodput,) = (h for h in heads if h.text == "goodput")
    goodput.send_keys("\ue007")  # Enter: rising
    rising = run(page, f"{scores}.dataset.value)")
    numbers = [float(v) for v in rising if v]
    assert numbers == sorted(numbers)
    assert rising[len(numbers) :] == [None] * (200 - len(numbers))
    goodput.send_keys("\ue007")
    assert [float(v) for v in run(page, f"{scores}.dataset.value)") if v] == numbers[::-1]
    assert goodput.find_element("xpath", "..").get_attribute("aria-sort") == "descending"


def test_the_keyboard_comes_to_the_verdict_and_from_a_chart_s_table_to_a_trial(page: Any) -> None:
    body = page.find_element("tag name", "body")
    body.send_keys("\ue004")  # Tab
    assert run(page, "return document.activeElement.getAttribute('href')") == "#verdict"
    page.find_element("css selector", "#pareto summary").send_keys("\ue007")
    page.find_element("css selector", "#pareto a[href='#trial-7']").send_keys("\ue007")
    wait_for(lambda: run(page, "return document.activeElement.id") == "trial-7")
    outline = "return getComputedStyle(document.querySelector('.skip:focus, summary')).display"
    assert run(page, outline) != "none"


def test_everything_has_a_name_for_a_screen_reader(page: Any) -> None:
    nodes = page.execute_cdp_cmd("Accessibility.getFullAXTree", {})["nodes"]
    seen = [n for n in nodes if not n.get("ignored")]
    for role in ("image", "region", "button", "link", "combobox", "searchbox", "heading"):
        named = [n["name"]["value"] for n in seen if n["role"]["value"] == role]
        assert named
        assert all(named), role


def test_paper_is_white_and_holds_every_chart(page: Any) -> None:
    dark = [{"name": "prefers-color-scheme", "value": "dark"}]
    page.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": dark})
    try:
        on_screen = run(page, "return document.querySelector('#history .plot').clientHeight")
        page.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print", "features": dark})
        height = "return document.querySelector('#history .main-svg').clientHeight"
        wait_for(lambda: run(page, height) < on_screen)
        assert brightness(run(page, "return getComputedStyle(document.body).backgroundColor")) > 250
        tick = "return getComputedStyle(document.querySelector('.plot .xtick text')).fill"
        assert brightness(run(page, tick)) < 60
        wide = (
            "return [...document.querySelectorAll('.plot')].filter(p => p.scrollWidth > innerWidth)"
        )
        assert run(page, wide) == []
        page.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "", "features": dark})
        wait_for(lambda: run(page, height) == on_screen)
    finally:
        page.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "", "features": []})


def test_charts_follow_when_the_screen_turns_dark(page: Any) -> None:
    tick = "return getComputedStyle(document.querySelector('.plot .xtick text')).fill"
    for scheme in ("light", "dark", "light"):
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        page.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
        wait_for(lambda: (brightness(run(page, tick)) > 128) is (scheme == "dark"))  # noqa: B023
        page_text = run(page, "return getComputedStyle(document.body).color")
        assert brightness(run(page, tick)) == pytest.approx(brightness(page_text), abs=2)
    page.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})


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
        assert run(unfolded(page), "return document.documentElement.scrollWidth") <= width
        assert run(page, CUT_OFF, "dd") == []  # commands
        assert run(page, CONTRAST) == []
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


#: Of what a selector finds, what goes on beyond its edge.
CUT_OFF = """
    return [...document.querySelectorAll(arguments[0])]
        .filter(each => each.scrollWidth > each.clientWidth).map(each => each.textContent)
"""


def test_wide_page_lists_all_runs_of_a_series_and_all_loads_of_a_trial(
    browser: Any, tmp_path: Path
) -> None:
    page = opened(browser, render_series(ended_series(tmp_path))[0])
    assert run(page, "return document.querySelectorAll('.steps').length") == 1
    assert run(page, CUT_OFF, ".answer .scroll") == []
    page = unfolded(opened(browser, report_run(make_run(tmp_path / "one"))[0]))
    run(page, "document.querySelector('.trials details').open = true")
    widths = "return [...document.querySelectorAll('.trials .scroll')].map(s => s.clientWidth)"
    assert run(page, widths)[0] > 600


#: Texts of which the colour and the ground behind it are too alike (WCAG AA, 4.5 to 1).
CONTRAST = """
    const parts = (color) => color.match(/[0-9.]+/g).map(Number);
    const light = (color) => parts(color).slice(0, 3).map(part => part / 255)
        .map(c => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4)
        .reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
    const ground = (node) => {
        for (let at = node; at; at = at.parentElement) {
            const color = getComputedStyle(at).backgroundColor;
            if (parts(color)[3] !== 0) return color;
        }
    };
    const texts = [...document.querySelectorAll('main *, footer *')].filter(
        node => !node.closest('svg, .plot') && [...node.childNodes].some(
            child => child.nodeType === 3 && child.textContent.trim()));
    return texts.filter(node => {
        const [low, high] = [light(getComputedStyle(node).color), light(ground(node))]
            .sort((a, b) => a - b);
        return (high + 0.05) / (low + 0.05) < 4.5;
    }).map(node => node.className + ': ' + node.textContent.slice(0, 40));
"""


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
    assert "Better: " in text
    assert "The charts need JavaScript" in text
