"""The rules of the code base, checked in the source. A failure lists every violation as `file:line: rule`."""

from __future__ import annotations

import ast
import functools
import importlib
import re
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
HIVE = ROOT / "hive"
TESTS = ROOT / "tests"

# A package may import only from those to its left. `testing` has the runtime's rank, but production must not use it.
ORDER = (
    *(
        "distribution",
        "lazy",
        "printable",
        "table",
        "errors",
        "versions",
        "native",
        "clock",
        "hash_seed",
        "declared",
        "cores",
        "free_memory",
        "gpus",
        "paths",
        "plain_data",
        "warning_names",
        "config",
        "records",
        "runtime",
        "testing",
    ),
    *("gradients", "networks", "learning", "experience", "envs"),
    *(
        "algorithms",
        "policy",
        "training",
        "integrations",
        "hosts",
        "tuning",
        "schemes",
        "compat",
        "monitor",
        "web",
        "comparison",
        "session",
        "launch",
        "api",
        "cli",
    ),
)

# The sub-packages of hive.runtime. Each may import only from those to its left, also for
# type checkers.
ROOMS = ("wire", "memory", "carriers", "actor", "topology", "process", "supervise", "run")

# Third-party and system modules, and the only paths that may import them.
PLACES = {
    "torch": ("networks/", "learning/", "algorithms/", "policy/", "gradients/", "training/", "compat/"),
    "zmq": ("runtime/wire/sockets.py", "runtime/wire/links.py"),
    "mmap": ("runtime/memory/segments.py",),
    "msgpack": ("runtime/wire/messages.py", "plain_data.py", "envs/external/frames.py"),
    "gymnasium": ("envs/",),
    "imageio_ffmpeg": ("records/sinks/videos.py",),
    "PIL": ("records/sinks/videos.py",),
    "pygame": ("envs/drawing/window.py",),
    "textual": ("monitor/terminal/",),
    "rich": ("monitor/terminal/", "monitor/line.py"),
    "onnx": ("policy/exporting.py",),
    "onnxruntime": ("policy/exporting.py",),
    "matplotlib": ("comparison/picture.py",),
    "tensorboardX": ("records/sinks/tensorboard_sink.py",),
    "wandb": ("records/sinks/wandb_sink.py",),
    "pynvml": ("gpus.py",),
    "ray": ("hosts/ray_launcher.py",),
    "argcomplete": ("cli/completion.py",),
    "yaml": ("config/zoo/yaml_text.py",),
    "starlette": ("web/",),
    "uvicorn": ("web/",),
}

FORBIDDEN_MODULES = {"pickle", "cPickle", "_pickle", "dill", "cloudpickle", "marshal", "shelve", "joblib"}
FORBIDDEN_CALLS = {"eval", "exec", "torch.load", "torch.save", "numpy.load", "np.load"}
FORBIDDEN_KEYWORDS = {"allow_pickle", "shell"}
FORBIDDEN_NAMES = {"utils", "util", "common", "base", "helpers", "helper", "misc"}

MAX_FUNCTION_LINES = 60
MAX_METHODS = 30

MODULES = sorted(HIVE.rglob("*.py"))
Violation = tuple[Path, int, str]


@functools.cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(), str(path))


@functools.cache
def nodes_of(path: Path) -> tuple[ast.AST, ...]:
    return tuple(ast.walk(tree_of(path)))


@pytest.fixture(scope="module", autouse=True)
def _forget_trees() -> Iterator[None]:
    """Free two million nodes, which would make each garbage collection of later tests take a second."""
    yield
    for cached in (tree_of, nodes_of, imports, private_names):
        cached.cache_clear()


def where(path: Path) -> str:
    return path.relative_to(HIVE).as_posix()


def report(violations: Iterable[Violation]) -> str:
    """Return the violations, one per line; an empty text if there are none."""
    return "\n".join(f"{path.relative_to(ROOT)}:{line}: {text}" for path, line, text in violations)


def name_of(path: Path) -> str:
    """`hive/runtime/wire/sockets.py` -> `hive.runtime.wire.sockets`, `hive/runtime/__init__.py` -> `hive.runtime`."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


NAMES = {name_of(path): path for path in MODULES}
LAZY = {name_of(path): path for path in MODULES if path.with_suffix(".pyi").exists()}
"""Modules whose stub lists their names, which are imported when they are first used."""


def dotted(node: ast.expr) -> str:
    """Return the dotted text (`np.load`) of a name or attribute; an empty text for other expressions."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute) and (rest := dotted(node.value)):
        return f"{rest}.{node.attr}"
    return ""


def is_guard(node: ast.AST, *texts: str) -> bool:
    """Return whether `node` is an `if` with one of these tests, such as `TYPE_CHECKING`."""
    return bool(texts) and isinstance(node, ast.If) and ast.unparse(node.test) in texts


def walk(node: ast.AST, *, skip: tuple[str, ...] = ()) -> Iterator[ast.AST]:
    """Like `ast.walk`, without the bodies of `if`s whose test is one of `skip`."""
    for child in ast.iter_child_nodes(node):
        if not is_guard(child, *skip):
            yield child
            yield from walk(child, skip=skip)


@functools.cache
def imports(path: Path, *, skip: tuple[str, ...] = ()) -> dict[str, int]:
    """Return the full names of all modules that a file imports anywhere, and the line of each."""
    found: dict[str, int] = {}
    for node in walk(tree_of(path), skip=skip) if skip else nodes_of(path):
        if isinstance(node, ast.Import):
            found.update((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path.relative_to(ROOT)}:{node.lineno}: imports are absolute"
            assert node.module is not None
            inside = {f"{node.module}.{alias.name}" for alias in node.names}
            found.update((name if name in NAMES else node.module, node.lineno) for name in inside)
    return found


def package_of(name: str) -> str:
    """Return `runtime` for `hive.runtime.wire.sockets`; an empty text for `hive` itself and for modules outside the
    order."""
    parts = name.split(".")
    return parts[1] if parts[0] == "hive" and len(parts) > 1 and parts[1] != "_native" else ""


# --- layers


def upward_imports(path: Path) -> Iterator[Violation]:
    here = package_of(name_of(path))
    if here not in (*ORDER, "", "__main__"):
        yield path, 1, f"package {here} has no place in ORDER"
        return
    for name, line in imports(path, skip=() if here else ("TYPE_CHECKING",)).items():
        target = package_of(name)
        if target in ("", here):
            continue
        if target == "testing":
            yield path, line, "hive.testing is for tests only"
        elif target == "compat":
            continue  # see below
        elif here == "":
            if target not in ("distribution", "lazy"):  # which take 0.7 ms; one compares the names in the folder
                yield path, line, f"`import hive` must load nothing else, but loads {name}"
        elif here == "__main__":
            if target != "cli":
                yield path, line, f"__main__ imports {name}; it may import hive.cli only"
        elif ORDER.index(target) > ORDER.index(here):
            yield path, line, f"{here} imports {name}, which lies above it or to its right"


def test_imports_go_downward() -> None:
    assert not report(violation for path in MODULES for violation in upward_imports(path))


def uses_of_compat(path: Path) -> Iterator[Violation]:
    """Yield imports of hive.compat, and its names in strings, which can be imported later."""
    if where(path) == "__init__.pyi" or where(path).startswith("compat/"):  # `hive.compat` is a name of hive
        return
    for name, line in imports(path).items():
        if package_of(name) == "compat":
            yield path, line, "hive.compat is for scripts only"
    for node in nodes_of(path):
        is_name = isinstance(node, ast.Constant) and re.fullmatch(r"hive\.compat[.\w]*", str(node.value))
        if is_name:
            yield path, node.lineno, "names hive.compat, which is for scripts only"


def test_no_module_outside_of_compat_imports_it() -> None:
    files = [*MODULES, *sorted(HIVE.rglob("*.pyi"))]
    assert not report(violation for path in files for violation in uses_of_compat(path))


def room_of(name: str) -> str:
    """Return `wire` for `hive.runtime.wire.sockets`; an empty text for modules outside the rooms."""
    parts = name.split(".")
    return parts[2] if parts[:2] == ["hive", "runtime"] and len(parts) > 2 else ""


def upward_rooms(path: Path) -> Iterator[Violation]:
    here = room_of(name_of(path))
    if here not in ROOMS:
        yield path, 1, f"{here} has no place in ROOMS"
        return
    for name, line in imports(path).items():
        if (target := room_of(name)) and ROOMS.index(target) > ROOMS.index(here):
            yield path, line, f"{here} imports {name}, which lies above it"


def test_rooms_of_the_runtime_import_downward() -> None:
    modules = (path for path in MODULES if room_of(name_of(path)))
    assert not report(violation for path in modules for violation in upward_rooms(path))


def test_modules_do_not_import_in_circles() -> None:
    """Imports for type checkers count, too, except the names that lazy modules offer."""
    edges = {
        name: (imports(path, skip=("__name__ == '__main__'",)).keys() & NAMES.keys()) - {name}
        for name, path in NAMES.items()
    }
    left = dict(edges)
    while free := {name for name, targets in left.items() if not targets & left.keys()}:
        left = {name: targets for name, targets in left.items() if name not in free}
    lines = [
        (NAMES[name], imports(NAMES[name])[target], f"imports {target}, in a circle")
        for name, targets in left.items()
        for target in sorted(targets & left.keys())
    ]
    assert not report(lines)


LIBRARIES = {"_parameters"}  # also private names of hive; this one is torch.nn.Module's


@functools.cache
def private_names(path: Path) -> frozenset[str]:
    """Return the private attributes and functions that a module defines."""
    names: set[str] = set()
    for node in nodes_of(path):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            names.add(node.attr)
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            names.add(node.target.id)
    return frozenset(name for name in names if re.match(r"_[a-z]", name))


def uses_of_private_names(path: Path) -> Iterator[Violation]:
    """Yield attributes that begin with `_` and are defined in another module of hive only, other than on self."""
    theirs = frozenset[str]().union(*map(private_names, MODULES)) - private_names(path) - LIBRARIES
    for node in nodes_of(path):
        own = isinstance(node, ast.Attribute) and dotted(node.value) in ("self", "cls")
        if isinstance(node, ast.Attribute) and node.attr in theirs and not own:
            yield path, node.lineno, f"uses {ast.unparse(node)}, which is private to another module"


def test_no_module_uses_what_is_private_to_another() -> None:
    assert not report(violation for path in MODULES for violation in uses_of_private_names(path))


def test_third_party_modules_are_imported_in_their_places_only() -> None:
    assert not report(
        (path, line, f"{name} may be imported only in {', '.join(PLACES[root])}")
        for path in MODULES
        for name, line in imports(path).items()
        if (root := name.partition(".")[0]) in PLACES and not where(path).startswith(PLACES[root])
    )


# --- forbidden operations


def executed_input(path: Path) -> Iterator[Violation]:
    for name, line in imports(path).items():
        if name.partition(".")[0] in FORBIDDEN_MODULES:
            yield path, line, f"imports {name}, which executes what it reads"
    for node in nodes_of(path):
        if isinstance(node, ast.Call) and dotted(node.func) in FORBIDDEN_CALLS:
            yield path, node.lineno, f"calls {dotted(node.func)}, which executes what it reads"
        if isinstance(node, ast.keyword) and node.arg in FORBIDDEN_KEYWORDS:
            yield path, node.value.lineno, f"passes {node.arg}"


def test_data_is_never_executed() -> None:
    assert not report(violation for path in MODULES for violation in executed_input(path))


def error_texts(path: Path) -> Iterator[tuple[int, str]]:
    """Yield line and text of each hive error that a module raises, with {} for formatted values."""
    ours = {node.name for node in nodes_of(HIVE / "errors.py") if isinstance(node, ast.ClassDef)}
    for node in nodes_of(path):
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


def test_errors_begin_in_lower_case_and_have_no_full_stop() -> None:
    assert not report(
        (path, line, f"an error begins in lower case and has no full stop: {text}")
        for path in MODULES
        for line, text in error_texts(path)
        if re.match(r"[A-Z][a-z]", text) or text.endswith(".")
    )


# --- shape


def shape_faults(path: Path) -> Iterator[Violation]:
    if not ast.get_docstring(tree_of(path)):
        yield path, 1, "a module opens with a docstring"
    if bad := set(path.relative_to(HIVE).with_suffix("").parts) & FORBIDDEN_NAMES:
        yield path, 1, f"the name {sorted(bad)} does not say what the module is for"
    annotated = any(isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.AnnAssign) for node in nodes_of(path))
    if annotated and "__future__" not in imports(path):
        yield path, 1, "annotations are evaluated: `from __future__ import annotations` is missing"


def test_modules_have_a_docstring_a_telling_name_and_lazy_annotations() -> None:
    assert not report(violation for path in MODULES for violation in shape_faults(path))


def function_faults(path: Path) -> Iterator[Violation]:
    for node in nodes_of(path):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        assert node.end_lineno is not None
        count = node.end_lineno - node.lineno + 1
        if count > MAX_FUNCTION_LINES:
            yield path, node.lineno, f"{node.name} has {count} lines, {MAX_FUNCTION_LINES} fit on a screen"
        if node.returns is None:
            yield path, node.lineno, f"{node.name} has no annotation of what it returns"
        a = node.args
        parameters = [*a.posonlyargs, *a.args, *a.kwonlyargs, *filter(None, (a.vararg, a.kwarg))]
        for bare in (p.arg for p in parameters if p.annotation is None and p.arg not in ("self", "cls")):
            yield path, node.lineno, f"{node.name}: parameter {bare} has no annotation"


def test_functions_fit_on_a_screen_and_are_annotated() -> None:
    assert not report(violation for path in MODULES for violation in function_faults(path))


def large_classes(path: Path) -> Iterator[Violation]:
    for node in nodes_of(path):
        if isinstance(node, ast.ClassDef):
            count = sum(isinstance(member, ast.FunctionDef | ast.AsyncFunctionDef) for member in node.body)
            if count > MAX_METHODS:
                yield path, node.lineno, f"{node.name} has {count} methods, which are more than one subject"


def test_classes_have_one_subject() -> None:
    """The documents whose classes hive.compat has decide what these contain."""
    modules = (path for path in MODULES if not where(path).startswith("compat/"))
    assert not report(violation for path in modules for violation in large_classes(path))


# --- public names


def exported(path: Path) -> list[str] | None:
    """Return the names in `__all__`, with `*` for computed entries; None if it is missing."""
    for node in tree_of(path).body:
        if isinstance(node, ast.Assign) and dotted(node.targets[0]) == "__all__":
            assert isinstance(node.value, ast.List)
            return [str(item.value) if isinstance(item, ast.Constant) else "*" for item in node.value.elts]
    return None


def defined(path: Path) -> set[str]:
    """Return the names that a module defines or imports, except those for type checkers."""
    names: set[str] = set()
    for node in walk(tree_of(path), skip=("TYPE_CHECKING",)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            names.update((alias.asname or alias.name).partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
    return names


def isort_style(name: str) -> tuple[int, list[int | str]]:
    """Return a key that sorts like ruff sorts `__all__`: CONSTANTS, Classes, functions; numbers by value."""
    kind = 0 if name.isupper() and len(name) > 1 else 1 if name[:1].isupper() else 2
    return kind, [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", name)]


def export_faults(path: Path) -> Iterator[Violation]:
    if where(path) == "__main__.py" or name_of(path) in LAZY or len(tree_of(path).body) == 1:  # only a docstring
        return
    names = exported(path)
    if names is None:
        if path.name == "__init__.py":
            yield path, 1, "__all__ is missing: a package lists its names"
        return
    line = next(n.lineno for n in tree_of(path).body if isinstance(n, ast.Assign) and dotted(n.targets[0]) == "__all__")
    if names != sorted(set(names), key=isort_style):
        yield path, line, "__all__ is not in order"
    for missing in sorted(set(names) - defined(path)):
        yield path, line, f"__all__ names {missing}, which is not defined"


def test_all_lists_defined_names_in_order() -> None:
    assert not report(violation for path in MODULES for violation in export_faults(path))


def lazy_homes(module: str) -> dict[str, str]:
    """Return the names in the stub of a lazy module, and the module that each comes from."""
    stub = LAZY[module].with_suffix(".pyi")
    found: dict[str, str] = {}
    for node in tree_of(stub).body:
        if isinstance(node, ast.ImportFrom):
            assert [alias.asname for alias in node.names] == [alias.name for alias in node.names], ast.unparse(node)
            found.update((alias.name, str(node.module)) for alias in node.names)
        else:
            assert ast.unparse(node) == "__version__: str", f"{stub.name} holds only names: {ast.unparse(node)}"
    return found


def public_names(module: str) -> Collection[str]:
    """Return the names that a module exports: those of `__all__`, or else all that it defines."""
    if module in LAZY:
        return lazy_homes(module)
    path = NAMES[module]
    return exported(path) or {name for name in defined(path) if not name.startswith("_")}


def test_lazy_names_are_defined_in_their_modules() -> None:
    assert {"hive", "hive.runtime", "hive.algorithms", "hive.networks"} <= LAZY.keys()
    for module in LAZY:
        listed = dir(importlib.import_module(module))
        homes = lazy_homes(module)
        assert {name for name in listed if not name.startswith("__")} == homes.keys(), module
        for name, home in homes.items():
            if f"{home}.{name}" in NAMES and home == module:
                continue  # a package of it
            assert name in public_names(home), f"{name} of {home}"
            here, there = package_of(module), package_of(home)
            assert here in ("", there) or ORDER.index(there) < ORDER.index(here), f"{module}.{name} lies above it"


def private_uses(path: Path) -> Iterator[Violation]:
    """Yield imports of a built-in scheme that users cannot make. Schemes may import each other's files."""
    for node in walk(tree_of(path)):
        if isinstance(node, ast.Import) and any("." in alias.name for alias in node.names):
            yield path, node.lineno, "imports a module by its full path"
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("hive"):
            home = str(node.module)
            if not home.startswith("hive.schemes") and home.count(".") != 1:
                yield path, node.lineno, f"{home} is not a package that users import from"
            elif private := {alias.name for alias in node.names} - set(public_names(home)):
                yield path, node.lineno, f"{home} does not export {sorted(private)}"


def test_the_built_in_schemes_use_public_names_only() -> None:
    assert not report(violation for path in (HIVE / "schemes").glob("*.py") for violation in private_uses(path))


# --- what packages export


def test_production_code_imports_from_the_modules_that_define_a_name() -> None:
    """hive, hive.algorithms and hive.networks have only public names, see tests/test_public_names.py."""
    assert not report(
        (path, node.lineno, f"imports from {node.module} instead of the module that defines the name")
        for path in MODULES
        for node in nodes_of(path)
        if isinstance(node, ast.ImportFrom)
        and (node.module in ("hive.algorithms", "hive.networks") or (node.module == "hive" and hidden(node)))
    )


def hidden(node: ast.ImportFrom) -> set[str]:
    """Return the names of `from hive import ...` that are neither modules nor the version."""
    return {alias.name for alias in node.names} - {"__version__", "_native"} - {n.partition(".")[2] for n in NAMES}


# --- tests


def faults_of_a_test(path: Path) -> Iterator[Violation]:
    text = path.read_text()
    for name, line in imports(path).items() if "mock" in text else ():  # parsing all tests takes seconds
        if name.startswith(("unittest.mock", "mock")):
            yield path, line, f"imports {name}: a small fake shows more than a mock"
    for node in nodes_of(path) if "time.sleep" in text else ():
        if isinstance(node, ast.Call) and dotted(node.func) == "time.sleep" and "live" not in path.parts:
            yield path, node.lineno, "sleeps: wait for a condition, or use a clock of hive.clock"
    for number, line in enumerate(text.splitlines(), 1):
        if re.search(r"""sys\.executable, "-(?!P")""", line):
            yield path, number, "starts Python without -P, which would import the sources of the current folder"


def test_tests_use_neither_mocks_nor_sleep_and_start_the_hive_that_is_installed() -> None:
    assert not report(violation for path in sorted(TESTS.rglob("*.py")) for violation in faults_of_a_test(path))
