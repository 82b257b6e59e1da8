# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Write the stand-in's wheels: ``python build_wheels.py OUTDIR``.

The zip is written directly, so that nothing is needed but Python itself, and
the bytes depend on the sources alone.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import zipfile
from collections.abc import Sequence
from pathlib import Path

VERSIONS = ("0.5.23", "0.5.16")
SOURCE = Path(__file__).resolve().parent / "src"
#: Files that a release has in another form than SOURCE.
OWN = {version: SOURCE.parent / ("release_" + version.replace(".", "_")) for version in VERSIONS}

_METADATA = """\
Metadata-Version: 2.1
Name: sglang
Version: {version}
Summary: Stand-in for the sglang engine, for tests only
License: GPL-3.0-or-later
Requires-Python: >=3.9
Requires-Dist: aiohttp>=3.9
"""
_WHEEL = """\
Wheel-Version: 1.0
Generator: engine_stand_in
Root-Is-Purelib: true
Tag: py3-none-any
"""


def _files(version: str) -> dict[str, bytes]:
    files = {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for folder in (SOURCE, OWN[version])
        for path in sorted(folder.rglob("*"))
        if path.is_file() and "__pycache__" not in path.parts and path.suffix != ".pyc"
    }
    info = f"sglang-{version}.dist-info"
    files[f"{info}/METADATA"] = _METADATA.format(version=version).encode()
    files[f"{info}/WHEEL"] = _WHEEL.encode()
    return files


def _record_line(name: str, data: bytes) -> str:
    digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
    return f"{name},sha256={digest},{len(data)}"


def build(version: str, folder: Path) -> Path:
    """Write one wheel and return its path."""
    files = _files(version)
    record = f"sglang-{version}.dist-info/RECORD"
    lines = [_record_line(name, data) for name, data in files.items()]
    files[record] = "\n".join([*lines, f"{record},,", ""]).encode()
    folder.mkdir(parents=True, exist_ok=True)
    wheel = folder / f"sglang-{version}-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            member = zipfile.ZipInfo(name, date_time=(2020, 1, 1, 0, 0, 0))
            member.compress_type = zipfile.ZIP_DEFLATED
            member.external_attr = 0o644 << 16
            archive.writestr(member, data)
    return wheel


def main(argv: Sequence[str] | None = None) -> None:
    """Write all wheels into the folder given."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("outdir", type=Path)
    args = parser.parse_args(argv)
    for version in VERSIONS:
        print(build(version, args.outdir))


if __name__ == "__main__":
    main()
