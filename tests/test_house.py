"""The rules of the house, read from the source: floors, imports, names, sizes, annotations, tests for everything."""

from __future__ import annotations

import ast
import functools
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
HIVE = ROOT / "hive"
TESTS = ROOT / "tests"

# A package may import only from those to its left. `testing` stands where the runtime is; it is not of the house.
ORDER = (
    *("errors", "native", "clock", "config", "records", "runtime", "testing"),
    *("gradients", "networks", "approximation", "storage", "envs"),
    *("algorithms", "workers", "schemes", "monitor", "cli"),
)

# Third-party and system modules that only these places may import.
PLACES = {
    "torch": ("networks/", "approximation/", "algorithms/", "gradients/", "workers/"),
    "zmq": ("runtime/wire.py",),
    "mmap": ("runtime/memory.py",),
    "msgpack": ("runtime/messages.py",),
    "gymnasium": ("envs/",),
    "textual": ("monitor/terminal.py",),
    "rich": ("monitor/terminal.py",),
}

FORBIDDEN_MODULES = {"pickle", "cPickle", "_pickle", "dill", "cloudpickle", "marshal", "shelve", "joblib"}
FORBIDDEN_CALLS = {"eval", "exec", "torch.load", "torch.save", "numpy.load", "np.load"}
FORBIDDEN_NAMES = {"utils", "util", "common", "base", "helpers", "helper", "misc"}

LAZY = ("runtime/__init__.py",)  # packages that load a module of theirs when a name of it is first used

MAX_MODULE_LINES = 400
MAX_FUNCTION_LINES = 60

# Modules without a test of their own name, and the tests that stand for them.
TESTED_ELSEWHERE = {
    "config/rules.py": "config/test_schema.py",
    "runtime/binding.py": "runtime/test_inline.py",
    "runtime/calls.py": "runtime/test_inline.py",
    "runtime/control_server.py": "runtime/test_control.py",
    "runtime/membership.py": "live/test_death.py",
    "runtime/node.py": "runtime/test_inline.py",
    "runtime/outcome.py": "runtime/test_inline.py",
    "runtime/overview.py": "live/test_commands.py",
    "runtime/recovery.py": "live/test_death.py",
    "runtime/supervisor.py": "runtime/test_inline.py",
    "runtime/planning.py": "runtime/test_topology.py",
    "runtime/processes.py": "runtime/test_inline.py",
    "runtime/forked.py": "live/test_death.py",
    "runtime/hosting.py": "live/test_training.py",
    "runtime/live_run.py": "live/test_commands.py",
    "runtime/run.py": "live/test_training.py",
    "testing/inline.py": "runtime/test_inline.py",
    "workers/learner_actor.py": "workers/test_actors.py",
    "networks/heads.py": "networks/test_torch_architecture.py",
    "networks/spaces.py": "networks/test_exports.py",
}

MODULES = sorted(HIVE.rglob("*.py"))
every_module = pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(HIVE)))


@functools.cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(), str(path))


def where(path: Path) -> str:
    return path.relative_to(HIVE).as_posix()


def name_of(path: Path) -> str:
    """`hive/runtime/wire.py` -> `hive.runtime.wire`, `hive/runtime/__init__.py` -> `hive.runtime`."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


NAMES = {name_of(path): path for path in MODULES}


def dotted(node: ast.expr) -> str:
    """`np.load` of an expression that is a name or an attribute of one; else an empty text."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute) and (rest := dotted(node.value)):
        return f"{rest}.{node.attr}"
    return ""


def is_guard(node: ast.AST, *texts: str) -> bool:
    """Whether `node` is `if TYPE_CHECKING:` or the like."""
    return isinstance(node, ast.If) and ast.unparse(node.test) in texts


def walk(node: ast.AST, *, skip: tuple[str, ...] = ()) -> Iterator[ast.AST]:
    """Like `ast.walk`, passing over the bodies of `if`s whose test reads like one of `skip`."""
    for child in ast.iter_child_nodes(node):
        if not is_guard(child, *skip):
            yield child
            yield from walk(child, skip=skip)


def imports(path: Path, *, skip: tuple[str, ...] = ()) -> set[str]:
    """The full names of all modules that a file imports, anywhere in it."""
    found: set[str] = set()
    for node in walk(tree_of(path), skip=skip):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{where(path)}:{node.lineno}: imports are absolute"
            assert node.module is not None
            inside = {f"{node.module}.{alias.name}" for alias in node.names}
            found.update(name if name in NAMES else node.module for name in inside)
    return found


def package_of(name: str) -> str:
    """`hive.runtime.wire` -> `runtime`; of the package itself and of what is no part of the order, an empty text."""
    parts = name.split(".")
    return parts[1] if parts[0] == "hive" and len(parts) > 1 and parts[1] != "_native" else ""


# --- floors


def test_every_package_has_its_place_in_the_order() -> None:
    packages = {package_of(name) for name in NAMES} - {"", "__main__"}
    assert packages <= set(ORDER)


@every_module
def test_imports_go_downward(path: Path) -> None:
    here = package_of(name_of(path))
    targets = {package_of(name) for name in imports(path, skip=() if here else ("TYPE_CHECKING",))} - {"", here}
    if here in ORDER:
        wrong = {target for target in targets if ORDER.index(target) > ORDER.index(here)}
        assert not wrong, f"{where(path)} imports from {sorted(wrong)}, which lie above or to the right of {here}"
    elif here == "__main__":
        assert targets == {"cli"}
    else:
        assert not targets, "`import hive` loads nothing"
    assert "testing" not in targets, "the testing kit is for tests"


def test_modules_do_not_import_in_circles() -> None:
    skip = ("TYPE_CHECKING", "__name__ == '__main__'")
    edges = {name: (imports(path, skip=skip) & NAMES.keys()) - {name} for name, path in NAMES.items()}
    left = dict(edges)
    while free := {name for name, targets in left.items() if not targets & left.keys()}:
        left = {name: targets for name, targets in left.items() if name not in free}
    assert not left, f"these import each other: {sorted(left)}"


@every_module
def test_modules_of_others_are_imported_in_their_places_only(path: Path) -> None:
    roots = {name.partition(".")[0] for name in imports(path)}
    for module, places in PLACES.items():
        assert module not in roots or where(path).startswith(places), f"{module} belongs in {places}"


def lines_of(code: str) -> set[str]:
    """What `code` prints, line by line, in a Python of its own."""
    command = [sys.executable, "-P", "-c", code]  # -P: the hive that is installed, wherever this runs
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    return set(done.stdout.split())


def test_programs_of_tests_use_the_hive_that_is_installed() -> None:
    """Without -P a program given on the command line imports the sources of the folder in which pytest was started."""
    bare = re.compile(r"""sys\.executable, "-(?!P")""")
    found = [path.relative_to(ROOT) for path in TESTS.rglob("*.py") if bare.search(path.read_text())]
    assert not found, f"these start Python without -P: {found}"


MODULES_LOADED = "print(*sys.modules, sep='\\n')"


def test_importing_hive_loads_nothing_of_it() -> None:
    loaded = lines_of(f"import sys, hive; {MODULES_LOADED}")
    assert {name for name in loaded if name.startswith("hive.")} == set()
    assert "numpy" not in loaded


@pytest.mark.parametrize(
    "packages", ["hive.cli; hive.cli.parser()", "hive.config, hive.records, hive.monitor, hive.runtime, hive.testing"]
)
def test_commands_and_views_do_not_load_torch(packages: str) -> None:
    loaded = lines_of(f"import sys, {packages}; {MODULES_LOADED}")
    assert "hive.config" in loaded
    assert not {"torch", "textual", "rich"} & loaded


def test_looking_at_a_run_loads_next_to_nothing() -> None:
    """Half of the time that such a command takes is what it loads: `hive ps` shall answer in 0.3 s."""
    loaded = lines_of(f"import sys, hive.cli; hive.cli.parser('ps'); {MODULES_LOADED}")
    assert {"hive.cli.look", "hive.runtime.control"} <= loaded
    heavy = {"torch", "numpy", "asyncio", "zmq", "psutil", "hive.config", "hive.monitor", "hive.cli.up", "hive._native"}
    assert not heavy & loaded


def test_the_help_does_not_load_torch() -> None:
    code = f"""
import runpy, sys
sys.argv = ["hive", "--help"]
try:
    runpy.run_module("hive", run_name="__main__")
except SystemExit as end:
    assert not end.code
{MODULES_LOADED}
"""
    loaded = lines_of(code)
    assert "hive.cli" in loaded
    assert "torch" not in loaded


# --- what is never done


@every_module
def test_nothing_is_executed_that_was_read(path: Path) -> None:
    roots = {name.partition(".")[0] for name in imports(path)}
    assert not roots & FORBIDDEN_MODULES
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Call):
            assert dotted(node.func) not in FORBIDDEN_CALLS, f"{where(path)}:{node.lineno}"
        if isinstance(node, ast.keyword):
            assert node.arg not in ("allow_pickle", "shell"), f"{where(path)}:{node.value.lineno}"


def refused_texts(path: Path) -> Iterator[tuple[int, str]]:
    """The texts of the errors of ours that a module raises, with {} for what is filled in."""
    ours = {node.name for node in ast.walk(tree_of(HIVE / "errors.py")) if isinstance(node, ast.ClassDef)}
    for node in ast.walk(tree_of(path)):
        if (
            isinstance(node, ast.Raise)
            and isinstance(node.exc, ast.Call)
            and dotted(node.exc.func) in ours
            and node.exc.args
        ):
            text = node.exc.args[0]
            if isinstance(text, ast.Constant) and isinstance(text.value, str):
                yield node.lineno, text.value
            elif isinstance(text, ast.JoinedStr):
                yield node.lineno, "".join(str(p.value) if isinstance(p, ast.Constant) else "{}" for p in text.values)


@every_module
def test_errors_begin_in_lower_case_and_have_no_full_stop(path: Path) -> None:
    for line, text in refused_texts(path):
        assert not re.match(r"[A-Z][a-z]", text), f"{where(path)}:{line}: {text}"
        assert not text.endswith("."), f"{where(path)}:{line}: {text}"


# --- shape


@every_module
def test_a_module_says_what_it_is(path: Path) -> None:
    assert ast.get_docstring(tree_of(path)), "a module opens with a docstring"


@every_module
def test_a_module_is_short_and_well_named(path: Path) -> None:
    count = len(path.read_text().splitlines())
    assert count <= MAX_MODULE_LINES, f"{count} lines"
    assert not set(path.relative_to(HIVE).with_suffix("").parts) & FORBIDDEN_NAMES


@every_module
def test_functions_fit_on_a_screen_and_are_annotated(path: Path) -> None:
    for node in ast.walk(tree_of(path)):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        assert node.end_lineno is not None
        count = node.end_lineno - node.lineno + 1
        assert count <= MAX_FUNCTION_LINES, f"{where(path)}:{node.lineno}: {node.name} has {count} lines"
        assert node.returns is not None, f"{where(path)}:{node.lineno}: {node.name} returns what?"
        a = node.args
        parameters = [*a.posonlyargs, *a.args, *a.kwonlyargs, *filter(None, (a.vararg, a.kwarg))]
        bare = [p.arg for p in parameters if p.annotation is None and p.arg not in ("self", "cls")]
        assert not bare, f"{where(path)}:{node.lineno}: {node.name}({', '.join(bare)})"


@every_module
def test_annotations_are_not_evaluated(path: Path) -> None:
    body = tree_of(path).body
    wanted = any(
        isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.AnnAssign) for node in ast.walk(tree_of(path))
    )
    found = any(isinstance(node, ast.ImportFrom) and node.module == "__future__" for node in body)
    assert found or not wanted, "from __future__ import annotations"


# --- public names


def exported(path: Path) -> list[str] | None:
    """The names in `__all__`; a `*` stands for entries that are computed."""
    for node in tree_of(path).body:
        if isinstance(node, ast.Assign) and dotted(node.targets[0]) == "__all__":
            assert isinstance(node.value, ast.List)
            return [str(item.value) if isinstance(item, ast.Constant) else "*" for item in node.value.elts]
    return None


def defined(path: Path, *, lazy: bool = False) -> set[str]:
    """The names that a module has once it is imported; with those that it has when they are first used."""
    names: set[str] = set()
    for node in walk(tree_of(path), skip=() if lazy else ("TYPE_CHECKING",)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            names.update((alias.asname or alias.name).partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
    return names


def isort_style(name: str) -> tuple[int, list[int | str]]:
    """The order that ruff gives `__all__`: CONSTANTS, Classes, functions; numbers by value."""
    kind = 0 if name.isupper() and len(name) > 1 else 1 if name[:1].isupper() else 2
    return kind, [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", name)]


@every_module
def test_all_names_what_there_is_in_order(path: Path) -> None:
    if where(path) in ("__init__.py", "__main__.py"):
        return
    names = exported(path)
    assert names is not None, "__all__ says what is public"
    assert names == sorted(set(names), key=isort_style)
    lazy = where(path) in LAZY  # what is there for type checkers is there for everybody, at first use
    assert set(names) <= defined(path, lazy=lazy), set(names) - defined(path, lazy=lazy)


def test_the_lazy_names_of_the_runtime_are_at_home_where_it_says() -> None:
    values = {dotted(n.targets[0]): n.value for n in tree_of(HIVE / LAZY[0]).body if isinstance(n, ast.Assign)}
    homes = ast.literal_eval(values["_HOMES"])
    assert homes.keys() == set(exported(HIVE / LAZY[0]) or ())
    (guard,) = (node for node in tree_of(HIVE / LAZY[0]).body if is_guard(node, "TYPE_CHECKING"))
    assert isinstance(guard, ast.If)
    seen = {a.name: node.module for node in guard.body if isinstance(node, ast.ImportFrom) for a in node.names}
    assert seen == homes


def test_the_lazy_names_of_hive_are_at_home_where_it_says() -> None:
    values = {}
    for node in tree_of(HIVE / "__init__.py").body:
        if isinstance(node, ast.Assign):
            values[dotted(node.targets[0])] = node.value
    homes = ast.literal_eval(values["_HOMES"])
    assert list(homes) == sorted(homes)
    for name, home in homes.items():
        assert name in (exported(NAMES[home]) or ()), f"{name} of {home}"
    names = ast.literal_eval(values["__all__"])
    assert names == sorted(names, key=isort_style)
    modules = set(names) - {"__version__", *homes}
    packages = {package_of(name) for name in NAMES} - {"", "__main__"}
    assert modules <= packages


def test_type_checkers_see_the_lazy_names_of_hive() -> None:
    (guard,) = (node for node in tree_of(HIVE / "__init__.py").body if is_guard(node, "TYPE_CHECKING"))
    assert isinstance(guard, ast.If)
    seen = {alias.name for node in guard.body if isinstance(node, ast.ImportFrom) for alias in node.names}
    assert seen == set(exported(HIVE / "__init__.py") or ()) - {"__version__"}


def test_the_built_in_schemes_use_what_users_can() -> None:
    for path in (HIVE / "schemes").glob("*.py"):
        for node in walk(tree_of(path)):
            assert not isinstance(node, ast.Import) or all(alias.name.count(".") == 0 for alias in node.names)
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("hive"):
                home, names = str(node.module), {alias.name for alias in node.names}
                own = home.startswith("hive.schemes")  # the files of schemes are users of each other
                assert own or home.count(".") == 1, f"{where(path)}: {home} is no package that users import from"
                assert names <= set(exported(NAMES[home]) or ()), f"{where(path)}: {names} of {home}"


# --- tests


@every_module
def test_every_module_is_tested(path: Path) -> None:
    if path.name in ("__init__.py", "__main__.py"):
        return
    own = TESTS / path.relative_to(HIVE).with_name(f"test_{path.name}")
    if where(path) in TESTED_ELSEWHERE:
        assert not own.exists(), "no exception is needed"
        own = TESTS / TESTED_ELSEWHERE[where(path)]
    assert own.exists(), f"{own.relative_to(ROOT)} is missing"


def test_exceptions_are_of_modules_that_exist() -> None:
    assert {*TESTED_ELSEWHERE} <= {where(path) for path in MODULES}


def text_lines(folder: Path) -> int:
    return sum(bool(line.strip()) for path in folder.rglob("*.py") for line in path.read_text().splitlines())


def test_the_runtime_has_a_line_of_test_for_every_line() -> None:
    assert text_lines(TESTS / "runtime") >= text_lines(HIVE / "runtime")


@pytest.mark.parametrize("path", sorted(TESTS.rglob("test_*.py")), ids=lambda path: str(path.relative_to(TESTS)))
def test_tests_use_neither_mocks_nor_sleep(path: Path) -> None:
    roots = imports(path)
    assert not any(name.startswith(("unittest.mock", "mock")) for name in roots)
    calls = {dotted(node.func) for node in ast.walk(tree_of(path)) if isinstance(node, ast.Call)}
    assert "time.sleep" not in calls or "live" in path.parts
