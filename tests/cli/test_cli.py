"""The command as it is typed: every subcommand, its exit codes, one line on stderr for what fails."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from pathlib import Path

import pytest

from stragglar.cli.main import COMMANDS, run
from stragglar.schedules import dump_schedule, load_schedule
from stragglar.synth import Request, synthesize


class Done:
    def __init__(self, code, out, err):
        self.code, self.out, self.err = code, out, err

    @property
    def json(self):
        return json.loads(self.out)


@pytest.fixture
def cli(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def call(*arguments: str, stdin: bytes | None = None) -> Done:
        if stdin is not None:
            monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        code = run([str(a) for a in arguments])
        captured = capsys.readouterr()
        return Done(code, captured.out, captured.err)

    return call


@pytest.fixture
def s8(cli):
    assert cli("synth", "-n", "8", "--late", "3", "-o", "s.json").code == 0
    return "s.json"


def test_synth_and_check(cli, s8):
    done = cli("check", s8, "--json")
    assert done.code == 0
    expected = {
        "valid": True,
        "ranks": 8,
        "late": [3],
        "chunks": 7,
        "rounds": {"pre": 6, "post": 9},
        "gap": 0,
        "errors": [],
    }
    assert expected.items() <= done.json.items()
    assert done.json["bound"]["post_rounds"] == 9
    assert done.json["buffers"] == pytest.approx(9 / 7) and done.json["bound"]["buffers"] == 1.0
    assert done.json["bound"]["buffers_no_delay"] == pytest.approx(14 / 8)
    assert "valid" in cli("check", s8).out.splitlines()[-1]


def test_synth_says_what_it_made_on_stderr_only(cli):
    done = cli("synth", "-n", "5", "--late", "0", "--refine", "2")
    assert done.code == 0 and "gap 0" in done.err
    assert json.loads(done.out)["chunks"] == 8


@pytest.mark.parametrize("option", ["--late", "--straggler"])
@pytest.mark.parametrize("algorithm", ["ring", "rhd", "direct", "stragglar"])
def test_synth_algorithms_and_the_papers_word(cli, option, algorithm):
    assert cli("synth", "-n", "6", option, "2", "--algorithm", algorithm, "-o", "x.json").code == 0
    schedule = load_schedule("x.json")
    assert schedule.late == (2,) and schedule.origin.family == algorithm


def test_several_late_ranks_and_none(cli):
    assert (
        cli("synth", "-n", "6", "--late", "2,4", "--late", "1", "--algorithm", "ring", "-o", "x.json").code
        == 0
    )
    assert load_schedule("x.json").late == (1, 2, 4)
    assert cli("synth", "-n", "6", "--algorithm", "rhd", "-o", "x.json").code == 0
    assert load_schedule("x.json").arrivals == ()
    assert cli("synth", "-n", "6", "--late", "2,4", "--algorithm", "split").code == 3
    assert cli("synth", "-n", "6", "--late", "2,4", "-o", "x.json").code == 0
    assert cli("check", "x.json", "--json").json["late"] == [2, 4]


def test_check_names_what_is_wrong(cli, s8):
    document = json.loads(Path(s8).read_text())
    document["phases"][1]["rounds"][4]["copy"] = document["phases"][1]["rounds"][4]["copy"][1:]
    Path("bad.json").write_text(json.dumps(document))
    done = cli("check", "bad.json", "--json", "--limit", "2")
    assert done.code == 1 and done.json["valid"] is False
    assert len(done.json["errors"]) <= 2 and done.json["error_count"] >= 1
    assert "post" in done.json["errors"][0]
    assert cli("check", "bad.json").code == 1


def test_check_does_not_believe_the_file(cli, s8):
    document = json.loads(Path(s8).read_text())
    document["origin"]["bound"]["post_rounds"] = 5
    Path("liar.json").write_text(json.dumps(document))
    done = cli("check", "liar.json", "--json")
    assert done.json["bound"]["post_rounds"] == 9 and "claims" in done.json["notes"][0]


def test_lower_check_xml_and_load(cli, s8):
    done = cli("lower", s8, "--to", "msccl-xml", "-o", "s.xml")
    assert done.code == 0 and "multiple of 7 elements" in done.err and "correct" in done.err
    assert "--chunks 128" in done.err
    done = cli("check", "s.xml", "--json")
    expected = {"valid": True, "ranks": 8, "late": [3], "chunks": 7, "gap": 0, "errors": []}
    assert expected.items() <= done.json.items()
    assert done.json["rounds"] == {"pre": 6, "post": 9} and done.json["bound"] == {"post_rounds": 9}
    for runtime in ("msccl", "msccl-executor", "rccl"):
        done = cli("load", "s.xml", "--runtime", runtime, "--dir", runtime)
        assert done.code == 0 and "export" in done.out
        assert (Path(runtime) / "s.xml").read_text() == Path("s.xml").read_text()
        assert (
            cli("load", "s.xml", "--runtime", runtime, "--dir", runtime, "--json").json["runtime"] == runtime
        )


@pytest.mark.parametrize("algorithm", ["ring", "rhd", "direct", "stragglar"])
def test_a_lowered_file_has_no_less_than_the_schedules_own_rounds_in_chunks(cli, algorithm):
    """Messages of several chunks weigh as many: the bound is in chunks, and no gap is negative."""
    late = ["--late", "1"] if algorithm == "stragglar" else []
    cli("synth", "-n", "4", *late, "--algorithm", algorithm, "--refine", "4", "-o", "c.json")
    assert cli("lower", "c.json", "--to", "msccl-xml", "-o", "c.xml").code == 0
    schedule, program = (cli("check", name, "--json").json for name in ("c.json", "c.xml"))
    assert program["gap"] == schedule["gap"] >= 0
    assert program["chunk_rounds"]["post"] == schedule["chunk_rounds"]["post"]


def test_lower_options(cli, s8):
    for options in (["--out-of-place"], ["--fused", "--runtime", "msccl"], ["--instances", "2"]):
        assert cli("lower", s8, "--to", "msccl-xml", "-o", "x.xml", *options).code == 0
    assert cli("lower", s8, "--to", "msccl-lang", "-o", "x.py").code == 0
    compile(Path("x.py").read_text(), "x.py", "exec")
    assert cli("lower", s8, "--to", "msccl-xml", "--runtime", "rccl", "--fused").code == 3
    assert cli("lower", s8, "--to", "msccl-xml", "--min-bytes", "1GiB", "--max-bytes", "1KiB").code == 2


def test_a_power_of_two_chunk_count_fits_power_of_two_buffers(cli):
    assert cli("synth", "-n", "8", "--late", "3", "--chunks", "128", "-o", "s.json").code == 0
    done = cli("lower", "s.json", "--to", "msccl-xml", "-o", "s.xml")
    assert "multiple of 128 elements" in done.err and "--chunks" not in done.err


def test_check_xml_finds_a_deadlock(cli, s8):
    cli("lower", s8, "--to", "msccl-xml", "-o", "s.xml")
    text = Path("s.xml").read_text()
    assert 'hasdep="1"' in text
    Path("bad.xml").write_text(text.replace('hasdep="1"', 'hasdep="0"', 1))
    done = cli("check", "bad.xml", "--json")
    assert done.code == 1 and not done.json["valid"] and done.json["errors"]
    assert cli("load", "bad.xml", "--runtime", "rccl", "--dir", "d").code == 1
    assert not Path("d/bad.xml").exists()


def test_run_on_the_model(cli, s8):
    done = cli("run", s8, "--on", "model", "--bytes", "1000004B", "--dtype", "i32", "--op", "max", "--json")
    assert done.code == 0 and done.json["correct"] is True and done.json["backend"] == "model"
    assert "every element of every rank is right" in cli("run", s8).out
    assert cli("run", s8, "--bytes", "3").code == 2
    odd = cli("run", s8, "--bytes", "1048577", "--json")
    assert odd.json["correct"] and odd.json["bytes"] == 1 << 20 and "1 of the bytes" in odd.err
    assert cli("run", s8, "--dtype", "f8").code == 2


def test_cost(cli, s8):
    arguments = ["cost", s8, "--bytes", "1GiB", "--alpha", "3us", "--bandwidth", "450GiB/s", "--delay", "5ms"]
    done = cli(*arguments, "--json")
    report = done.json
    assert report["post_seconds"] == pytest.approx(9 * (3e-6 + 1 / 450 / 7))
    assert report["baselines"]["ring"] == pytest.approx(14 * (3e-6 + 1 / 450 / 8))
    assert report["bound_seconds"] == pytest.approx(1 / 450)
    assert report["baselines"]["ring"] / report["post_seconds"] == pytest.approx(1.363, abs=1e-3)
    text = cli(*arguments).out
    assert "model" in text and "bound" in text and "ring" in text
    assert cli("cost", s8, "--bytes", "1GiB", "--bandwidth", "0").code == 2


def test_show(cli, s8):
    picture = cli("show", s8).out
    assert max(len(line) for line in picture.splitlines()) <= 100
    assert "late" in picture and "\x1b" not in picture
    part = cli("show", s8, "--rounds", "2..3", "--ranks", "0..2", "--ascii").out
    assert len(part) < len(picture) and part.isascii()
    assert cli("show", s8, "--rounds", "5..2").code == 2


def test_import(cli, data_dir):
    done = cli("import", data_dir / "published_8.txt", "-o", "p.json")
    assert done.code == 0
    report = cli("check", "p.json", "--json").json
    assert report["valid"] and report["rounds"]["post"] == 9 and report["late"] == [7]
    Path("junk.txt").write_text("Round 0\n1 ['__import__']\n")
    done = cli("import", "junk.txt", "-o", "q.json")
    assert done.code == 1 and "junk.txt:2:" in done.err and not Path("q.json").exists()


def test_standard_input_and_output(cli):
    text = dump_schedule(synthesize(Request(4, (1,))))
    assert cli("check", "-", "--json", stdin=text.encode()).json["valid"]
    done = cli("lower", "-", "--to", "msccl-xml", stdin=text.encode())
    assert done.out.startswith("<algo ")
    assert cli("check", "-", "--json", stdin=done.out.encode()).json["valid"]


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["check", "missing.json"], 2, "missing.json"),
        (["check", "."], 2, "cannot read"),
        (["check", "empty"], 1, "not JSON"),
        (["check", "broken.xml"], 1, "broken.xml"),
        (["show", "empty"], 1, "empty"),
        (["lower", "empty", "--to", "msccl-xml"], 1, "empty"),
        (["lower", "empty", "--to", "cuda"], 2, "--to"),
        (["synth", "-n", "8"], 2, "--late"),
        (["synth", "-n", "1", "--late", "0"], 2, "ranks must be"),
        (["synth", "-n", "8", "--late", "8"], 2, "late rank 8"),
        (["synth", "-n", "8", "--late", "3,x"], 2, "3,x"),
        (["synth", "-n", "8", "--late", "3", "--refine", "2", "--chunks", "9"], 2, "not both"),
        (["synth", "-n", "8", "--late", "3", "-o", "no/such/folder/s.json"], 2, "no/such/folder"),
        (["load", "broken.xml", "--runtime", "nccl"], 2, "--runtime"),
        (["nonsense"], 2, "nonsense"),
        (["cost", "empty"], 2, "--bytes"),
    ],
)
def test_one_line_and_the_right_exit_code(cli, arguments, code, words):
    Path("empty").write_text("")
    Path("broken.xml").write_text("<algo")
    done = cli(*arguments)
    assert done.code == code, done.err
    assert words in done.err and done.err.count("\n") == 1 and "Traceback" not in done.err
    assert done.out == ""


def test_nothing_is_half_written(cli, s8, monkeypatch):
    Path("s.xml").write_text("the old file")
    monkeypatch.setattr(
        "stragglar.schedules.files.os.fdopen", lambda *_a, **_k: (_ for _ in ()).throw(OSError(28, "full"))
    )
    done = cli("lower", s8, "--to", "msccl-xml", "-o", "s.xml")
    assert done.code == 2 and "full" in done.err
    assert Path("s.xml").read_text() == "the old file"
    assert sorted(p.name for p in Path().iterdir()) == ["s.json", "s.xml"]


@pytest.mark.parametrize("name", [None, *COMMANDS])
def test_help_has_an_example(cli, name):
    done = cli(*([name] if name else []), "--help")
    assert done.code == 0 and "Example" in done.out


def test_as_a_process():
    """The installed command, a pipe that closes early, and files equal in two processes."""
    command = Path(sys.executable).parent / "stragglar"
    texts = {subprocess.check_output([command, "synth", "-n", "9", "--late", "4"]) for _ in range(2)}
    assert len(texts) == 1
    piped = subprocess.run(
        f"{command} synth -n 200 --late 4 | head -c 10",
        shell=True,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "Traceback" not in piped.stderr and piped.returncode == 0


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["check"], 1),
        (["show"], 0),
        (["show", "--as", "svg", "-o", "h.svg"], 0),
        (["show", "--as", "html", "-o", "h.html"], 2),
        (["cost", "--bytes", "1KiB"], 0),
        (["lower", "--to", "msccl-xml"], 1),
        (["run"], 1),
    ],
)
def test_a_short_file_with_a_huge_claim_ends(cli, arguments, code):
    """Work follows what a file says, not what it claims: some of these once did not end."""
    rounds = [{"reduce": [[0, 1, 0, 1 << 24]]}]
    document = {"format": "stragglar-schedule", "version": 1, "collective": "allreduce", "ranks": 1 << 14}
    document |= {"late": [], "chunks": 1 << 24, "origin": {"family": "x"}}
    Path("h.json").write_text(json.dumps(document | {"phases": [{"name": "post", "rounds": rounds}]}))
    assert cli(arguments[0], "h.json", *arguments[1:]).code == code
