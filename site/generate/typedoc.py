"""The reference of the Node package: Markdown that TypeDoc makes of its sources."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

from generate.sources import ROOT, BuildError

MODULES = {"index": "redlock-rs", "otel": "redlock-rs/otel", "testing": "redlock-rs/testing"}
"""By what programs import each entry point."""

UNNAMED = ("Named", "Nodes", "OPTIONS", "RedlockErrorClass")
"""Types that are written out where they are used."""


def reference_of_node(npm: Path, directory: Path, *, keep: bool) -> dict[str, str]:
    """The pages of the reference, by their path on the site. With `keep`, those of the last time."""
    if not keep or not directory.is_dir():
        _run(npm, directory)
    made: dict[str, str] = {}
    for file in sorted(directory.rglob("*.md")):
        made[f"reference/node/{file.relative_to(directory).as_posix()}"] = _shaped(file.read_text(encoding="utf-8"))
    if "reference/node/index.md" not in made:
        raise BuildError("TypeDoc wrote no pages")
    return made


def _run(npm: Path, directory: Path) -> None:
    shutil.rmtree(directory, ignore_errors=True)
    node = ROOT / "node"
    command = [
        npm / "node_modules" / ".bin" / "typedoc",
        *("--plugin", npm / "node_modules" / "typedoc-plugin-markdown" / "dist" / "index.js"),
        *("--plugin", Path(__file__).parent / "typedoc-links.mjs"),
        # Types of options that are written out where they are used.
        *(word for name in UNNAMED for word in ("--intentionallyNotExported", name)),
        *("--tsconfig", node / "tsconfig.json"),
        *("--name", "redlock-rs"),
        *("--out", directory),
        *("--entryFileName", "index.md"),
        *("--readme", "none"),
        *("--router", "member"),
        *("--skipErrorChecking", "--logLevel", "Warn", "--treatWarningsAsErrors", "--treatValidationWarningsAsErrors"),
        *("--excludeInternal", "--excludePrivate"),
        *("--disableSources", "--hidePageHeader"),
        *("--parametersFormat", "table"),
        *("--interfacePropertiesFormat", "table"),
        *("--typeDeclarationFormat", "table"),
        *("--enumMembersFormat", "table"),
        *(word for entry in MODULES for word in ("--entryPoints", node / "ts" / f"{entry}.ts")),
    ]
    subprocess.run([str(word) for word in command], cwd=node, check=True)


def _shaped(text: str) -> str:
    # Who searches for a name finds the pages that explain it first.
    text = f"---\nsearch:\n  boost: 0.2\n---\n{text}"
    text = re.sub(r"^```ts\b", "```typescript", text, flags=re.M)
    for module, name in MODULES.items():
        text = text.replace(f"[{module}](", f"[{name}](")
        text = re.sub(rf"^# {module}$", f"# {name}", text, flags=re.M)
    return re.sub(r"^# (?:Class|Function|Interface|Type Alias|Variable): ", "# ", text, flags=re.M)
