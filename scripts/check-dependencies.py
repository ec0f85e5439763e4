#!/usr/bin/env python3
"""Checks licences, sources and versions of all dependencies against deny.toml.

`cargo deny` checks the same and known vulnerabilities, but takes minutes to install and needs its
database. `make check` runs this script, and `cargo deny` too where it is installed.
"""

import json
import subprocess
import sys
import tomllib

REGISTRY = "registry+https://github.com/rust-lang/crates.io-index"


def allowed(expression, licences):
    """Evaluates an SPDX expression: AND binds stronger than OR, WITH belongs to its licence."""
    tokens = expression.replace("/", " OR ").replace("(", " ( ").replace(")", " ) ").split()

    def alternatives():
        fine = conjunction()
        while tokens and tokens[0] == "OR":
            tokens.pop(0)
            fine = conjunction() or fine
        return fine

    def conjunction():
        fine = one()
        while tokens and tokens[0] == "AND":
            tokens.pop(0)
            fine = one() and fine
        return fine

    def one():
        token = tokens.pop(0)
        if token == "(":
            fine = alternatives()
            tokens.pop(0)
            return fine
        if tokens and tokens[0] == "WITH":
            tokens.pop(0)
            token = f"{token} WITH {tokens.pop(0)}"
        return token in licences

    return alternatives()


def main():
    with open("deny.toml", "rb") as file:
        rules = tomllib.load(file)
    licences = set(rules["licenses"]["allow"])
    command = ["cargo", "metadata", "--format-version", "1", "--locked"]
    for target in rules["graph"]["targets"]:
        command += ["--filter-platform", target["triple"]]
    metadata = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    used = {node["id"] for node in metadata["resolve"]["nodes"]}
    faults = []
    for package in metadata["packages"]:
        if package["id"] not in used:
            continue
        name = f"{package['name']} {package['version']}"
        if package["source"] not in (None, REGISTRY):
            faults.append(f"{name} comes from {package['source']}; take it from crates.io")
        if package["source"] is not None and not allowed(package["license"] or "none", licences):
            faults.append(f"{name} has the licence {package['license']}, which deny.toml does not allow")
        if package["source"] is None:
            for needed in package["dependencies"]:
                if needed["req"] == "*" and not needed.get("path"):
                    faults.append(f"{name} accepts any version of {needed['name']}; name one")
    for fault in faults:
        print(f"error: {fault}", file=sys.stderr)
    print(f"dependencies: {len(used)} checked, {len(faults)} refused")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
