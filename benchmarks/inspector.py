"""How long the inspector takes in headless Chromium, and the pictures of it in docs/.

python benchmarks/inspector.py                     # a table for docs/inspector.md
python benchmarks/inspector.py --pictures docs/figures

Needs chromium, chromedriver and selenium; no GPU, so everything is painted in software.
"""

from __future__ import annotations

import base64
import io
import shutil
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from stragglar.backends.msccl.lower import lower
from stragglar.backends.msccl.options import LowerOptions
from stragglar.backends.view.inspector import program_page, schedule_page
from stragglar.backends.view.program_data import analyse
from stragglar.backends.view.program_svg import program_svg
from stragglar.schedules import Link, Schedule
from stragglar.schedules.svg import draw_svg
from stragglar.synth import Request, synthesize
from stragglar.synth.several import groups_schedule

if TYPE_CHECKING:
    from selenium.webdriver import Chrome

LINK, SIZE, DELAY = Link(3e-6, 450 * 2.0**30), 2**30, 5e-3

FRAMES = """
const [code, count, done] = arguments, act = new Function("i", code), frames = [], scripts = [];
let last = 0, i = 0;
const step = () => {
  const now = performance.now();
  if (i) frames.push(now - last);
  if (i >= count) {
    for (const times of [frames, scripts]) times.sort((a, b) => a - b);
    return done([frames[count >> 1], frames[count - 1], scripts[count >> 1]]);
  }
  last = now;
  act(i++);
  scripts.push(performance.now() - now);
  requestAnimationFrame(() => setTimeout(step, 0));
};
requestAnimationFrame(() => setTimeout(step, 0));
"""
PAINTED = "const done = arguments[0]; requestAnimationFrame(() => setTimeout(done, 0))"
ACTIONS = {
    "a round": "next.click()",
    "a delay": "delay.value = String(100 + 20 * i); delay.dispatchEvent(new Event('input'))",
    "a filter": "rank.value = String(i); rank.dispatchEvent(new Event('change'))",
}
GO = "round.value = arguments[0]; round.dispatchEvent(new Event('input'))"
PATH = (
    "document.getElementById('p-path').click();"
    "document.querySelectorAll('#critical button')[arguments[0]].click()"
)


def browser() -> Chrome:
    """A headless Chromium."""
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium") or shutil.which("chromium-browser") or ""
    for flag in ("headless=new", "no-sandbox", "disable-gpu", "disable-dev-shm-usage", "hide-scrollbars"):
        options.add_argument(f"--{flag}")
    driver = webdriver.Chrome(options=options, service=Service(shutil.which("chromedriver")))
    driver.set_script_timeout(300)
    return driver


def size_to(driver: Chrome, width: int, height: int, dark: bool = False) -> None:
    """Sets the size of the screen, and day or night."""
    metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    colours = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": colours})


def page_of(schedule: Schedule) -> str:
    """Its page, the ring beside it."""
    ring = synthesize(Request(schedule.ranks, schedule.late, "ring"))
    return schedule_page(schedule, ring, SIZE, LINK, DELAY)


def measure(driver: Chrome, path: Path, ranks: int) -> str:
    """A row of the table."""
    schedule = synthesize(Request(ranks, (5,)))
    path.write_text(page_of(schedule), encoding="utf-8")
    opens = []
    for _ in range(5):
        start = time.perf_counter()
        driver.get(path.as_uri())
        driver.execute_async_script(PAINTED)
        opens.append(time.perf_counter() - start)
    count = 30 if ranks <= 256 else 10
    times = [driver.execute_async_script(FRAMES, code, count) for code in ACTIONS.values()]
    cells = [f"{frame:.0f} ms ({script:.0f})" for frame, _, script in times]
    middle = sorted(opens)[len(opens) // 2]
    transfers = schedule.transfer_count + 2 * (ranks - 1) * ranks
    size = path.stat().st_size / 1e6
    span = f"{middle:.2f} s ({min(opens):.2f} to {max(opens):.2f})"
    return f"| {ranks} | {transfers:,} | {size:.2f} MB | {span} | {' | '.join(cells)} |"


def picture(driver: Chrome, page: Path, target: Path, text: str, js: str, place: int) -> None:
    """A screenshot, in few colours."""
    from PIL import Image

    page.write_text(text, encoding="utf-8")
    driver.get(page.as_uri())
    driver.execute_script(js, place)
    driver.execute_async_script(PAINTED)
    shot = driver.execute_cdp_cmd("Page.captureScreenshot", {"format": "png"})["data"]
    image = Image.open(io.BytesIO(base64.b64decode(shot))).convert("RGB")
    image.quantize(96, dither=Image.Dither.NONE).save(target, optimize=True)


def pictures(driver: Chrome, page: Path, folder: Path) -> None:
    """All pictures of docs/inspector.md."""
    eight, many = synthesize(Request(8, (3,))), synthesize(Request(64, (5,)))
    xml = lower(eight, LowerOptions()).text.encode()
    size_to(driver, 1024, 1260)
    picture(driver, page, folder / "inspector.png", page_of(eight), GO, 9)
    groups = groups_schedule(8, ((2,), (5, 6)), 14)
    picture(driver, page, folder / "inspector-groups.png", page_of(groups), GO, 16)
    size_to(driver, 1280, 660)
    program = program_page(analyse(xml, "s.xml"))
    picture(driver, page, folder / "inspector-msccl.png", program, PATH, 7)
    size_to(driver, 1280, 900, dark=True)
    picture(driver, page, folder / "inspector-64-dark.png", page_of(many), GO, 80)
    (folder / "steps-8.svg").write_text(draw_svg(eight), encoding="utf-8")
    four = analyse(lower(synthesize(Request(4, (3,))), LowerOptions()).text.encode(), "four.xml")
    (folder / "msccl-4.svg").write_text(program_svg(four, SIZE, LINK, DELAY), encoding="utf-8")


@click.command()
@click.option("--ranks", default="64,256,512", show_default=True, help="Numbers of ranks to measure.")
@click.option("--pictures", "folder", metavar="FOLDER", help="Make the pictures of docs/ instead.")
def main(ranks: str, folder: str | None) -> None:
    """Measure the inspector in a browser, or take its pictures."""
    driver = browser()
    try:
        with tempfile.TemporaryDirectory() as name:
            page = Path(name) / "page.html"
            if folder is not None:
                pictures(driver, page, Path(folder))
                return
            size_to(driver, 1024, 700)
            click.echo(f"| ranks | transfers, both | file | opens in | {' | '.join(ACTIONS)} |")
            click.echo("| --- " * (4 + len(ACTIONS)) + "|")
            for number in map(int, ranks.split(",")):
                click.echo(measure(driver, page, number))
    finally:
        driver.quit()


if __name__ == "__main__":
    main()
