"""The public names of hive are those of tests/public_names.txt, with signatures; GUIDE and examples use no others.

The file is the contract with users: what it lists stays, whatever is rebuilt behind it. After an intended change,
`python tests/test_public_names.py` writes it and examples/guide/public-names.md again, and the diff shows the change.
The classes of hive.compat are listed by name only, because tests/founding compares them with their documents.
"""

from __future__ import annotations

import ast
import dataclasses
import difflib
import enum
import functools
import importlib
import inspect
import itertools
import pydoc
import re
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import hive

ROOT = Path(__file__).resolve().parents[1]
LIST = ROOT / "tests" / "public_names.txt"
PAGE = ROOT / "examples" / "guide" / "public-names.md"

PLACES = {
    "hive": "runs, actors, topologies and the parts of the trainer",
    "hive.algorithms": "algorithms, and what custom ones are written with",
    "hive.networks": "networks, and what custom ones are written with",
    "hive.schemes": "the built-in trainer as a topology",
    "hive.testing": "tests of actors and topologies",
    "hive.errors": "what hive raises",
    "hive.compat.autonomous": "autonomous-learning-library's `all.approximation`, for scripts",
    "hive.compat.coach": "Coach's architectures, for scripts",
    "hive.compat.pytorchrl": "PyTorchRL's gradient workers, for scripts",
    "hive.compat.rlpack": "RLPack's `GradAccumulator`, for scripts",
}
NAMES_ONLY = "hive.compat."

CARRIER, PORT = "()", "() connected"
FROM_ROLLOUTS = "() statistics distribution model reconfigure connect gradients added_loss advantages"
FROM_VALUES = "() statistics distribution q reconfigure connect gradients"
FROM_REPLAY = "() statistics distribution q reconfigure connect gradient added_loss targets"
AGENT = "() statistics distribution actor critic reconfigure connect gradient added_loss added_actor_loss targets"
PARTS = {
    "Actor": "role numbered source name index incarnation device clock log status setup run drain teardown end_run "
    "progress restart_actor note private_bytes",
    "Board": CARRIER,
    "Blueprint": "(config) config environment spaces distribution flat state rollout_layout gradient_layout "
    "memory_layout ledger_layout plan_layout network vector collector learner",
    "CollectorActor": "blueprint collector reset_round vector setup run",
    "Config": "run env collection gradients algorithm network record evaluation checkpoint supervision hosts custom",
    "End": "host channel actor message",
    "GradAccumulator": "for_slots(parameter_elements bootstrap_rounds) adopt mean_reduce clear report",
    "GWorker": "of_run(blueprint index_worker) bind compute",
    "Inlet": f"{PORT} receive receive_many receive_nowait",
    "Layout": "() of fields bytes views",
    "Line": "",
    "Messages": CARRIER,
    "ObservationSpec": "(shape dtype) shape dtype parts low high channels stack",
    "Outlet": f"{PORT} send send_many",
    "Policy": "__call__ observation action distribution network updates env_steps mean_return initial_state outputs "
    "most_likely",
    "Publication": f"{PORT} board latest begin publish",
    "Purpose": "environment action",
    "Result": "- write read",
    "Replay": "() append gather",
    "ReplayBuffer": "() begin add sample update",
    "Shape": "()",
    "Shared": CARRIER,
    "SharedIn": f"{PORT} memory",
    "SharedOut": f"{PORT} memory",
    "Slot": "producer sequence arrays arrays_in_use block contents",
    "SlotInlet": f"{PORT} receive receive_many receive_nowait claim retire producers lines",
    "SlotOutlet": f"{PORT} send send_many reserve commit committed produced slots",
    "SlotReceiver": "(end carrier views) claim claim_nowait retire producers first_left",
    "SlotSender": "(end carrier view) reserve commit produced",
    "Slots": "() in_segment source target sources",
    "StepRow": "() ended allocate",
    "Subscription": f"{PORT} latest pin unpin",
    "Topology": "() groups channels add connect replace insert carrier_of carry disconnect publish results digest plan",
    "Trainer": "(config number incarnation status) train env_steps updates mean_return_100 state set close",
    "Zmq": CARRIER,
    "make_vector": "(id options count kind wrappers preset info)",
    "observation_spec": "(id space)",
    "stream": "(seed purpose source sequence)",
    "A2C": FROM_ROLLOUTS,
    "PPO": FROM_ROLLOUTS,
    "IMPALA": FROM_ROLLOUTS,
    "NStepQ": FROM_VALUES,
    "PQN": FROM_VALUES,
    "DQN": FROM_REPLAY,
    "C51": FROM_REPLAY,
    "QRDQN": FROM_REPLAY,
    "SAC": AGENT,
    "TD3": AGENT,
    "DDPG": AGENT,
    "Approximation": "(model optimizer target) no_grad eval target reinforce",
    "ActorCritic": "",
    "jointly": "(parts samples)",
    "QLoss": "(inputs actions targets weights huber)",
    **dict.fromkeys(("Categorical", "DiagonalGaussian", "MultiCategorical", "ProductDistribution"), "()"),
    "EpsilonGreedy": "() for_rollout for_collector",
    "SquashedGaussian": "()",
    "FlatParameters": "() parameter_elements parameter_bytes block_bytes names shapes offsets count arrays bind "
    "initialize_into gradient gradient_arrays release_gradients",
    "FlatOptimizer": "() moment_blocks step",
    "Head": "- is_direct numpy_output numpy_slopes",
    "Network": "heads forward",
    "PolicyHead": "() action distribution initialize forward",
    "ValueHead": "() forward",
    **dict.fromkeys((n for n in dir(hive.networks) if n.endswith("Parameters") and n != "FlatParameters"), "()"),
    "run_inline": "(topology virtual seconds)",
}
"""Names of which only a part is public: `()` is the whole signature, `(a b)` these parameters, other words are members.

After `-` stand members that are not public. Everything else in these classes may change. Other names are public with
all that has no underscore.
"""

RETURNED = {
    "hive.envs.spaces.spec:EnvironmentSpec": "id observation action max_episode_steps frame_skip",
    "hive.gradients.accumulator:MeanGradient": "array",
    "hive.envs.spaces.observation:ObservationPart": "name path shape dtype offset of view",
    "hive.networks.weights.state:StateLayout": "weights parameters moments target_version target",
    "hive.runtime.carriers.boards:BoardWriter": "read latest",
    "hive.runtime.memory.status:Status": "__call__ phase enter count counter add",
    "hive.runtime.topology.groups:Group": "names processes parameters handle",
    "hive.runtime.topology.plan:Plan": "actors channels",
    "hive.runtime.topology.plan:PlanActor": "name group index process",
    "hive.experience.replay:ReplayBatch": "observations actions returns discounts next_observations",
    "hive.training.collect.collector:Collector": "reset bind collect rebuild close",
    "hive.training.update.learner:Learner": "layout",
}
"""Classes of objects that public names return, and what is public of them. Their modules may change."""


# --- the list


def names_of(place: str) -> list[str]:
    module = importlib.import_module(place)
    return sorted(module.__all__ if hasattr(module, "__all__") else (n for n in dir(module) if n[0] != "_"))


def value_of(place: str, name: str) -> Any:
    return getattr(importlib.import_module(place), name)


@functools.cache
def public_classes() -> dict[type, str]:
    """Return each public class, and the first place that has it."""
    found: dict[type, str] = {}
    for place in PLACES:
        for name in names_of(place):
            if inspect.isclass(value := value_of(place, name)):
                found.setdefault(value, f"{place}.{name}")
    return found


def plain(annotation: object) -> str:
    """Return an annotation as in the source."""
    if isinstance(annotation, str):
        return annotation
    return getattr(annotation, "__forward_arg__", None) or getattr(annotation, "__name__", str(annotation))


def default_of(value: object) -> str:
    simple = value is None or isinstance(value, bool | int | float | str | tuple)
    return repr(value) if simple and " at 0x" not in repr(value) else "..."


def signature_of(function: Any, only: str = "", *, bound: bool = False) -> str:
    """Return the parameters and the type of the result, as in the source. only: names of the public parameters."""
    signature, parts = inspect.signature(function), []
    parameters = list(signature.parameters.values())[bound:]
    chosen = only.split() or [p.name for p in parameters]
    assert set(chosen) <= {p.name for p in parameters}, f"{function} has no such parameter: {only}"
    for parameter in (p for p in parameters if p.name in chosen):
        stars = {parameter.VAR_POSITIONAL: "*", parameter.VAR_KEYWORD: "**"}.get(parameter.kind, "")
        if parameter.kind is parameter.KEYWORD_ONLY and not any(part.startswith("*") for part in parts):
            parts.append("*")
        annotation = "" if parameter.annotation is parameter.empty else f": {plain(parameter.annotation)}"
        default = "" if parameter.default is parameter.empty else f" = {default_of(parameter.default)}"
        parts.append(f"{stars}{parameter.name}{annotation}{default}")
    if only and len(chosen) < len(parameters):
        parts.append("...")
    returned = signature.return_annotation
    arrow = "" if returned in (signature.empty, None, "None") else f" -> {plain(returned)}"
    return f"({', '.join(parts)}){arrow}"


def set_by_init(cls: type) -> Iterator[str]:
    """Yield the attributes that `__init__` sets."""
    if "__init__" in vars(cls) and not dataclasses.is_dataclass(cls):
        for node in ast.walk(ast.parse(textwrap.dedent(inspect.getsource(vars(cls)["__init__"])))):
            if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and dotted(node.value) == ["self"]:
                yield node.attr


def members_of(cls: type, parts: dict[str, str]) -> dict[str, str]:
    """Return the members of a class that its public bases do not have: name -> line. parts: as in PARTS, by name."""
    found: dict[str, str] = {}
    classes = public_classes()
    for parent in reversed(cls.__mro__):
        if parent.__module__.startswith("hive.") and (parent is cls or parent not in classes):
            found.update((name, f"{name}: {plain(hint)}") for name, hint in inspect.get_annotations(parent).items())
            for name in set_by_init(parent):
                found.setdefault(name, name)
            lines = ((name, line_of(name, value, parts.get(name, ""))) for name, value in vars(parent).items())
            found.update((name, line) for name, line in lines if line)
    return {name: line for name, line in found.items() if name[0] != "_" or name == "__call__"}


def line_of(name: str, value: object, only: str) -> str:
    """Return the line of a method or property; "" for other members."""
    if isinstance(value, property | functools.cached_property):
        getter = value.fget if isinstance(value, property) else value.func
        return f"{name}: {plain(inspect.signature(getter).return_annotation)}" if getter else ""
    kind = "static " if isinstance(value, staticmethod) else "class " if isinstance(value, classmethod) else ""
    function = getattr(value, "__func__", value)
    if not inspect.isfunction(function):
        return ""
    kind += "async " if inspect.iscoroutinefunction(function) else ""
    return f"{kind}def {name}{signature_of(function, only, bound='static' not in kind)}"


def parts_of(text: str) -> dict[str, str]:
    """Return the public parts that a text of PARTS names: member, "()" for the signature -> its public parameters."""
    return {word or "()": only.strip("()") for word, only in re.findall(r"(\w*)(\([\w ]*\))?", text) if word or only}


def lines_of_class(name: str, cls: type, text: str) -> list[str]:
    """Return the line of a class, and those of its public members. text: its parts, as in PARTS; "-" for all."""
    parts, classes = parts_of(text.removeprefix("-")), public_classes()
    fields: dict[str, Any] = getattr(cls, "__dataclass_fields__", {})
    protocol, whole = getattr(cls, "_is_protocol", False), text.startswith("-")
    bases = [base.__name__ for base in cls.__bases__ if base in classes]
    shown = not protocol and not issubclass(cls, BaseException) if whole else "()" in parts
    signature = signature_of(cls, parts.get("()", "")) if shown else ""
    members = members_of(cls, parts)
    if whole:  # fields are in the signature
        members = {n: line for n, line in members.items() if n not in parts and not (shown and n in fields)}
    else:
        assert members.keys() >= parts.keys() - {"()"}, f"{name} has no {parts.keys() - members.keys()}"
        members = {n: members[n] for n in parts if n != "()"}
    title = f"{'protocol' if protocol else 'class'} {name}{signature}{' of ' * bool(bases)}{', '.join(bases)}"
    return [title, *(f"    {line}" for line in members.values())]


def lines_of(place: str, name: str) -> list[str]:
    value = value_of(place, name)
    if isinstance(value, ModuleType):
        return [f"package {name}"]
    if not (inspect.isclass(value) or inspect.isfunction(value)):
        return [f"{'value' if isinstance(value, int) else 'type'} {name}"]
    if inspect.isclass(value) and public_classes()[value] != f"{place}.{name}":
        return [f"class {name} of {public_classes()[value].rpartition('.')[0]}"]
    if place.startswith(NAMES_ONLY):
        return [f"{'class' if inspect.isclass(value) else 'def'} {name}"]
    if not inspect.isclass(value):
        only = parts_of(PARTS.get(name, "")).get("()", "")
        return [f"{'async ' if inspect.iscoroutinefunction(value) else ''}def {name}{signature_of(value, only)}"]
    if issubclass(value, enum.Enum):
        chosen = parts_of(PARTS.get(name, "")) or value.__members__
        return [f"enum {name}", *(f"    {member}" for member in chosen if member in value.__members__)]
    return lines_of_class(name, value, PARTS.get(name, "-"))


RUNS = (
    ["network.normalize_observations=true", "network.normalize_rewards=true", "network.novelty_weight=0.1"],
    ["env.info=['a']", "gradients.compression=top-k", "network.memory=lstm"],
    ["env.frame_stack=2", "gradients.compression=bf16"],
    ["run.scheme=dqn", "algorithm.initial_errors=true", "algorithm.priority_exponent=0.6", "env.frame_stack=2"],
)


def fields() -> Iterator[str]:
    """Yield the arrays of messages that name data in shared memory, with dtype and number of dimensions."""
    found: dict[str, dict[str, set[str]]] = {}
    for sets in RUNS:
        blueprint = hive.Blueprint(
            hive.load_config("x.toml", ["run.scheme=ppo", *sets], text='[env]\nid = "CartPole-v1"')
        )
        layouts = {
            "RolloutReady": blueprint.rollout_layout,
            "Gradient": blueprint.gradient_layout(1),
            "OptimizerState": blueprint.learner().layout,
        }
        if blueprint.replays:
            layouts["ReplayRows"], layouts["ReplayLedger"] = blueprint.memory_layout, blueprint.ledger_layout
            layouts["ReplayPlan"] = blueprint.plan_layout
        for message, layout in layouts.items():
            for field, (dtype, shape) in layout.fields.items():
                found.setdefault(message, {}).setdefault(field, set()).add(f"{dtype} {len(shape)}d")
    for message, by_name in found.items():
        yield f"arrays of {message}"
        yield from (f"    {field}: {' or '.join(sorted(kinds))}" for field, kinds in by_name.items())


def declarations() -> Iterator[str]:
    """Yield the declarations of hive/env.h, without comments, macros and bodies of functions."""
    text = (Path(hive.include_folder()) / "hive" / "env.h").read_text()
    text = re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL)
    yield from re.findall(r"^#define (HIVE_\w+ +\d+)", text, re.MULTILINE)
    text = re.sub(r"^#.*(?:\\\n.*)*", "", text, flags=re.MULTILINE)
    for function in re.findall(r"^static inline ([^{]*?)\s*\{", text, re.MULTILINE):
        yield " ".join(function.split())
    for kind, body, name in re.findall(r"^typedef (struct|enum) \w+ \{(.*?)\} (\w+);", text, re.DOTALL | re.MULTILINE):
        yield f"{kind} {name}"
        items = re.split(r";" if kind == "struct" else r",", body)
        yield from (f"    {' '.join(item.split())}" for item in items if item.strip())


def returned(path: str) -> list[str]:
    module, _, name = path.partition(":")
    return lines_of_class(name, value_of(module, name), RETURNED[path])


def listed() -> str:
    sections = {place: [line for name in names_of(place) for line in lines_of(place, name)] for place in PLACES}
    sections["classes of what these return"] = [line for path in RETURNED for line in returned(path)]
    sections |= {"messages of hive in shared memory": [*fields()], "hive/env.h": [*declarations()]}
    return "\n".join("\n".join([f"[{title}]", *lines, ""]) for title, lines in sections.items())


def test_every_public_name_is_listed_with_its_signature() -> None:
    listed_now, expected = listed().splitlines(), LIST.read_text().splitlines()
    difference = "\n".join(difflib.unified_diff(expected, listed_now, LIST.name, "hive", lineterm="", n=0))
    assert not difference, f"{difference}\n\nIf this is meant: python tests/test_public_names.py"


# --- the page


def first_sentence(place: str, name: str) -> str:
    """Return the first sentence of the docstring; "" if there is none of its own."""
    value = value_of(place, name)
    if inspect.isclass(value):
        text = vars(value).get("__doc__") or ""  # not that of its base
    elif inspect.isfunction(value) or isinstance(value, ModuleType):
        text = value.__doc__ or ""
    else:
        text = text_after_assignment(place, name)
    return "" if text.startswith(f"{name}(") else " ".join(text.partition("\n\n")[0].split())


def text_after_assignment(place: str, name: str) -> str:
    """Return the text below the assignment of a constant or a type alias."""
    path = Path(str(importlib.import_module(place).__file__))
    if (stub := path.with_suffix(".pyi")).exists():
        (home,) = re.findall(rf"^from (\S+) import {name} as", stub.read_text(), re.MULTILINE)
        return text_after_assignment(home, name)
    body = ast.parse(path.read_text()).body
    for node, text in itertools.pairwise(body):
        target = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "target", None)
        if target and name in ast.unparse(target).split(", ") and isinstance(text, ast.Expr):
            return str(ast.literal_eval(text.value))
    return ""


def page() -> str:
    parts = [
        "# Public names",
        "Code that uses only these names works with the next release too. Other modules may change at any time. "
        "[hive/env.h](../../hive/env.h), the keys of the config and the files of a run are public as well. "
        "`help(hive.Actor)` shows a name with its arguments, shapes and errors.",
    ]
    for place, purpose in PLACES.items():
        parts.append(f"## `{place}`: {purpose}")
        rows = []
        for name in names_of(place):
            text = first_sentence(place, name).replace("|", "\\|")
            rows.append(f"- `{name}`{f': {text}' if text else ''}")
        parts.append("\n".join(rows))
    return "\n\n".join(parts) + "\n"


def test_the_page_of_the_guide_has_the_public_names() -> None:
    assert PAGE.read_text() == page(), "python tests/test_public_names.py writes it again"


@pytest.mark.parametrize("place", PLACES)
def test_every_public_name_has_a_docstring(place: str) -> None:
    assert [name for name in names_of(place) if not first_sentence(place, name)] == []


def test_the_docstring_of_hive_has_its_names() -> None:
    assert [n for n in dir(hive) if n[0] != "_" and not re.search(rf"\b{n}\b", hive.__doc__ or "")] == []


def test_help_shows_the_public_names() -> None:
    text = pydoc.plain(pydoc.render_doc(hive))
    assert text.startswith("Python Library Documentation: package hive")
    assert [
        n for n in dir(hive) if n[0] != "_" and not re.search(rf"(class|    async|   ) {n}[( =]|    {n} = ", text)
    ] == []


# --- what users read


def programs() -> Iterator[tuple[str, str]]:
    """Yield the Python code of the guide, of README and of examples, with where it stands."""
    for path in sorted((ROOT / "examples").rglob("*.py")):
        yield path.name, path.read_text()
    decisions = ROOT / "examples" / "guide" / "decisions"  # about the inside of hive
    pages = (path for path in sorted((ROOT / "examples").rglob("*.md")) if decisions not in path.parents)
    for path in [ROOT / "README.md", *pages]:
        text = path.read_text()
        for block in re.finditer(r"^```(?:py|python)\n(.*?)^```", text, re.DOTALL | re.MULTILINE):
            yield f"{path.name}:{text[: block.start()].count(chr(10)) + 1}", block[1]
        yield path.name, "import hive\n" + "\n".join(re.findall(r"`(hive(?:\.[A-Za-z_]\w*)+)\b(?!/)[^`\n]*`", text))


def dotted(node: ast.AST) -> list[str]:
    """Return the words of `a.b.c`; [] for other expressions."""
    if isinstance(node, ast.Name):
        return [node.id]
    return [*rest, node.attr] if isinstance(node, ast.Attribute) and (rest := dotted(node.value)) else []


def used(code: str) -> Iterator[list[str]]:
    """Yield the names of hive in a program, as the words of their full paths."""
    known: dict[str, list[str]] = {}
    nodes = [*ast.walk(ast.parse(code))]
    for node in nodes:
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.partition(".")[0] == "hive":
                    yield alias.name.split(".")
                    known[alias.asname or "hive"] = alias.name.split(".") if alias.asname else ["hive"]
        elif isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "hive":
            for alias in node.names:
                known[alias.asname or alias.name] = [*str(node.module).split("."), alias.name]
                yield known[alias.asname or alias.name]
    for node in nodes:
        if isinstance(node, ast.Attribute) and (words := dotted(node)) and words[0] in known:
            yield [*known[words[0]], *words[1:]]


def is_public_member(place: str, name: str, member: str) -> bool:
    """Return whether the member of a listed class is listed, or that of a listed class that it derives from."""
    value = value_of(place, name)
    if not inspect.isclass(value) or member.startswith("__") or place.startswith(NAMES_ONLY):
        return True
    members = [re.findall(r"\w+(?=\(|:|$)", line)[0] for line in lines_of(place, name)[1:]]
    return member in members or any(member in vars(base) for base in value.__mro__[1:] if base in public_classes())


def is_public(words: list[str]) -> bool:
    """Return whether a path leads to a listed name, and to a listed member of a listed class."""
    place = "hive"
    for number, word in enumerate(words[1:], 1):
        if f"{place}.{word}" in {*PLACES, "hive.compat"}:
            place = f"{place}.{word}"
        elif place not in PLACES or word not in names_of(place):
            return word == "__version__"
        else:
            return is_public_member(place, word, words[number + 1]) if number + 1 < len(words) else True
    return True


def test_guide_readme_and_examples_use_public_names_only() -> None:
    private = {
        f"{where}: {'.'.join(words)}" for where, code in programs() for words in used(code) if not is_public(words)
    }
    assert not private, "\n".join(sorted(private))


@pytest.mark.parametrize(
    "code",
    [
        "from hive.training import Metrics",
        "import hive.runtime",
        "import hive\nhive.training.Metrics",
        "import hive\nhive.Layout.as_data",
        "import hive.algorithms as a\na.make_algorithm",
        "from hive import algorithms\nalgorithms.merged",
    ],
)
def test_uses_of_other_names_are_found(code: str) -> None:
    assert not all(map(is_public, used(code)))


# --- type checkers


@pytest.mark.full(reason="mypy reads all of hive: half a minute")
def test_type_checkers_know_every_public_name(tmp_path: Path) -> None:
    """A program that uses every name is correct by `mypy --strict`, and none of the names is Any."""
    lines = ["from typing import assert_type", "import hive", *(f"import {place}" for place in PLACES)]
    for place in PLACES:
        lines += [f"{place}.{name}  # noqa" for name in names_of(place)]
    lines += [
        'assert_type(hive.load("run"), hive.Policy)',
        "class Own(hive.Actor):",
        "    out = hive.Outlet(hive.Metrics)",
        "    async def run(self) -> None:",
        "        assert_type(hive.Rollout({}).samples, int)",
        "assert_type(hive.Topology(), hive.Topology)",
        "hive.unknown  # type: ignore[attr-defined]",
    ]
    program = tmp_path / "every_name.py"
    program.write_text("\n".join(lines) + "\n")
    command = [
        sys.executable,
        "-P",
        "-m",
        "mypy",
        "--strict",
        "--config-file",
        str(ROOT / "pyproject.toml"),
        str(program),
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


if __name__ == "__main__":
    LIST.write_text(listed())
    PAGE.parent.mkdir(exist_ok=True)
    PAGE.write_text(page())
