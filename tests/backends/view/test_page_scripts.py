"""The page's scripts without a browser: types by TypeScript, behaviour by Node.js.

TypeScript is not on PyPI: `make page` puts it into `build/page/`, and `make test` does so where npm is there.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from stragglar.backends.view.inspector import SCRIPTS, source

HERE = Path(__file__).parent / "page"
ROOT = Path(__file__).parents[3]
PAGE = ROOT / "backends" / "view" / "page"
NODE = shutil.which("node")
TSC = ROOT / "build" / "page" / "node_modules" / "typescript" / "bin" / "tsc"

needs_node = pytest.mark.skipif(NODE is None, reason="needs Node.js (node)")
needs_tsc = pytest.mark.skipif(NODE is None or not TSC.exists(), reason="needs TypeScript: make page")


def tsc(project):
    return subprocess.run(
        [NODE, TSC, "-p", project], capture_output=True, text=True, check=False, timeout=120
    )


@needs_node
def test_what_the_scripts_do():
    tests = sorted(map(str, HERE.glob("*.test.js")))
    done = subprocess.run([NODE, "--test", *tests], capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    assert re.search(r"^(#|ℹ) fail 0$", done.stdout, re.M) and not re.search(
        r"^(#|ℹ) pass 0$", done.stdout, re.M
    )


@needs_tsc
def test_types():
    done = tsc(HERE / "tsconfig.json")
    assert done.returncode == 0, done.stdout[-4000:]


@needs_tsc
def test_the_check_of_types_sees_mistakes(tmp_path):
    for path in PAGE.iterdir():
        shutil.copy(path, tmp_path)
    mistakes = {
        "Draw.byld('map');": "TS2339",
        "Model.message(1, 2);": "TS2345",
        "function unused() { const nothing = 1; }": "TS6133",
        "document.getElementById('x').focus();": "TS2531",
        "function loose(x) { return x; } loose(1);": "TS7006",
    }
    with (tmp_path / "main.js").open("a") as stream:
        stream.write("\n".join(mistakes))
    settings = json.loads((HERE / "tsconfig.json").read_text())
    settings["include"] = ["*.js", "*.d.ts"]
    (tmp_path / "tsconfig.json").write_text(json.dumps(settings))
    found = tsc(tmp_path / "tsconfig.json").stdout
    for code in mistakes.values():
        assert code in found


def test_every_script_is_used_strict_and_explained():
    assert {path.name for path in PAGE.glob("*.js")} == set(SCRIPTS)
    for name in SCRIPTS:
        assert source(name).startswith('"use strict";\n/** ')
        assert max(map(len, source(name).splitlines())) <= 160
        assert "innerHTML" not in source(name) and "eval(" not in source(name)
