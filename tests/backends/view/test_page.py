"""The inspector in a headless browser, used as people use it. Without Chromium these tests are skipped."""

from __future__ import annotations

import dataclasses
import json
import shutil

import numpy as np
import pytest
from test_program import deadlocked

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
from stragglar.synth.several import groups_schedule

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

    def media(self, kind="screen", dark=False):
        features = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": kind, "features": features})
        # The page is told of it with the next frame.
        frames = "const done = arguments[0]; requestAnimationFrame(() => requestAnimationFrame(done))"
        self.driver.execute_async_script(frames)

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


def test_too_large_a_schedule_is_refused():
    round_ = np.tile((0, 1, 0, 1, 1), (MOST_TRANSFERS + 1, 1))
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


def program(text, name="x"):
    return program_page(analyse(text.encode(), name))


@pytest.fixture(scope="module")
def four():
    return lower(synthesize(Request(4, (3,))), LowerOptions()).text


def test_a_program(opened, four):
    page = opened(program(four))
    assert page.text("verdict") == "valid" and page.text("h-crit") == "Critical path: 6 messages"
    page.driver.find_element("css selector", "#critical button").click()
    assert page.text("p-raw").startswith('<step s="0" type="s"')
    assert "on the critical path" in page.text("p-facts")
    before = page.text("h-step")
    page.driver.find_element("id", "blocks").send_keys("\ue014")  # arrow right
    assert page.text("h-step") != before
    assert page.errors() == []


def test_findings_of_a_program_lead_to_their_place(opened):
    page = opened(program(deadlocked()))
    assert "not valid" in page.text("verdict")
    buttons = page.driver.find_elements("css selector", "#findings button")
    found = {button.text: button for button in buttons}
    line = next(text for text in found if text.startswith("deadlock: rank 0 tb 1 step 0"))
    page.click("p-path")  # which hides all blocks: there is no critical path
    page.js("arguments[0].click()", found[line])
    assert page.text("h-step") == "Rank 0 tb 1 step 0"
    assert line in page.text("p-facts") and "its block waits in a cycle" in page.text("p-facts")
    assert page.js("return document.getElementById('p-path').checked") is False
    cycle = next(text for text in found if "cycle" in text)
    page.js("arguments[0].click()", found[cycle])
    assert page.text("h-step") == "Rank 0 tb 0 step 0"
    assert page.errors() == []


def test_every_block_of_a_large_program_can_be_seen_and_clicked(opened):
    text = lower(synthesize(Request(32, (5,))), LowerOptions()).text
    page = opened(program(text))
    blocks = page.js("return JSON.parse(data.textContent).program.blocks")
    last = next(block for block in reversed(blocks) if block["steps"])
    page.js("document.getElementById('blocks-scroll').scrollTop = 1e9")
    assert page.js("return document.getElementById('blocks-scroll').scrollTop") > 10_000
    # A click in the middle of the first step of that block, wherever it is now.
    column = last["steps"][0][10]
    code = """
        const scroll = document.getElementById('blocks-scroll'), [row, column, cell] = arguments;
        scroll.scrollLeft = Math.max(0, column * cell - 100);
        const box = blocks.getBoundingClientRect();
        const clientX = box.left + 186 + (column + 0.5) * cell - scroll.scrollLeft;
        const clientY = box.top + row * 18 + 10 - scroll.scrollTop;
        blocks.dispatchEvent(new MouseEvent('click', { clientX, clientY, bubbles: true }));
    """
    columns = 1 + max(step[10] for block in blocks for step in block["steps"])
    page.js(code, blocks.index(last), column, max(14, min(30, 24000 / columns)))
    assert page.text("h-step") == f"Rank {last['rank']} tb {last['id']} step {last['steps'][0][0]}"
    assert page.errors() == []


def test_a_hostile_program_is_text(opened, four):
    name = four.split('name="')[1].split('"')[0]
    hostile = HOSTILE.replace("<", "&lt;").replace(">", "&gt;").replace('"', "&quot;")
    page = opened(program(four.replace(name, hostile + "\u202e" + "x" * 2000)))
    shown = page.text("name")
    assert shown.startswith(HOSTILE) and "\u202e" not in shown and len(shown) <= 90
    assert page.js("return document.scripts.length") == 2 and not page.driver.title.startswith("bad")
    assert page.js("return document.documentElement.scrollWidth <= innerWidth")
    assert page.errors() == []


def test_groups_arrive_one_after_another(opened):
    schedule = groups_schedule(6, ((1,), (3, 4)), 6)
    page = opened(page_of(schedule, synthesize(Request(6, (1, 3, 4), "ring"))))
    assert "6 ranks, 6 chunks, late: 1, 3, 4" in page.text("facts")
    starts = np.cumsum([0, *(len(phase) for phase in schedule.phases)])
    for phase, words in ((1, "rank 1 arrived"), (2, "ranks 3, 4 arrived")):
        page.change("round", int(starts[phase]))
        assert page.text("where").endswith(words)
    read = "return [...document.querySelectorAll('.lane')].map(e => e.getAttribute('aria-label'))"
    for slide in (200, 1000):
        page.change("delay", slide)
        assert "2 groups, evenly spread" in page.text("delaywords")
        label, other = page.js(read)
        assert label.split("Arrivals: ")[1] == other.split("Arrivals: ")[1]
        times = [part.split(" at ")[1] for part in label.split("Arrivals: ")[1].split("; ")]
        scale = {"s": 1, "ms": 1e-3, "µs": 1e-6}
        first, last = (float(t.split()[0]) * scale[t.split()[1]] for t in times)
        assert last == pytest.approx(2 * first, rel=0.01) and last > 0
        assert "rank 1 at" in label and "ranks 3, 4 at" in label
    assert page.errors() == []


def lines(page, colour):
    """Columns of the first lane that are of that colour from top to bottom."""
    code = """
        const lane = document.querySelector('.lane'), context = lane.getContext('2d'), found = [];
        const want = getComputedStyle(document.documentElement).getPropertyValue(arguments[0]).trim();
        const rgb = [1, 3, 5].map(i => parseInt(want.slice(i, i + 2), 16));
        for (let x = 0; x < lane.width; x++) {
          const pixels = context.getImageData(x, 6, 1, lane.height - 26).data;
          let same = 0;
          for (let i = 0; i < pixels.length; i += 4)
            same += rgb.every((v, k) => Math.abs(v - pixels[i + k]) < 40);
          if (same > 0.8 * pixels.length / 4) found.push(x);
        }
        return found;
    """
    columns = page.js(code, colour)
    return [x for at, x in enumerate(columns) if at == 0 or x > columns[at - 1] + 2]


def test_each_group_has_a_line_in_the_lanes(opened):
    page = opened(page_of(groups_schedule(6, ((1,), (3, 4)), 6)))
    page.change("delay", 900)
    assert len(lines(page, "--late")) == 2
    page.change("delay", 0)
    assert len(lines(page, "--late")) == 1  # all come at once: the last arrival alone


@pytest.mark.parametrize("dark", [False, True])
def test_paper_is_light_and_has_no_controls(eight, dark):
    eight.media(dark=dark)
    ink = eight.js("return Draw.named('ink')")
    before = eight.js("return Draw.palette()[0]")
    eight.js("dispatchEvent(new Event('beforeprint'))")
    eight.media("print", dark)
    assert eight.js("return [Draw.named('ink'), Draw.palette()[0]]") == ["#1c2430", "#0067a8"]
    assert eight.js("return getComputedStyle(document.querySelector('#schedule .bar')).display") == "none"
    assert eight.js("return getComputedStyle(document.body).color") == "rgb(28, 36, 48)"
    eight.media(dark=dark)
    eight.js("dispatchEvent(new Event('afterprint'))")
    assert eight.js("return [Draw.named('ink'), Draw.palette()[0]]") == [ink, before]
    eight.media()


def test_transfers_are_chosen_by_keys(eight):
    from selenium.webdriver.common.keys import Keys

    eight.change("round", 9)
    row = eight.driver.find_elements("css selector", "#moves tbody tr")[1]
    for key in (Keys.ENTER, Keys.SPACE):
        eight.js("arguments[0].focus()", row)
        row.send_keys(key)
        assert eight.text("raw").startswith('phase "post" round 3')
        current = eight.js("return document.activeElement.getAttribute('aria-current')")
        assert current == "true"  # and the focus stays, though the rows were made anew
        row = eight.driver.find_elements("css selector", "#moves tbody tr")[0]
    assert eight.text("play") == "play"


def test_five_hundred_and_twelve_ranks_open(opened):
    page = opened(page_of(synthesize(Request(512, (5,))), synthesize(Request(512, (5,), "ring"))))
    assert "(1 of 1029)" in page.text("where")
    page.change("round", 700)
    page.change("delay", 300)
    assert page.text("h-moves").startswith("Transfers: ") and "ms" in page.text("times")
    assert page.errors() == []


@pytest.mark.parametrize("size", [(1024, 700), (390, 800)], ids=["small", "phone"])
def test_no_program_is_wider_than_the_screen(opened, four, size):
    page = opened(program(four), size)
    assert page.js("return document.documentElement.scrollWidth <= innerWidth")
    assert unnamed(page, "program") == []


def unnamed(page, part):
    """What a screen reader could not name in that part of the page."""
    code = (
        "const all = 'button,input,select,canvas,svg'.split(',').map(e => `#${arguments[0]} ${e}`).join();"
        "return [...document.querySelectorAll(all)]"
        ".filter(e => !e.getAttribute('aria-label') && !e.textContent.trim() && !e.labels?.length)"
        ".map(e => e.id)"
    )
    return page.js(code, part)


def test_labels_for_screen_readers(eight):
    assert unnamed(eight, "schedule") == []
    assert eight.js("return document.documentElement.lang") == "en"
    for part in ("where", "raw"):
        assert (
            eight.js("return document.getElementById(arguments[0]).getAttribute('aria-live')", part)
            == "polite"
        )
    data = json.loads(eight.text("data"))
    assert data["kind"] == "schedule"
