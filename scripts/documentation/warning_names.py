"""The page on warnings, made from hive.warning_names and the rules that judge metrics."""

from __future__ import annotations

from documentation.commands import escaped
from hive.training.record.health import WARNING_RULES
from hive.warning_names import SHOWN, WARNINGS

HEAD = f"""# Warnings

A message of hive has one of three ranks. An **error**: the run cannot give what was asked, and nothing starts. A
**warning**: the result is probably wrong, and one action mends it. A **fact** is all else: `hive check` and
`hive doctor RUN` list them, `hive up` does not.

`hive up` prints at most {SHOWN} warnings at the start, the worst first, and at the end at most {SHOWN} that still hold;
`hive doctor RUN` lists all. In between each is printed once, and again if its cause changes. A warning that another one
explains is not shown beside it. A run that is right has none; where hive is mistaken, `run.accept` silences by name:

```toml
[run]
accept = ["return constant"]  # every episode of this game is worth the same until it is won
```

The table has the worst first, and beside each what usually helps.

| name | means | what helps | explains |
|---|---|---|---|
"""


def warnings_page() -> str:
    advice = {rule.name: rule.advice.replace("{limit}", "the setting that the warning names") for rule in WARNING_RULES}
    rows = [
        f"| {name} | {escaped(kind.meaning)} | {escaped(advice.get(name, ''))} | {', '.join(kind.explains)} |"
        for name, kind in WARNINGS.items()
    ]
    return HEAD + "\n".join(rows) + "\n"
