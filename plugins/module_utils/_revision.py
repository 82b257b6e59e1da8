# Copyright: InferOps maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which revision a cluster goes back to, and what stands in the way.

Pure. A revision is what was deployed of one unit when a co-restart ended well: the bytes of
its managed files, kept on its host. It is named by the generation of that co-restart; the
generations after it that ended well with the very same bytes are further names of it. To go
back to generation N, each member takes its newest revision that is not newer than N.
"""

from __future__ import annotations

from typing import Any

from ansible_collections.inferops.sglang_pd.plugins.module_utils import _topology
from ansible_collections.inferops.sglang_pd.plugins.module_utils._topology import problem

#: Generations that one revision remembers as names.
NAMES_LENGTH = 20
#: Revisions that a host keeps of a unit where its member file does not say.
KEPT_REVISIONS = 5

RULE = "back only to what ended well"


def managed_files(unit: str) -> dict[str, str]:
    """Return the files of a unit that a revision holds: path by name within the revision."""
    return {
        "unit": "/etc/systemd/system/{0}".format(unit),
        "env": "/etc/sglang-pd/{0}.env".format(unit),
        "secrets.yaml": "/etc/sglang-pd/{0}.secrets.yaml".format(unit),
        "member.json": "/etc/sglang-pd/members/{0}.json".format(unit),
    }


#: Names of files whose content is shown to nobody.
SECRET_FILES = ("env", "secrets.yaml")


def keep(
    revisions: list[dict[str, Any]], new: dict[str, Any], limit: int
) -> tuple[str, list[dict[str, Any]], list[int]]:
    """Return what to do with what is deployed now that a co-restart ended well.

    A co-restart that changes nothing adds a name to the newest revision: else five of them
    would push out the only one that is worth going back to.

    :param revisions: of the unit, newest first: ``generation``, ``generations``, ``digest``.
    :param new: ``generation`` and ``digest`` of what is deployed.
    :param limit: how many revisions are kept.
    :return: ``same`` (the newest one is the same, with a name more), ``new`` or ``known``;
        the revisions as they are to be, newest first; the generations whose files go.
    """
    if any(new["generation"] in one["generations"] for one in revisions):
        return "known", revisions, []
    if revisions and revisions[0]["digest"] == new["digest"]:
        names = (revisions[0]["generations"] + [new["generation"]])[-NAMES_LENGTH:]
        return "same", [dict(revisions[0], generations=names)] + revisions[1:], []
    kept = [dict(new, generations=[new["generation"]])] + revisions
    limit = max(1, limit)
    return "new", kept[:limit], [one["generation"] for one in kept[limit:]]


def known_generations(records: list[dict[str, Any]]) -> list[int]:
    """Return the generations of a cluster that ended well and can be gone back to, newest first."""
    names = {name for record in records for one in record["revisions"] for name in one["generations"]}
    return sorted((name for name in names if all(revision_at(r, name) for r in records)), reverse=True)


def revision_at(record: dict[str, Any], generation: int) -> dict[str, Any] | None:
    """Return a member's newest revision that is not newer than a generation."""
    return next((one for one in record["revisions"] if one["generation"] <= generation), None)


def choose(records: list[dict[str, Any]], wanted: int, follows: int) -> tuple[int, str, list[dict[str, str]]]:
    """Return the generation that a cluster goes back to, why that one, and why none.

    :param records: the members that go back, as ``member_info`` found them, with
        ``revisions`` (newest first) and ``deployed_digest``.
    :param wanted: a generation by name, 0 for the last good one.
    :param follows: the generation that failed, where one did, else 0. Then only the newest one before it is
        meant: where that is what is deployed, the failure did not come with a change. One that ended
        well and failed its soak is itself among the known ones.
    """
    cluster = records[0]["member"]["cluster"]
    known = [one for one in known_generations(records) if not follows or one < follows]
    if wanted and wanted not in known:
        return (
            0,
            "",
            [
                problem(
                    RULE,
                    "cluster {0} cannot go back to generation {1}: {2}".format(
                        cluster, wanted, _what_there_is(records, known)
                    ),
                    variable="pd_rollback_generation",
                )
            ],
        )
    if wanted:
        return wanted, "asked for by name", []
    if not known:
        return (
            0,
            "",
            [problem(RULE, "cluster {0} has no revision: {1}".format(cluster, _what_there_is(records, known)))],
        )
    for generation in known:
        if _differs(records, generation):
            return generation, "the newest generation that ended well with other files than those deployed", []
        if generation == known[0] and follows:
            break
        if generation == known[0] and not all(map(_runs, records)):
            return generation, "the last generation that ended well is deployed and does not run", []
    return (
        0,
        "",
        [
            problem(
                RULE,
                "cluster {0}: what is deployed is what ended well last, generation {1}; nothing to go back to".format(
                    cluster, known[0]
                ),
            )
        ],
    )


def _what_there_is(records: list[dict[str, Any]], known: list[int]) -> str:
    if known:
        return "it has {0}".format(", ".join(map(str, sorted(known))))
    without = [r["member"] for r in records if not r["revisions"]]
    if not without:
        return "its members have no generation in common"
    return "no co-restart of {0} on {1} ended well yet with what was deployed".format(
        without[0]["unit"], without[0]["host"]
    )


def _differs(records: list[dict[str, Any]], generation: int) -> bool:
    return any((revision_at(r, generation) or {}).get("digest") != r["deployed_digest"] for r in records)


def _runs(record: dict[str, Any]) -> bool:
    unit = record["unit"]
    return bool(
        unit["active_state"] == "active" and record["running_configuration"] == record["member"]["configuration"]
    )


def restored(record: dict[str, Any], generation: int) -> tuple[dict[str, Any], list[dict[str, str]]]:
    """Return a member's record as it will be after the restoration, and what stands in its way.

    :return: the record with the revision's description of the member and ``restores``, the
        revision.
    """
    revision = revision_at(record, generation)
    assert revision is not None  # noqa: S101 - choose() gives only generations that all have
    host = record["member"]["host"]
    found = [
        problem(
            "an old revision can start",
            "{0} cannot go back to generation {1}: {2}".format(
                record["member"]["unit"], revision["generation"], trouble
            ),
            host,
        )
        for trouble in revision["problems"]
    ]
    if found:
        return record, found
    member = dict(revision["member"], host=host)
    listeners = [one for one in record["listeners"] if one["port"] in _topology.ports_of(member).values()]
    return dict(record, member=member, listeners=listeners, restores=revision), found
