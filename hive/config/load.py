"""Makes a `Config` of a TOML file and overrides, or raises one error with all problems.

    default of the key  <  default of the algorithm  <  default of the scheme  <  file  <  --set KEY=VALUE

`_Loader` does it in this order and collects problems instead of raising them:

1. `take`, `take_override`: collect the values of the file and of `--set`, each with its source.
2. `_config`: check and convert each value, or take the default; then detect unknown keys, because the algorithm
   determines which keys exist.
3. `_apply_formula`, `_drop_default`: adjust defaults that do not go with the given values (hive.config.formulas), and
   repeat step 2 until none is left.
4. `_check_rule`: check each rule between keys that are valid by themselves.
"""

from __future__ import annotations

import os
import re
from collections import ChainMap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePath
from types import MappingProxyType
from typing import Any

from hive.config import syntax
from hive.config.algorithms import ALGORITHMS, AlgorithmConfig
from hive.config.formulas import FORMULAS
from hive.config.keys import REQUIRED, Key, is_reference, keys_of
from hive.config.other_names import is_key, note_on, note_on_table, other_names
from hive.config.points import SCHEDULE, SCHEDULES
from hive.config.policies import OVERRIDDEN, POLICIES, PolicyConfig, fault_of_policy, table_of
from hive.config.problems import FileSource, OfPolicy, Override, Problem, ValueSource, config_error
from hive.config.references import beside
from hive.config.rules import IDLE, RULES, Idle, Rule
from hive.config.run_names import program_name, trained_name
from hive.config.schema import CUSTOM, SECTIONS, Config
from hive.config.schemes import ALGORITHM_DEFAULTS, DEFINING, SCHEMES
from hive.config.values import closest, free_fault, shown
from hive.errors import ConfigError, brief
from hive.paths import GIVEN, SESSION_FILE
from hive.printable import printable

RESOLVED_NAME = "resolved.toml"
"""The file with the resolved config in a run's directory."""

YOUNGEST_KEY, LAST_RULES = "init_statistics", 2  # of [run]; the value that env.rules had in the newest runs
KEPT_DEFAULTS = {*DEFINING, *(formula.name for formula in FORMULAS)}  # `_drop_default` never removes these
KEY_PATH = re.compile(r"[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*")


@brief
def load_config(
    path: str | os.PathLike[str],
    overrides: Iterable[str] = (),
    *,
    text: str | None = None,
    defaults: Mapping[str, Any] | None = None,
) -> Config:
    """Load the config file at `path`; with `text`, load that instead, and use `path` only in errors and origins.

    overrides: strings `KEY=VALUE`, a dotted key and a TOML value; a value that is not TOML is taken as a string.
    defaults: full name of a key -> its default, instead of the declared one.
    Raises ConfigError with all problems.
    """
    return ConfigText(path, text).config(overrides, defaults or {})


class ConfigText:
    """The text of a config file, read and parsed once, for configs with several overrides.

    path, text: as for `load_config`. Raises ConfigError for a file that cannot be read, and for text that is not TOML.
    """

    def __init__(self, path: str | os.PathLike[str], text: str | None = None) -> None:
        self.name = printable(os.fspath(path))
        self.content = syntax.read(path, self.name) if text is None else text.encode(errors="surrogatepass")
        self.is_resolved = PurePath(path).name == RESOLVED_NAME
        content = self.content
        if text is None and self.is_resolved and any(name.encode() in content for name in (SESSION_FILE, f"/{GIVEN}/")):
            content = beside(content.decode(), Path(path).parent).encode()
        self._document, self._source = syntax.parse(content, self.name)

    def config(self, overrides: Iterable[str] = (), defaults: Mapping[str, Any] = MappingProxyType({})) -> Config:
        """Return the config with these overrides and defaults. Raises ConfigError with all problems."""
        loader = _Loader(self._source, is_resolved=self.is_resolved)
        loader.defaults |= defaults
        loader.take(_of_today(self._document, self.name) if self.is_resolved else self._document, self._source)
        for index, override in enumerate(overrides):
            loader.take_override(override, index)
        config = loader.build()
        if loader.problems:
            raise config_error(self.name, loader.problems)
        return self._with_learners(config, loader)

    def _with_learners(self, config: Config, run: _Loader) -> Config:
        """Return the config with those of the policies that have tables of their own. Raises ConfigError."""
        learners: dict[str, Config] = {}
        problems: list[Problem] = []
        for name, policy in config.policies.items():
            if policy.given:
                loader = run.of_policy(name, policy, config)
                learners[name] = replace(loader.build(), **_tables(config))
                problems += loader.problems
        if problems:
            raise config_error(self.name, problems)
        return replace(config, learners=learners)


def _of_today(document: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """Return the content of a run's own config. Raises ConfigError for a run of an earlier hive.

    Such a config has all keys, so one without YOUNGEST_KEY is earlier. `env.rules` was removed since then, with all
    meanings but 2.
    """
    tables = {section: document.get(section) for section in ("run", "env")}
    run, env = (table if isinstance(table, dict) else {} for table in tables.values())
    if YOUNGEST_KEY not in run or env.get("rules", LAST_RULES) != LAST_RULES:
        hint = "start a new run with the config.toml beside it"
        raise ConfigError(f"`{name}` is of an earlier hive, whose runs this one does not read", hint=hint)
    return {**document, "env": {key: value for key, value in env.items() if key != "rules"}}


def _tables(config: Config) -> dict[str, Any]:
    """Return the tables of a run that its policies have in common."""
    return {section: getattr(config, section) for section in SECTIONS if section not in OVERRIDDEN}


@dataclass(frozen=True)
class _Given:
    """A value from the file or from `--set`."""

    value: Any
    source: ValueSource


class _Loader:
    """Collects the values of one config and its problems; see the module for the steps."""

    def __init__(self, file: FileSource, *, is_resolved: bool = False, of: PolicyConfig | None = None) -> None:
        """is_resolved: whether the file is a run's own, which has all keys. of: the policy whose values it collects."""
        self.file = file
        self.is_resolved = is_resolved
        self.of = of
        self.problems: list[Problem] = []
        self.faulty: set[str] = set()  # full names of keys, and names of tables, that have a problem
        self.given: dict[tuple[str, str], _Given] = {}  # (table, key) -> its last value
        self.mentions: list[tuple[str, str, ValueSource]] = []  # (table, key) wherever a value is given, known or not
        self.first_defaults: dict[str, Any] = {}  # those before the scheme's and the algorithm's
        self.defaults: dict[str, Any] = {}  # full name -> the default, where it differs from the declared one
        self.formula_inputs: dict[str, Any] = {}  # full name -> the default that its formula receives
        self.origins: dict[str, str] = {}  # these three become fields of the Config
        self.automatic: list[str] = []
        self.unset: dict[str, Any] = {}  # full name -> the value that the key would have if it were not given

    def take(self, document: Mapping[str, Any], source: ValueSource) -> None:
        """Collect every key of `document`; keys outside of a known table become problems."""
        for section, table in document.items():
            if section == CUSTOM and isinstance(table, dict):
                self._take_custom(table, source)
            elif section == POLICIES and isinstance(table, dict):
                self._take_policies(table, source)
            elif section not in SECTIONS:
                self._unknown_section(section, table, source)
            elif not isinstance(table, dict):
                self._add(section, source.problem((section,), f"expected a table, got {shown(table)}"))
            else:
                for name, value in table.items():
                    self.given[section, name] = _Given(value, source)
                    self.mentions.append((section, name, source))

    def _take_custom(self, groups: Mapping[str, Any], source: ValueSource) -> None:
        """Collect [custom.<group>]: any values that a config may hold; the code that builds the actors checks them."""
        for group, table in groups.items():
            if not isinstance(table, dict):
                problem = source.problem((CUSTOM, group), f"expected a table [custom.GROUP], got {shown(table)}")
                self._add(f"{CUSTOM}.{group}", problem)
            elif (fault := free_fault(table)) is not None:
                problem = source.problem((CUSTOM, group, *fault), "expected strings, finite numbers, booleans, arrays")
                self._add(f"{CUSTOM}.{group}", problem)
            else:
                self.given[CUSTOM, group] = _Given(table, source)

    def _take_policies(self, policies: Mapping[str, Any], source: ValueSource) -> None:
        """Collect the rows of [policies]."""
        for name, value in policies.items():
            table = table_of(value)
            if (fault := fault_of_policy(name, table)) is not None:
                path, message = fault
                self._add(f"{POLICIES}.{name}", source.problem((POLICIES, name, *path), message))
            else:
                self.given[POLICIES, name] = _Given(table, source)

    def of_policy(self, name: str, policy: PolicyConfig, config: Config) -> _Loader:
        """Return a loader of the run's values, and in their place of those that a policy overrides.

        config: of the run, whose other tables hold for an algorithm with other defaults, too.
        """
        loader = _Loader(self.file, is_resolved=self.is_resolved, of=policy)
        loader.defaults |= self.first_defaults
        for section, table in _tables(config).items():
            kind: type = type(table)
            loader.defaults |= {f"{section}.{key}": getattr(table, key) for key in keys_of(kind)}
        has_other = policy.given.get("algorithm", {}).get("name", self._table_algorithm()) != self._table_algorithm()
        for (section, key), given in self.given.items():
            if section in SECTIONS and not (has_other and section == "algorithm"):
                loader.given[section, key] = given
        source = OfPolicy(self.given[POLICIES, name].source, name)
        for section, table in policy.given.items():
            loader.take({section: table}, source)
        return loader

    def take_override(self, text: str, index: int) -> None:
        """Collect one `KEY=VALUE`."""
        source = Override(index, text)
        name, equals, value_text = text.partition("=")
        name = name.strip()
        if not equals or KEY_PATH.fullmatch(name) is None:
            self._add("", source.problem((), "expected KEY=VALUE, for example collection.envs=16"))
            return
        if not value_text.isprintable():
            self._add("", source.problem((), "control characters, or not UTF-8"))
            return
        path = name.split(".")
        value = syntax.value_of(value_text)
        inner = path[2:]
        if inner:
            before = self.given.get((path[0], path[1]))
            table = before.value if before is not None else {}
            if path[0] == POLICIES and inner in (["scripted"], ["weights"]):  # it learns no more, by tables of its own
                table = {key: own for key, own in table.items() if key not in OVERRIDDEN}
            value = _with_inner(table, inner, value)
        for step in reversed(path[:2]):
            value = {step: value}
        self.take(value, source)

    def build(self) -> Config:
        """Return the config; it is only valid if `problems` is empty afterwards."""
        self.first_defaults = dict(self.defaults)
        if scheme := SCHEMES.get(self._choice("run.scheme")):
            self.defaults.update(scheme.defaults)
        self.defaults = {**ALGORITHM_DEFAULTS.get(self._table_algorithm(), {}), **self.defaults}
        if name := self._run_name():
            self.defaults["run.name"] = name
        self._check_points()
        problems, faulty = list(self.problems), set(self.faulty)
        config = self._config()
        while self._apply_formula(config) or self._drop_default(config):
            self.problems, self.faulty, self.automatic = list(problems), set(faulty), []
            config = self._config()
        for formula in FORMULAS:  # for given keys, which `_apply_formula` skips
            section, _, name = formula.name.partition(".")
            if (section, name) in self.given and hasattr(getattr(config, section), name):
                self.unset[formula.name] = formula.value(self.unset[formula.name], config)
        broken: set[str] = set()  # keys that have a problem by now: they need no second one
        for rule in (*RULES, *IDLE):
            if {rule.name, *rule.others} & self.faulty or (isinstance(rule, Idle) and rule.name in broken):
                continue
            if self._applies(rule, config) and self._check_rule(rule, config):
                broken.add(rule.name)
        return config

    def _config(self) -> Config:
        """Return a config of the values that are given and of the defaults."""
        sections = {**SECTIONS, "algorithm": ALGORITHMS.get(self._table_algorithm(), AlgorithmConfig)}
        tables: dict[str, Any] = {}
        for section in sorted(sections, key="algorithm".__eq__):  # last: its defaults may follow from all other tables
            table = sections[section]
            tables[section] = table(**self._table(section, table, tables))
        for section, name, source in self.mentions:
            if name not in keys_of(sections[section]):
                self._unknown_key(section, sections[section], name, source)
        custom = {group: given.value for (section, group), given in self.given.items() if section == CUSTOM}
        for group in custom:
            self.origins[f"{CUSTOM}.{group}"] = self.given[CUSTOM, group].source.origin((CUSTOM, group))
        policies = {
            name: PolicyConfig.of(name, given.value)
            for (section, name), given in self.given.items()
            if section == POLICIES
        }
        for name in policies:
            self.origins[f"{POLICIES}.{name}"] = self.given[POLICIES, name].source.origin((POLICIES, name))
        self.unset["algorithm.name"] = self._default_algorithm()  # each algorithm's table declares its own name instead
        automatic = tuple(self.automatic)
        return Config(
            **tables, custom=custom, policies=policies, origins=self.origins, automatic=automatic, unset=self.unset
        )

    def _table(self, section: str, table: type, before: dict[str, Any]) -> dict[str, Any]:
        """Return the values of all keys of a table. before: the tables whose values its defaults may follow."""
        values: dict[str, Any] = {}
        for name, key in keys_of(table).items():
            full = f"{section}.{name}"
            given = self.given.get((section, name))
            default = self.defaults.get(full, key.default)
            if full not in self.defaults and key.limits.resolve is not None:
                default = key.limits.resolve(ChainMap(values, before))
            elif full == "env.id" and (label := self._label()):
                default = label
            elif default is REQUIRED and ("run", "topology") in self.given:
                default = ""  # a custom topology may have no environment
            self.unset[full] = default
            if given is not None and self._fits(section, key, given):
                automatic = key.is_automatic(given.value)
                self.automatic += [full] * automatic
                values[name] = default if automatic else key.convert(given.value)
                self.origins[full] = given.source.origin((section, name))
                continue
            self.origins[full] = self._origin(full)
            values[name] = default
            if default is REQUIRED and given is None and section not in self.faulty:
                self._add(full, self.file.missing(section, name, f'{name} = "CartPole-v1"'))
        return values

    def _fits(self, section: str, key: Key, given: _Given) -> bool:
        """Return whether the value is valid; add a problem if it is not."""
        fault = key.fault(given.value)
        if fault is None:
            return True
        path, full = (section, key.name), f"{section}.{key.name}"
        wrong = given.value
        for step in fault:
            wrong = wrong[step]
        is_word = isinstance(wrong, str) and not (fault and key.limits.points)
        close = closest(wrong, key.limits.choices) if is_word else ""
        note = f"did you mean `{close}`?" if close else ""
        if is_word and wrong in SCHEDULES and is_key(f"{full}{SCHEDULE}"):
            note = f'`{given.source.spell(section, key.name + SCHEDULE)} = "{wrong}"` changes it during the run'
        self._add(full, given.source.problem((*path, *fault), key.message(given.value, fault), note=note))
        return False

    def _check_points(self) -> None:
        """Drop the value of a key that points of its schedule replace: one of a source that yields to theirs.

        Another value is a problem, because it would have no effect.
        """
        for (section, name), points in list(self.given.items()):
            path = section, name.removesuffix(SCHEDULE)
            if not (name.endswith(SCHEDULE) and isinstance(points.value, list) and path in self.given):
                continue
            given = self.given[path]
            if _rank(given.source) < _rank(points.source):
                del self.given[path]
                continue
            origin = points.source.origin((section, name))
            message = f"got {shown(given.value)}, but the points of {section}.{name} ({origin}) give its values"
            note = f'leave it out, or set {name} to "constant"'
            problem = given.source.problem(path, message)
            marks = points.source.problem((section, name), "").marks
            self._add(".".join(path), replace(problem, marks=problem.marks + marks, note=note))

    def _apply_formula(self, config: Config) -> bool:
        """Replace the first default that differs from the result of its formula; return False if there is none."""
        for formula in FORMULAS:
            section, _, name = formula.name.partition(".")
            if (section, name) in self.given or not hasattr(getattr(config, section), name):
                continue
            default = self.formula_inputs.setdefault(formula.name, config.value(formula.name))
            if (value := formula.value(default, config)) != config.value(formula.name):
                self.defaults[formula.name] = value
                return True
        return False

    def _drop_default(self, config: Config) -> bool:
        """Remove the first default of a scheme or algorithm that breaks a rule; return False if there is none."""
        removable = {name for name in self.defaults if self._is_removable(name)}
        for rule in RULES if removable else ():
            names = [name for name in (rule.name, *rule.others) if name in removable]
            if names and rule.breach(config.value(rule.name), *map(config.value, rule.others)):
                del self.defaults[names[0]]
                return True
        return False

    def _is_removable(self, full: str) -> bool:
        """Whether a key has a default of the scheme or algorithm that neither defines the scheme nor has a formula."""
        section, _, name = full.partition(".")
        return self._origin(full) != "default" and (section, name) not in self.given and full not in KEPT_DEFAULTS

    def _applies(self, rule: Rule, config: Config) -> bool:
        """Return whether a rule is to be checked: that a key has no effect, where a user has given it another value.

        A run's own config has all keys, and may be of an earlier hive. Of a policy only its own tables count.
        """
        if not isinstance(rule, Idle):
            return True
        section, _, name = rule.name.partition(".")
        given = self.given.get((section, name))
        if given is None or not hasattr(getattr(config, section), name):
            return False
        if config.value(rule.name) == self.unset[rule.name]:
            return False
        if self.of is not None and not isinstance(given.source, OfPolicy):
            return False
        return not self.is_resolved or isinstance(given.source, Override)

    def _check_rule(self, rule: Rule, config: Config) -> bool:
        """Return whether a rule between valid keys is broken; its problem marks all that the file or `--set` gives."""
        value, values = config.value(rule.name), [config.value(other) for other in rule.others]
        breach = rule.breach(*values) if isinstance(rule, Idle) else rule.breach(value, *values)
        if not breach:
            return False
        others = [f"{other} = {shown(config.value(other))} ({config.origin(other)})" for other in rule.others]
        # At least one path is left: defaults, including those of the schemes, obey all rules.
        paths = [(section, key) for section, _, key in (full.partition(".") for full in (rule.name, *rule.others))]
        path, *rest = [path for path in paths if path in self.given]
        subject = "got" if path == paths[0] else f"{rule.name} is"
        origin = "" if path == paths[0] else f" ({config.origin(rule.name)})"
        message = f"{subject} {shown(value)}{origin}, but {breach.format(*others)}"
        problem = self.given[path].source.problem(path, message)
        for other in rest:
            marks = self.given[other].source.problem(other, "").marks
            problem = replace(problem, marks=problem.marks + marks)
        self.problems.append(problem)
        return True

    def _unknown_section(self, section: str, table: Any, source: ValueSource) -> None:
        is_table = isinstance(table, dict)
        close = closest(section, SECTIONS)
        note = note_on_table(section, table) if is_table else note_on(section)
        note = note or (f"did you mean `{close}`?" if close else "")
        problem = source.problem((section,), "unknown table" if is_table else "unknown key", note=note, at_key=True)
        self._add(section, replace(problem, lost=is_table))

    def _unknown_key(self, section: str, table: type, name: str, source: ValueSource) -> None:
        owners = [owner for owner, keys in ALGORITHMS.items() if section == "algorithm" and name in keys_of(keys)]
        if owners and {"run.scheme", "algorithm.name"} & self.faulty:
            return  # the algorithm itself is invalid: the intended one may have this key
        close = closest(name, keys_of(table))
        note = f"`{name}` belongs to {_listed(owners)}" if owners else note_on(f"{section}.{name}") or note_on(name)
        if owners and (advice := other_names("notes").get(name)):
            note += f"; {advice}"
        note = note or (f"did you mean `{source.spell(section, close)}`?" if close else "")
        note = note or ("arguments of the constructor stand in [env.options]" if section == "env" else "")
        problem = source.problem((section, name), "unknown key", note=note, at_key=True)
        self._add(f"{section}.{name}", replace(problem, lost=not note))

    def _origin(self, full: str) -> str:
        """Return whose default a key has: "scheme dqn", "algorithm dqn" or "default"."""
        scheme, algorithm, missing = self._choice("run.scheme"), self._table_algorithm(), object()
        value = self.defaults.get(full, missing)
        if scheme in SCHEMES and SCHEMES[scheme].defaults.get(full, REQUIRED) == value:
            return f"scheme {scheme}"
        is_algorithm_default = ALGORITHM_DEFAULTS.get(algorithm, {}).get(full, REQUIRED) == value
        return f"algorithm {algorithm}" if is_algorithm_default else "default"

    def _table_algorithm(self) -> str:
        """Return the algorithm whose keys and defaults [algorithm] has; for a custom one, that of the scheme."""
        name = self._choice("algorithm.name")
        return self._default_algorithm() if is_reference(name) else name

    def _default_algorithm(self) -> str:
        """Return the algorithm of a config that names none."""
        return str(self.defaults.get("algorithm.name", keys_of(AlgorithmConfig)["name"].default))

    def _run_name(self) -> str:
        """Return the default of run.name. It names the scheme, or a given algorithm that is not the scheme's."""
        algorithm, scheme = self._choice("algorithm.name"), self._choice("run.scheme")
        trainer = scheme if algorithm == self._default_algorithm() else algorithm
        return trained_name(self._choice("env.id") or self._label(), trainer, self._choice("run.topology"))

    def _label(self) -> str:
        """Return the default of env.id for a program; "" if the environment is none."""
        command, connect = (self.given.get(("env", name)) for name in ("command", "connect"))
        parts = command.value if command is not None else []
        if isinstance(parts, list) and parts and all(isinstance(part, str) for part in parts):
            return program_name(parts)
        is_connected = connect is not None and connect.value != "none"
        return program_name(()) if is_connected else ""

    def _choice(self, full: str) -> str:
        """Return the value of a key that determines other keys, valid or not; "" if it is not a string."""
        section, name = full.split(".")
        given = self.given.get((section, name))
        default = self.defaults.get(full, keys_of(SECTIONS[section])[name].default)
        value = default if given is None else given.value
        return value if isinstance(value, str) else ""

    def _add(self, name: str, problem: Problem) -> None:
        self.faulty.add(name)
        self.problems.append(problem)


def _rank(source: ValueSource) -> int:
    """Return the rank of a source: values of a higher one replace those of a lower one."""
    match source:
        case OfPolicy():
            return 2
        case Override():
            return 1
    return 0


def _listed(names: Sequence[str]) -> str:
    """Return names as text: `a`, `a and b`, `a, b and c`."""
    return " and ".join([*filter(None, [", ".join(names[:-1])]), *names[-1:]])


def _with_inner(table: Any, path: list[str], value: Any) -> dict[str, Any]:
    """Return a copy of `table` with `value` at `path`; anything but a table on the way is replaced by a table."""
    copy: dict[str, Any] = dict(table) if isinstance(table, dict) else {}
    inner = copy
    for step in path[:-1]:
        below = inner.get(step)
        inner[step] = dict(below) if isinstance(below, dict) else {}
        inner = inner[step]
    inner[path[-1]] = value
    return copy
