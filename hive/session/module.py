"""The module that holds objects of a session: the definitions and all that they refer to, directly or not.

Nothing is pickled and no cell is executed again. Imports are repeated, values are written as they are now, classes and
functions as their source says. What cannot be written is refused by name.
"""

from __future__ import annotations
import __future__

import ast
import builtins
import contextlib
import copy
import functools
import re
import sys
import types
from types import FunctionType
from typing import Any

from hive.envs.registered import registration
from hive.errors import UsageError
from hive.runtime.process.user_code.code_of_run import is_installed, place_of_module
from hive.session.changes import Change, bound_together, changes_of, changes_of_imported, new_values
from hive.session.names import bound_after, imports_of, locals_of, names_of
from hive.session.refusals import check_class, check_use
from hive.session.settings import statements_of_settings
from hive.session.sources import Found, Sources
from hive.session.values import FIXED, NotWritten, written

ID = re.compile(r"[\w./-]+")  # what the id of an environment may be
WAYS_OUT = "make it inside the class or function, put the code into a file of its own"
OWN = ("__file__", "__name__", "__doc__", "__builtins__", "__spec__", "__package__", "__loader__")


class _Shared(Exception):
    """An object, the argument, is in two places of the values that are written."""


class SessionModule:
    """A module that grows by `add`; `text` is its source."""

    def __init__(self) -> None:
        self.sources = Sources()
        self.bound: dict[str, Any] = {}  # name -> the object that it stands for
        self.folders: dict[str, None] = {}  # of modules that are not installed
        self.imports: dict[str, None] = {}  # in the order of their first use
        self.statements: dict[str, str] = {}  # name -> the statement that binds it
        self.needs: dict[str, list[str]] = {}  # name -> names that must be bound before it
        self.values: dict[str, Any] = {}  # what stands in the statements `name = value`
        self.owners: dict[
            int, tuple[str, Any]
        ] = {}  # id of an object within such a value -> its first name, the object
        self.registered: dict[str, str] = {}
        self.modules: set[str] = set()  # those whose changes are repeated
        self.lazy_annotations = False

    def add(self, value: Any, name: str) -> str:
        """Add a class or function; return its name in the module. name: for those that have none, such as lambdas.

        Raises UsageError for an object that other processes cannot get, or that is not what its source says.
        """
        why = "it is a method of an object, and the object stays here"
        if not isinstance(value, types.MethodType) and callable(value):
            try:
                return self._define(value, name)
            except NotWritten as error:
                why = str(error)
        raise UsageError(
            f"`{getattr(value, '__qualname__', name)}` cannot be sent to other processes: {why}",
            hint="give a class, or a function or lambda that makes the object, of a script, a notebook or a module; "
            "the prompt, `python -c` and cells with %%time keep no source",
        )

    def register(self, id: str) -> bool:
        """Add the registration in Gymnasium of an environment that this program registered; return whether it did."""
        if id in self.registered:
            return True
        arguments = registration(id)
        if arguments is None:
            return False
        self.registered[id] = ""  # now, for an entry point that names its own id
        parts = ", ".join(f"{name}={self._written(value, id)}" for name, value in {"id": id, **arguments}.items())
        place = self._module("gymnasium")
        self.registered[id] = f"if {id!r} not in {place}.registry:\n    {place}.register({parts})"
        return True

    def text(self) -> str:
        """Return the source of the module."""
        settings = [*statements_of_settings(self._module)]
        head = ["from __future__ import annotations\n"] if self.lazy_annotations else []
        if self.folders:
            folders = [f"sys.path += [one for one in {[*self.folders]!r} if one not in sys.path]"]
            head += ["import sys\n", *folders, ""]
        blocks = ["\n".join([*head, *self.imports, *([""] if settings else []), *settings])]
        plain: list[str] = []
        short = True
        for name in self._ordered():
            statement = self.statements[name]
            is_short = not statement.startswith(("def ", "class ", "@", "async ", "if True:"))
            plain.append(("\n" if is_short and short else "\n\n\n" if plain else "\n\n") + statement)
            short = is_short
        return (
            "\n\n".join(
                filter(None, ["\n".join(blocks).strip(), "".join(plain).strip("\n"), *self.registered.values()])
            )
            + "\n"
        )

    def _define(self, value: Any, wish: str) -> str:
        """Bind a class or function, and return its name. Raises NotWritten if there is no source of it."""
        name = str(getattr(value, "__name__", ""))
        if not name.isidentifier() or isinstance(value, functools.partial):
            name = self._free(wish)
        bound = self._known(value)
        if not bound:
            self._bind(name, value, name)
        return bound or name

    def _known(self, value: Any) -> str:
        """Return the name that an object is bound to already, or ""."""
        return next((name for name, other in self.bound.items() if other is value), "")

    def _bind(self, name: str, value: Any, user: str) -> None:
        """Bind `name` to `value` in the module. user: the definition that uses it."""
        if name in self.bound:
            if self.bound[name] is not value and not _equal(self.bound[name], value):
                raise UsageError(
                    f"`{name}` stands for two different objects in what `{user}` refers to, and other processes would "
                    "get one of them",
                    hint="give one of them another name; in a notebook, run the cells of both again",
                )
            return
        other = "" if _equal(value, value) else self._known(value)
        if other:
            self._alias(name, value, other)
        elif isinstance(value, types.ModuleType):
            self._import_module(name, value)
        elif found := self._found(name, value):
            own = getattr(found.node, "name", name)
            if own != name:
                self._bind(own, value, user)
                self._alias(name, value, own)
            else:
                self._write_definition(name, value, found)
        elif not self._import_object(name, value):
            self._write_value(name, value)

    def _alias(self, name: str, value: Any, other: str) -> None:
        self.bound[name], self.statements[name], self.needs[name] = value, f"{name} = {other}", [other]

    def _found(self, name: str, value: Any) -> Found | None:
        """Return the source of a class or function of the session."""
        if isinstance(value, types.MethodType | functools.partial) or not callable(value):
            return None
        return self.sources.of_definition(value, name)

    def _write_value(self, name: str, value: Any) -> None:
        if isinstance(value, type | types.FunctionType | types.BuiltinFunctionType):
            raise NotWritten(f"the session keeps no source of `{value.__qualname__}`")
        self.bound[name] = value  # now, for definitions that it holds and that refer to it
        try:
            self._assign(name, value)
        except NotWritten:
            del self.bound[name]
            raise

    def _assign(self, name: str, value: Any) -> None:
        """Make the statement that gives a name this value. Objects in several values get names of their own."""
        self.values[name] = value
        while True:
            try:
                known = "" if isinstance(value, FIXED) else self._name_of(value, name)
                self.statements[name] = f"{name} = {known or self._written(value, name)}"
                break
            except _Shared as part:
                self._bind(self._free(f"{name.replace('.', '_')}_part"), part.args[0], name)
        if known:
            self.needs.setdefault(name, []).append(known)
        elif (owner := self.owners.pop(id(value), None)) is not None:  # it was written as a part of an earlier value
            self._assign(owner[0], self.values[owner[0]])

    def _name_of(self, value: Any, user: str) -> str:
        """Return the name of an object whose value is written, or that is imported, for another than `user`; or ""."""
        named = (*self.values.items(), *self.bound.items())
        return next((name for name, other in named if other is value and name != user), "")

    def _share(self, value: Any, name: str) -> str:
        """Return the name of an object inside of the value of `name`; "" for the first value that has it."""
        if value is self.values.get(name):
            return ""
        if known := self._name_of(value, name):
            self.needs[name].append(known)
        elif id(value) in self.owners:
            raise _Shared(value)
        else:
            self.owners[id(value)] = name, value
        return known

    def _write_definition(self, name: str, value: Any, found: Found) -> None:
        self.bound[name] = value
        text = self._lambda(name, found) if isinstance(found.node, ast.Lambda) else found.text()
        names = found.namespace(self.sources.main)
        if isinstance(value, type):
            check_class(name, value, found, names)
        lazy = names.get("annotations") is __future__.annotations
        self.lazy_annotations = self.lazy_annotations or lazy
        own = getattr(found.node, "name", name)
        self.statements[name] = text if own == name else f"{text}\n\n\n{name} = {own}"
        self._register_named(found.node)
        at_once, later = names_of(text, lazy)
        self.needs[name] = [used for used in at_once if used not in (name, own)]
        closures = {free for function in found.functions for free in function.__code__.co_freevars}
        gone = locals_of(found.around) - closures
        for used in dict.fromkeys((*self.needs[name], *later)):
            check_use(name, used, at_once=used in self.needs[name], gone=gone, names=names)
            if used == "__file__" and names.get(used):
                self.statements.setdefault(used, f"__file__ = {str(names.get(used))!r}")
            elif used in names and used not in OWN and not _is_builtin(used, names[used]):
                self._use(name, used, names[used], found)
        if own in at_once:
            earlier = self._bind_earlier(own, value)
            self.statements[name] = f"{own} = {earlier}\n\n\n{self.statements[name]}"
            self.needs[name].append(earlier)
        for change in changes_of(value, found, names):
            self._repeat(name, change)

    def _bind_earlier(self, name: str, value: Any) -> str:
        """Bind the class that `name` stood for before `class Shop(Shop)` defined it anew; return its new name.

        Raises UsageError if it is no base class of `value`, or has no methods, by which its source is found.
        """
        bases = value.__mro__[1:] if isinstance(value, type) else ()
        base = next((one for one in bases if one.__name__ == name), None)
        if known := self._known(base):
            return known
        earlier = self._free(f"_earlier_{name}")
        found = None if base is None else self._found(name, base)
        if found is not None and found.functions:
            self._write_definition(earlier, base, found)
        elif base is None or found is not None or not self._import_object(earlier, base):
            raise UsageError(
                f"`{name}` uses an earlier `{name}` while it is defined, and other processes cannot get that",
                hint="give one of the two another name",
            )
        return earlier

    def _register_named(self, definition: ast.AST) -> None:
        """Add the registrations of environments whose ids stand in a definition."""
        for constant in {node.value for node in ast.walk(definition) if isinstance(node, ast.Constant)}:
            if isinstance(constant, str) and ID.fullmatch(constant):
                self.register(constant)

    def _repeat(self, name: str, change: Change) -> None:
        """Add the statement that gives an attribute of a class or function its value of this moment."""
        key = f"{name}.{change.name}"
        self.needs[key] = [name] if name in self.statements else []
        try:
            member = getattr(change.value, "__func__", change.value)
            if isinstance(member, FunctionType):
                other = self._define(member, f"{name}_{change.name}".replace(".", "_"))
                self.needs[key].append(other)
                kind = {staticmethod: "staticmethod({})", classmethod: "classmethod({})"}.get(type(change.value), "{}")
                self.statements[key] = f"{key} = {kind.format(other)}"
            else:
                self._assign(key, change.value)
        except NotWritten as error:
            del self.needs[key]
            if change.certain:
                raise UsageError(
                    f"`{name}` is not what its source says: its attribute `{change.name}` was changed, to {error}",
                    hint=f"define `{name}` as it shall be; other processes execute its source",
                ) from None

    def _lambda(self, name: str, found: Found) -> str:
        """Return the statement that binds a lambda, whose defaults are written as they are."""
        (function,) = found.functions
        node = copy.deepcopy(found.node)
        assert isinstance(node, ast.Lambda)

        def value(one: Any) -> ast.expr:
            return ast.parse(self._written(one, name), mode="eval").body

        node.args.defaults = [*map(value, function.__defaults__ or ())]
        given = function.__kwdefaults__ or {}
        node.args.kw_defaults = [value(given[one.arg]) if one.arg in given else None for one in node.args.kwonlyargs]
        return f"{name} = {ast.unparse(node)}"

    def _use(self, user: str, name: str, value: Any, found: Found) -> None:
        """Bind what the definition `user` refers to by `name`."""
        decorators = getattr(found.node, "decorator_list", ())
        named = {one.id for node in decorators for one in ast.walk(node) if isinstance(one, ast.Name)}
        own = not callable(value) or getattr(value, "__module__", None) == self.sources.main.get("__name__")
        used = name in named and own and not isinstance(value, types.ModuleType)
        if used and bound_after(name, found, self.sources.all()):
            raise UsageError(
                f"`{name}` got a new value after the definition of `{user}`, whose decorator uses it",
                hint=f"define `{user}` after `{name}` has its value; in a notebook, run the cell of `{user}` again",
            )
        try:
            self._bind(name, value, user)
        except NotWritten as error:
            raise UsageError(
                f"`{user}` uses `{name}`, an object of this session that other processes cannot get: {error}",
                hint=f"{WAYS_OUT}, or pass inline=True",
            ) from None

    def _free(self, name: str) -> str:
        """Return a name that is not bound yet, in the module or, for something else, in the session."""
        number, wish = 1, name
        while name in self.bound or name in vars(builtins):
            number += 1
            name = f"{wish}_{number}"
        return name

    def _written(self, value: Any, name: str) -> str:
        """Return a value as an expression; what it needs is bound before `name`."""
        self.owners = {key: owner for key, owner in self.owners.items() if owner[0] != name}
        needs = self.needs.setdefault(name, [])
        part = f"{name}_part" if name.isidentifier() else "part"

        def defined(inner: Any) -> str:
            known = str(getattr(inner, "__name__", ""))
            if vars(builtins).get(known) is inner:
                return known
            needs.append(self._define(inner, part))
            return needs[-1]

        shares = name in self.values
        return written(value, self._module, defined, lambda inner: self._share(inner, name) if shares else "")

    def _module(self, name: str) -> str:
        """Import a module for an expression, under a name that is nobody's; return that name."""
        own = f"_{name.replace('.', '_')}"
        self.imports[f"import {name} as {own}"] = None
        return own

    def _import_module(self, name: str, value: types.ModuleType) -> None:
        if value.__name__ == "__main__" or getattr(value, "__spec__", None) is None:
            raise NotWritten(f"the module `{value.__name__}`, which has no file")
        self.bound[name] = value
        self._find(value)
        said = []
        for node in imports_of(name, self.sources.all()):
            whole = node.names[0].name if isinstance(node, ast.Import) else f"{node.module}.{node.names[0].name}"
            top = whole.partition(".")[0] if isinstance(node, ast.Import) and not node.names[0].asname else whole
            if sys.modules.get(top) is value:
                said.append(ast.unparse(node))
        if not said:
            said = [f"import {value.__name__} as {name}" if value.__name__ != name else f"import {name}"]
        self.imports.update(dict.fromkeys(said))

    def _import_object(self, name: str, value: Any) -> bool:
        """Import a class, function or other object of a module; return whether a module has it.

        Plain values are written instead, because a module's may have changed since it was imported.
        """
        if not callable(value) and _can_be_written(value):
            return False
        statement = self._said_import(name, value)
        if not statement:
            module = sys.modules.get(str(getattr(value, "__module__", None)))
            path = str(getattr(value, "__qualname__", getattr(value, "__name__", "<>"))).split(".")
            found: Any = module
            for step in path:
                found = getattr(found, step, None)
            if module is None or module.__name__ == "__main__" or found is not value:
                return False
            self._find(module)
            top = f"_{path[0]}" if len(path) > 1 else name
            statement = f"from {module.__name__} import {path[0]}" + (f" as {top}" if top != path[0] else "")
            if len(path) > 1:
                self.statements[name] = f"{name} = {'.'.join([top, *path[1:]])}"
        self.bound[name] = value
        self.imports[statement] = None
        return True

    def _said_import(self, name: str, value: Any) -> str:
        """Return the statement of the session that imports `value` as `name`; "" without one."""
        for node in imports_of(name, self.sources.all()):
            module = sys.modules.get(str(getattr(node, "module", None)))
            if module is not None and vars(module).get(node.names[0].name) is value:
                self._find(module)
                return ast.unparse(node)
        return ""

    def _find(self, module: types.ModuleType) -> None:
        """Make a module that is not installed findable: its folder is added to the Python path of the others."""
        name, place = module.__name__.partition(".")[0], place_of_module(module)
        if is_installed(module):
            return
        self._take_changes(module)
        if place.stem != name:
            raise NotWritten(f"an object of the module `{name}`, which is not on the Python path")
        self.folders[str(place.parent)] = None

    def _take_changes(self, module: types.ModuleType) -> None:
        """Repeat what was assigned to names and classes of an imported module since, such as `settings.SIZE = 3`."""
        if module.__name__ in self.modules:
            return
        self.modules.add(module.__name__)
        for used in _modules_of(module):
            if not is_installed(used):
                self._take_changes(used)
        values = dict(new_values(module, self.sources))
        # A flag `connected` without the connection would be worse than neither.
        kept_here = {name for name, value in values.items() if not _can_be_written(value)}
        for names in bound_together(module, self.sources):
            kept_here |= names if names & kept_here else set()
        for name in [one for one in values if one not in kept_here]:
            self._repeat_in(module, name, values[name])
        for cls in [
            one for one in vars(module).values() if isinstance(one, type) and one.__module__ == module.__name__
        ]:
            if cls.__qualname__.isidentifier() and vars(module).get(cls.__qualname__) is cls:
                for change in changes_of_imported(cls, self.sources):
                    self._repeat(f"{self._module(module.__name__)}.{cls.__qualname__}", change)

    def _repeat_in(self, module: types.ModuleType, name: str, value: Any) -> None:
        """Give a name of an imported module the value of this moment, in the object that others may hold already."""
        key = f"_{module.__name__.replace('.', '_')}.{name}"
        imports = dict(self.imports)
        with contextlib.suppress(NotWritten):
            self._assign(key, value)
            self._module(module.__name__)
            if not isinstance(value, FIXED):
                text = self.statements[key].removeprefix(f"{key} = ")
                self.statements[key] = f"{key} = {self._module('hive.session.objects')}.refilled({key}, {text})"
            return
        self.imports = imports
        self.statements.pop(key, None)
        self.values.pop(key, None)

    def _ordered(self) -> list[str]:
        """Return the bound names so that each follows those that it needs when it is executed."""
        ordered: dict[str, None] = {}

        def visit(name: str, above: tuple[str, ...]) -> None:
            for needed in self.needs.get(name, ()):
                if needed in self.statements and needed not in above and needed not in ordered:
                    visit(needed, (*above, name))
            ordered.setdefault(name)

        for name in reversed(self.statements):  # what was found later is used by what was found earlier
            visit(name, (name,))
        return list(ordered)


def _can_be_written(value: Any) -> bool:
    """Whether a value has an expression, as far as classes and functions that it needs have."""
    try:
        written(value, str, lambda inner: str(inner))
    except NotWritten:
        return False
    return True


def _modules_of(module: types.ModuleType) -> list[types.ModuleType]:
    """Return the modules that a module has imported, or of which it has classes and functions."""
    values = [*vars(module).values()]
    names = {str(getattr(one, "__module__", "")) for one in values if callable(one)}
    found = [one for one in values if isinstance(one, types.ModuleType)]
    found += [sys.modules[name] for name in sorted(names) if name in sys.modules]
    return [one for one in found if one is not module and one.__name__ not in ("__main__", "builtins")]


def _is_builtin(name: str, value: Any) -> bool:
    """Whether a name stands for Python's own function; IPython puts an `open` of its own in its place."""
    known = vars(builtins).get(name, OWN)
    return value is known or (known is not OWN and str(getattr(value, "__module__", "")).startswith("IPython"))


def _equal(left: Any, right: Any) -> bool:
    """Whether two objects are the same plain value."""
    return type(left) in (bool, int, float, str, bytes, type(None)) and type(left) is type(right) and left == right
