"""Compares pytest's results (JUnit XML) with the failures that are expected. Exits with 1 for any surprise."""

import sys
import xml.etree.ElementTree as ET


def expected_failures(path):
    """Reasons by the names of tests: a name, spaces, a reason; lines with # are comments."""
    reasons = {}
    with open(path, encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
            if not line.strip() or line.startswith("#"):
                continue
            name, _, reason = line.strip().partition(" ")
            if not reason.strip() or name in reasons:
                sys.exit(f"{path}:{number}: a line has a name and a reason, and no name comes twice")
            reasons[name] = reason.strip()
    return reasons


def main(results, expected):
    reasons = expected_failures(expected)
    passed, failed, skipped = set(), {}, set()
    for case in ET.parse(results).iter("testcase"):
        name = case.get("name")
        broken = [found for kind in ("failure", "error") for found in case.iter(kind)]
        if broken:
            failed[name] = (broken[0].get("message") or "").split("\n")[0][:200]
        elif case.find("skipped") is not None:
            skipped.add(name)
        else:
            passed.add(name)
    passed -= failed.keys()
    surprises = [f"failed: {name}  ({message})" for name, message in failed.items() if name not in reasons]
    surprises += [f"passed, but is expected to fail: {name}" for name in sorted(passed & reasons.keys())]
    for surprise in surprises:
        print(surprise)
    as_expected = len(failed.keys() & reasons.keys())
    ran = len(passed) + len(failed)
    print(f"{len(passed)} passed of {ran}; {as_expected} failed as expected, {len(surprises)} surprises", end="")
    print(f", {len(skipped)} skipped" if skipped else "")
    return 1 if surprises else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
