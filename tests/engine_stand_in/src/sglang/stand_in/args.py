# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Command line of the engine: the same flags, abbreviations and refusals.

The flag tables were read off the ``--help`` of the real releases. argparse does
the rest exactly as there: a unique prefix is accepted, an ambiguous or unknown
flag exits 2, and of a repeated flag the last value wins.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from typing import Any

from sglang.stand_in import config_file, release


def _human_int(text: str) -> int:
    """Read 8192, 8k or 8K, as the token count flags do."""
    scale = {"k": 1000, "m": 1000**2, "g": 1000**3, "K": 1024, "M": 1024**2, "G": 1024**3}
    if text and text[-1] in scale:
        return int(float(text[:-1]) * scale[text[-1]])
    return int(text)


_TYPES: dict[str, Any] = {
    "str": str,
    "int": int,
    "float": float,
    "json": json.loads,
    "human_int": _human_int,
}


def _default_of(kind: str, value: Any) -> Any:
    return value if value is not None or kind != "const" else False


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the installed release."""
    parser = argparse.ArgumentParser(prog="sglang serve")
    for flag in release.read_json(f"flags-{release.FACES}.json"):
        kind = flag["kind"]
        options: dict[str, Any] = {"dest": flag["dest"]}
        if kind == "const":
            options.update(action="store_const", const=flag["const"])
        elif kind == "optional_bool":
            options.update(action=argparse.BooleanOptionalAction)
        else:
            options.update(type=_TYPES[kind])
            if "nargs" in flag:
                options["nargs"] = flag["nargs"]
            if "choices" in flag:
                options["choices"] = [_TYPES[kind](c) for c in flag["choices"]]
            if flag.get("required"):
                options["required"] = True
        options["default"] = _default_of(kind, flag.get("default"))
        parser.add_argument(*flag["flags"], **options)
    return parser


def parse(argv: Sequence[str]) -> tuple[argparse.Namespace, list[str]]:
    """Return the parsed arguments and the argument list with --config unfolded."""
    parser = build_parser()
    merged = config_file.merge(parser, list(argv)) if "--config" in argv else list(argv)
    args = parser.parse_args(merged)
    if args.tokenizer_path is None:
        args.tokenizer_path = args.model_path
    if args.served_model_name is None:
        args.served_model_name = args.model_path
    if args.extra_metric_labels is not None and not isinstance(args.extra_metric_labels, dict):
        parser.error("argument --extra-metric-labels: a JSON object is expected")
    return args, merged
