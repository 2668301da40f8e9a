"""The inspector in a headless browser, used as people use it. Without Chromium these tests are skipped."""

from __future__ import annotations

import dataclasses
import json
import shutil
import subprocess

import pytest

from stragglar.backends.msccl.lower import lower
from stragglar.backends.msccl.options import LowerOptions
from stragglar.backends.simulation import planned_arrivals, simulate
from stragglar.backends.view.inspector import SCRIPTS, program_page, schedule_page, source
from stragglar.backends.view.program_data import analyse
from stragglar.backends.view.schedule_data import MOST_TRANSFERS, schedule_data
from stragglar.schedules import Link, Origin, Phase, Schedule, UsageError
from stragglar.schedules.cost import bandwidth_bound
from stragglar.schedules.trace import holders
from stragglar.synth import Request, synthesize

LINK, SIZE, DELAY = Link(3e-6, 450 * 2**30), 2**30, 5e-3
HOSTILE = '</script><script>document.title="bad"</script>'
BROWSER, DRIVER = shutil.which("chromium") or shutil.which("chromium-browser"), shutil.which("chromedriver")


def page_of(schedule, against=None):
    return schedule_page(schedule, against, SIZE, LINK, DELAY)


@pytest.fixture(scope="module")
def browser():
    webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed")
    if not (BROWSER and DRIVER):
        pytest.skip("no chromium and chromedriver here")
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = BROWSER
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(DRIVER))
    yield driver
    driver.quit()


class Page:
    """A page in the browser, by what a user sees and does."""

    def __init__(self, driver, path, size):
        self.driver = driver
        metrics = {"width": size[0], "height": size[1], "deviceScaleFactor": 1, "mobile": False}
        driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
        driver.get(path.as_uri())

    def js(self, code, *values):
        return self.driver.execute_script(code, *values)

    def text(self, name):
        return self.js("return document.getElementById(arguments[0]).textContent", name)

    def click(self, name):
        self.driver.find_element("id", name).click()

    def change(self, name, value):
        code = (
            "const e = document.getElementById(arguments[0]); e.value = arguments[1];"
            "for (const kind of ['input', 'change']) e.dispatchEvent(new Event(kind))"
        )
        self.js(code, name, str(value))

    def keys(self, *keys):
        for key in keys:
            self.driver.find_element("tag name", "body").send_keys(key)

    def errors(self):
        return [entry["message"] for entry in self.driver.get_log("browser") if entry["level"] == "SEVERE"]


@pytest.fixture
def opened(browser, tmp_path):
    def open_page(text, size=(1024, 700)):
        path = tmp_path / "page.html"
        path.write_text(text, encoding="utf-8")
        return Page(browser, path, size)

    return open_page


EIGHT = Request(8, (3,))


@pytest.fixture
def eight(opened):
    return opened(page_of(synthesize(EIGHT), synthesize(Request(8, (3,), "ring"))))


def test_the_page_needs_no_network():
    page = page_of(synthesize(EIGHT))
    assert "default-src 'none'" in page
    assert page.count("http") == page.replace("http-equiv", "").count("http") + 1
    links = [part for name in SCRIPTS for part in source(name).split('"') if part.startswith("http")]
    assert set(links) == {"http://www.w3.org/2000/svg"}


@pytest.mark.skipif(not shutil.which("node"), reason="no node here")
def test_the_scripts_parse(tmp_path):
    for name in SCRIPTS:
        (tmp_path / name).write_text(source(name), encoding="utf-8")
        subprocess.run(["node", "--check", tmp_path / name], check=True)
    assert source("model.js").startswith('"use strict"')


def test_too_large_a_schedule_is_refused():
    round_ = [(0, 1, 0, 1, 1)] * (MOST_TRANSFERS + 1)
    with pytest.raises(UsageError, match="--as svg"):
        schedule_data(Schedule(2, (), 1, (Phase.build("post", [round_]),)))


def test_scrub_step_and_keys(eight):
    from selenium.webdriver.common.keys import Keys

    assert "pre round 0 (1 of 15)" in eight.text("where")
    eight.change("round", 9)
    assert "post round 3 (10 of 15)" in eight.text("where")
    eight.click("next")
    assert "(11 of 15)" in eight.text("where")
    eight.click("back")
    eight.js("document.activeElement.blur()")
    eight.keys(Keys.HOME, Keys.ARROW_RIGHT, Keys.ARROW_RIGHT)
    assert "(3 of 15)" in eight.text("where")
    eight.keys(Keys.END, "]", "]", Keys.ARROW_DOWN, "?")
    assert "(15 of 15)" in eight.text("where")
    assert eight.js("return [rank.value, chunk.value, help.hidden]") == ["0", "1", False]
    eight.keys(Keys.ESCAPE)
    assert eight.js("return [rank.value, chunk.value]") == ["-1", "-1"]
    assert eight.errors() == []


def test_play(eight):
    eight.change("speed", 15)
    eight.click("play")
    assert eight.driver.find_element("id", "play").get_attribute("aria-pressed") == "true"
    from selenium.webdriver.support.ui import WebDriverWait

    WebDriverWait(eight.driver, 20).until(lambda _: "(15 of 15)" in eight.text("where"))
    WebDriverWait(eight.driver, 20).until(lambda _: eight.text("play") == "play")


def test_filters_and_the_raw_line(eight):
    eight.change("round", 9)
    assert eight.text("h-moves") == "Transfers: 8"
    eight.change("rank", 3)
    assert eight.text("h-moves") == "Transfers: 2"
    eight.change("chunk", 6)
    assert eight.text("h-moves") == "Transfers: 0"
    eight.click("clear")
    eight.change("peer", 4)
    row = eight.driver.find_element("css selector", "#moves tbody tr")
    row.click()
    assert eight.text("raw") == 'phase "post" round 3: "reduce": [3,4,3,1]'
    ring = eight.driver.find_elements("css selector", "#ring g[role=button]")
    assert len(ring) == 2 and "from rank 3 to rank 4" in ring[0].get_attribute("aria-label")


def test_holders_are_those_of_python(eight):
    schedule = synthesize(EIGHT)
    expected = [row for counts in holders(schedule) for row in counts.tolist()]
    code = (
        "const s = Model.open(JSON.parse(data.textContent).schedule); const r = new Model.Replay(s);"
        "return Array.from(r.holders)"
    )
    flat = eight.js(code)
    assert flat[schedule.chunks :] == [n for row in expected for n in row]


def test_compare_is_the_simulation_of_python(eight):
    for schedule, key in ((synthesize(EIGHT), "schedule"), (synthesize(Request(8, (3,), "ring")), "against")):
        for delay in (0.0, 1e-4, 2e-3, 5e-3):
            code = (
                "const raw = JSON.parse(data.textContent); const s = Model.open(raw[arguments[0]]);"
                "const d = arguments[1];"
                "return [Model.simulate(s, raw.link, d).post, Model.bandwidthBound(s, raw.link, d)]"
            )
            post, bound = eight.js(code, key, delay)
            model = simulate(schedule, SIZE, LINK, planned_arrivals(schedule, delay).tolist())
            assert post == pytest.approx(model.post_seconds)
            assert bound == pytest.approx(bandwidth_bound(schedule, SIZE, LINK, delay))


def test_the_delay_slider_moves_the_post_times(eight):
    assert "2.88 ms" in eight.text("times") and "3.93 ms" in eight.text("times")
    eight.change("delay", 0)
    assert "0.00 µs late" in eight.text("delaywords") and "2.88 ms" not in eight.text("times")


@pytest.mark.parametrize("size", [(1024, 700), (390, 800)], ids=["small", "phone"])
def test_nothing_is_wider_than_the_screen(opened, size):
    page = opened(page_of(synthesize(EIGHT)), size)
    assert page.js("return document.documentElement.scrollWidth <= innerWidth")


def test_sixty_four_ranks_are_stepped_through(opened):
    """`docs/inspector.md` says how long a step took."""
    page = opened(page_of(synthesize(Request(64, (5,)))))
    page.js("for (let i = 0; i < 30; i++) next.click();")
    assert page.errors() == []


def test_hostile_names_are_text(opened):
    schedule = dataclasses.replace(
        synthesize(Request(4, (3,))), origin=Origin(HOSTILE, (("a", "\u05d0<b>"),))
    )
    page = opened(page_of(schedule, schedule))
    assert page.text("name") == HOSTILE
    assert (
        "bad" not in page.driver.title.split(HOSTILE)[-1] and page.js("return document.scripts.length") == 2
    )
    assert page.errors() == []


def test_a_broken_schedule_leads_to_its_violation(opened):
    swap = [(0, 1, 0, 1, 0), (1, 0, 0, 1, 0)]
    page = opened(page_of(Schedule(2, (), 1, (Phase.build("post", [swap, swap]),))))
    assert "not valid" in page.text("verdict")
    page.driver.find_element("css selector", "#findings button").click()
    assert "post round 1" in page.text("where")


def test_a_program(opened):
    text = lower(synthesize(Request(4, (3,))), LowerOptions()).text
    page = opened(program_page(analyse(text.encode(), "four")))
    assert page.text("verdict") == "valid" and page.text("h-crit") == "Critical path: 6 messages"
    page.driver.find_element("css selector", "#critical button").click()
    assert page.text("p-raw").startswith('<step s="0" type="s"')
    assert "on the critical path" in page.text("p-facts")
    before = page.text("h-step")
    page.driver.find_element("id", "blocks").send_keys("\ue014")  # arrow right
    assert page.text("h-step") != before
    assert page.errors() == []


def test_labels_for_screen_readers(eight):
    unnamed = eight.js(
        "const all = 'button,input,select,canvas,svg'.split(',').map(e => `#schedule ${e}`).join();"
        "return [...document.querySelectorAll(all)]"
        ".filter(e => !e.getAttribute('aria-label') && !e.textContent.trim() && !e.labels?.length)"
        ".map(e => e.id)"
    )
    assert unnamed == []
    data = json.loads(eight.text("data"))
    assert data["kind"] == "schedule"
