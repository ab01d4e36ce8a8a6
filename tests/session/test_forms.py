"""Forms in which people define environments in scripts and cells: each gives the same object elsewhere, or is refused.

A program defines `target`; what `answer(target)` returns here must be what it returns in the module that is written.
Each form runs as a script, and as a notebook whose cells are separated by `# %%`.
"""

from __future__ import annotations

import decimal
import importlib
import importlib.util
import linecache
import sys
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hive.errors import UsageError
from hive.runtime.process.user_code.code_of_run import installed_folders, is_installed
from hive.session import SessionModule
from hive.session.settings import statements_of_settings

WORKS = {
    "modules by other names": "import math as m\nimport os.path\nimport xml.dom\n"
    "def target(): return m.sqrt(4), os.path.join('a', 'b'), xml.dom.__name__\n",
    "names of modules": "from math import sqrt as root, pi\ndef target(): return root(9), pi\n",
    "two submodules": "import xml.dom\nimport xml.sax\ndef target(): return xml.dom.__name__, xml.sax.__name__\n",
    "imports in every cell": "import math\nfrom enum import Enum\nclass A(Enum):\n    X = math.floor(2.5)\n# %%\n"
    "import math\nfrom enum import Enum\ndef target(): return A.X.value\n",
    "constants": "A = 3\nB = [1, {'x': (2.5, None)}]\nC = float('inf')\ndef target(): return A, B, C\n",
    "sets and ranges": "A = {3, 1, 2}\nB = frozenset('ab')\nC = range(2, 9)\n"
    "def target(): return sorted(A), sorted(B), list(C)\n",
    "the present value": "A = 3\ndef target(): return A\n# %%\nA = 5\n",
    "a list that grew": "A = [1]\ndef target(): return A\n# %%\nA.append(2)\n",
    "arrays": "import numpy as np\nA = np.arange(6.0).reshape(2, 3)\nB = np.float32(2)\nC = np.zeros((0, 2), bool)\n"
    "def target(): return A.tolist(), A.dtype.str, float(B), C.shape, (A * 300).sum()\n",
    "one array under two names": "import numpy as np\nA = np.zeros(2)\nB = {'a': A}\n"
    "def target():\n    A[0] += 1\n    return B['a'].tolist() == A.tolist()\n",
    "one array under two names, the container first": "import numpy as np\nA = np.zeros(2)\nB = [A, {'a': A}]\n"
    "def target():\n    B[0][0] += 1\n    return B[1]['a'][0] == A[0]\n",
    "one list in two containers": "L = [0]\nA = {'l': L}\nB = (1, L)\ndel L\n"
    "def target():\n    A['l'].append(1)\n    return len(B[1]) == len(A['l'])\n",
    "one list twice in a container": "A = [[0]] * 3\ndef target():\n    A[0][0] += 1\n    return A[2] == A[0]\n",
    "one list in two attributes": "class C:\n    a = b = [0]\n"
    "def target():\n    C.a.append(1)\n    return C.b == C.a\n",
    "a view of an array": "import numpy as np\nA = np.zeros((3, 2))\nB = A.T[1, 1:]\n"
    "def target():\n    A[2, 1] += 1\n    return B.tolist() == A[1:, 1].tolist(), B.shape\n",
    "large arrays": "import numpy as np\nA = np.random.default_rng(1).normal(size=(40, 30))\n"
    "def target(): return A.sum(), A.shape, A.flags.writeable\n",
    "tables": "import pandas as pd\n"
    "T = pd.DataFrame({'t': pd.to_datetime(['2020-01-01', '2021-05-02']), 'n': [1, 2], "
    "'s': ['a', None]}, index=[7, 9])\ndef target(): return T.to_csv(), str(T.dtypes.to_dict()), T.s.name\n",
    "spaces": "from gymnasium import spaces\n"
    "S = spaces.Dict(a=spaces.Box(-1, 1, (2,)), b=spaces.Discrete(3, start=1))\n"
    "def target(): return str(S), S.seed(3), S.sample()['b'] > 0\n",
    "paths, dates, patterns": "import pathlib, datetime, re\nP = pathlib.Path('a/b')\nD = datetime.date(2020, 1, 2)\n"
    "R = re.compile('a+', re.I)\ndef target(): return str(P), D.year, R.match('AA').end()\n",
    "enums": "import enum\nclass Mode(enum.Enum):\n    EASY = 1\n    HARD = 2\nM = Mode.HARD\n"
    "def target(): return M is Mode.HARD, [one.value for one in Mode]\n",
    "dataclasses": "from dataclasses import dataclass, field\n@dataclass(frozen=True)\nclass Size:\n    x: int = 2\n"
    "    more: list = field(default_factory=list)\nS = Size(5, [1])\ndef target(): return S.x, S.more, Size().x\n",
    "named tuples": "import collections, typing\nP = collections.namedtuple('P', 'x y')\n"
    "class Q(typing.NamedTuple):\n"
    "    x: int = 3\nq = Q(4)\ndef target(): return q.x, Q().x\n",
    "super": "class A:\n    def f(self): return [1]\nclass B(A):\n    def f(self): return super().f() + [2]\n"
    "class C(B):\n    def f(self): return super(C, self).f() + [3]\ndef target(): return C().f()\n",
    "classes that refer to each other": "class A:\n    def other(self): return B().name\n    name = 'a'\n"
    "class B(A):\n    name = 'b'\n    def other(self): return A().name\n"
    "def target(): return A().other(), B().other()\n",
    "decorators": "import functools\ndef twice(f):\n    @functools.wraps(f)\n    def g(*a): return 2 * f(*a)\n"
    "    return g\n@twice\ndef h(x): return x\nclass A:\n    @staticmethod\n    @twice\n    def s(x): return x\n"
    "    @property\n    def p(self): return h(4)\n    @functools.cached_property\n    def c(self): return 7\n"
    "    @classmethod\n    def k(cls): return cls.__name__\ndef target(): return h(3), A.s(1), A().p, A().c, A.k()\n",
    "decorators without wraps": "def plus(n):\n    def around(f):\n        def g(x): return f(x) + n\n"
    "        return g\n"
    "    return around\n@plus(10)\ndef h(x): return x\ndef target(): return h(1)\n",
    "decorated without the sign": "def plus(f):\n    def g(x): return f(x) + 1\n    return g\ndef h(x): return x\n"
    "k = plus(h)\ndef target(): return k(1), h(1)\n",
    "caches": "import functools\n@functools.lru_cache\ndef f(n): return n if n < 2 else f(n - 1) + f(n - 2)\n"
    "def target(): return f(20)\n",
    "class decorators": "known = []\ndef mark(cls):\n    cls.marked = cls.__name__\n    return cls\n@mark\n"
    "class A: ...\n"
    "def target(): return A.marked\n",
    "closures": "def make(n):\n    def f(): return n + k()\n    def k(): return 2\n    return f\nf = make(5)\n"
    "def target(): return f()\n",
    "classes of functions": "def make(n):\n    class A:\n        text = '''\n  kept\n'''\n"
    "        def f(self): return n, self.text\n    return A\nA = make(5)\ndef target(): return A().f()\n",
    "lambdas": "LEVEL = 2\none, two = (lambda: LEVEL), (lambda: LEVEL * 10)\ndef target(): return one(), two()\n",
    "lambdas in a loop": "fs = [lambda i=i: i for i in range(3)]\nf = fs[2]\ng = (lambda n: lambda: n)(4)\n"
    "def target(): return f(1), g()\n",
    "partials": "import functools\ndef f(a, b): return a - b\np = functools.partial(f, b=3)\n"
    "def target(): return p(10)\n",
    "an alias": "class A:\n    def f(self): return isinstance(self, B)\nB = A\ndef target(): return B().f(), A is B\n",
    "functions in containers": "def f(): return 1\nclass A: ...\nT = {'f': f, 'A': A}\n"
    "def target(): return T['f'](), T['A'] is A, T['f'] is f\n",
    "defaults and annotations": "from __future__ import annotations\nN = 4\n"
    "def target(a: Unknown = N, *, b=(1, 2)): return a, b\n",
    "own names of builtins": "def list(x): return ['own', *x]\ndef target(): return list('ab'), len('abc')\n",
    "global statements": "count = 0\ndef up():\n    global count\n    count += 1\n    return count\n"
    "def target(): return up(), up()\n",
    "comprehensions of a class": "K = 3\nclass A:\n    rows = [K * i for i in range(3)]\n    __slots__ = ('x',)\n"
    "def target(): return A.rows\n",
    "private names": "class A:\n    __n = 4\n    _m = 'x'\n    def __f(self): return self.__n\n"
    "    def g(self): return self.__f()\n"
    "def target(): return A().g()\n",
    "generics and protocols": "from typing import Generic, TypeVar, Protocol\nT = TypeVar('T')\nclass P(Protocol):\n"
    "    def f(self): ...\nclass A(Generic[T]):\n    size = 3\n    def f(self): return 1\nclass B(A[int]): ...\n"
    "def target(): return B().f(), B.size\n",
    "conditional definitions": "import sys\nif sys.platform == 'linux':\n    def f(): return 'linux'\nelse:\n"
    "    def f(): return 'other'\ntry:\n    import nothing_of_this_name\nexcept ImportError:\n    nothing = None\n"
    "def target(): return f()\n",
    "attributes that were changed": "class A:\n    size, cfg, T = 3, {}, None\n    name = 'a'\n"
    "    def f(self): return self.size, "
    "self.cfg, self.name, self.more, self.g()\n# %%\ndef g(self): return 'g'\nA.size = 5\nA.cfg['x'] = 1\n"
    "A.name = 'b'\n"
    "setattr(A, 'more', [2])\nA.g = g\nA.f.mark = 1\ndef target(): return A().f(), A.f.mark\n",
    "values of a class body": "import numpy as np\nclass A:\n    m = np.random.default_rng().random(2)\n"
    "    t = np.zeros(3)\n"
    "    def f(self): return self.m.tolist(), self.t.tolist()\n# %%\nA.t[0] = 7\ndef target(): return A().f()\n",
    "a value that was used and then changed": "N = 3\nclass A:\n    rows = [0] * N\n"
    "    def f(self, n=N): return self.rows, n, N\n"
    "# %%\nN = 5\ndef target(): return A().f()\n",
    "methods that were replaced": "class A:\n    def f(self): return 1\n    @staticmethod\n"
    "    def s(): return 1\n# %%\n"
    "A.f = lambda self: 2\nA.s = staticmethod(lambda: 3)\ndef target(): return A().f(), A.s()\n",
    "defaults that were changed": "def f(n=[3], *, k=1): return n, k\n# %%\nf.__defaults__[0][0] = 5\n"
    "f.__kwdefaults__['k'] = 2\ndef target(): return f()\n",
    "counters": "class A:\n    made = 0\n    def __init__(self): type(self).made += 1\nA(), A()\n"
    "def target(): return A.made\n",
    "objects of own classes": "class S:\n    def __init__(self): self.mean = 0\n    def fit(self, x): self.mean = x\n"
    "    def __call__(self): return self.mean\ns = S()\n# %%\ns.fit(4)\ntarget = s\n",
    "arguments of a command": "import argparse\nargs = argparse.Namespace(fee=0.7, names=['a'])\n"
    "def target(): return args.fee, args.names\n",
    "collections": "import collections, logging\nO = collections.OrderedDict(a=1)\n"
    "D = collections.defaultdict(list, a=[1])\n"
    "Q = collections.deque([1, 2], maxlen=2)\nL = logging.getLogger('x')\n"
    "def target(): return O, D, D['new'], Q, Q.maxlen, L.name\n",
    "tensors": "import torch\nT = torch.ones(2, dtype=torch.float64)\nD = torch.float32\nP = torch.device('cpu')\n"
    "def target(): return T.tolist(), str(T.dtype), str(D), str(P)\n",
    "market data": "import pandas as pd\nT = pd.DataFrame({'v': pd.array([1, None], dtype='Int64')}, "
    "index=pd.date_range('2020-01-01', periods=2, tz='UTC', name='t'))\n"
    "M = pd.MultiIndex.from_product([['a', 'b'], [1, 2]], names=['x', 'y'])\n"
    "def target(): return T.to_csv(), str(T.index.dtype), str(T.index.freq), T.v.isna().tolist(), M.tolist()\n",
    "structured arrays": "import numpy as np\nA = np.array([(1, 2.5)], dtype=[('a', 'i4'), ('b', 'f8')])\n"
    "def target(): return A['b'].tolist(), A.dtype.names\n",
    "dataclasses with rules": "from dataclasses import dataclass, field\n@dataclass\nclass D:\n    a: int = 1\n"
    "    b: int = field(init=False)\n    def __post_init__(self): self.b = self.a + 1\nd = D(4)\nd.b = 9\n"
    "def target(): return d.a, d.b, D(1).b\n",
    "types as values": "import numpy as np, typing\nfrom collections.abc import Callable\n"
    "O = dict[str, np.ndarray] | None\nF = Callable[[int, str], float]\nP = typing.Optional[list[int]]\n"
    "def target(): return O == (dict[str, np.ndarray] | None), F == Callable[[int, str], float], str(P)\n",
    "a class that extends itself": "import collections\nfrom collections import OrderedDict\n"
    "class OrderedDict(OrderedDict):\n    def f(self): return len(self)\n"
    "class A(collections.UserList):\n    n = 1\n    def f(self): return ['a', self.n, A.__name__]\n# %%\n"
    "A.n = 5\nFirst = A\nclass A(A):\n    def f(self): return [*super().f(), 'b']\n# %%\nclass A(A):\n    n = 7\n"
    "class B(A): ...\n"
    "def target(): return B().f(), First().f(), OrderedDict(a=1).f(), [one.__name__ for one in B.__mro__]\n",
    "environments": "import gymnasium as gym\nclass E(gym.Env):\n    action_space = gym.spaces.Discrete(2)\n"
    "    def reset(self, *, seed=None, options=None):\n        super().reset(seed=seed)\n        return 0, {}\n"
    "class W(gym.Wrapper):\n    def reset(self, **k): return self.env.reset(**k)[0] + 1, {}\n"
    "def target(): return W(E()).reset(seed=1)\n",
}

REFUSED = {
    "a base class that was defined anew": (
        "class A:\n    def f(self): return 1\n# %%\nclass B(A): ...\n# %%\nclass A:\n    def f(self): return 2\n"
        "def target(): return B().f()\n",
        "`B` is not what its source says: its base class `A` was defined anew",
    ),
    "a decorator that was changed": (
        "def d(f): return f\n@d\ndef f(): return 1\n# %%\ndef d(f): return None\ndef target(): return f()\n",
        "`d` got a new value after the definition of `f`, whose decorator uses it",
    ),
    "an attribute that cannot be sent": (
        "class A:\n    def f(self): return 1\n# %%\nA.it = iter([1])\ndef target(): return A().f()\n",
        "`A` is not what its source says: its attribute `it` was changed, to a value of type `list_iterator`",
    ),
    "an object of an older enum": (
        "import enum\nclass M(enum.Enum):\n    A = 1\nm = M.A\n# %%\nclass M(enum.Enum):\n    A = 2\n"
        "def target(): return m.value\n",
        "`M` was defined anew, and an object of the older `M` is left",
    ),
    "a dataclass that was defined anew": (
        "from dataclasses import dataclass\n@dataclass\nclass D:\n    a: int = 1\nd = D()\n# %%\n@dataclass\n"
        "class D:\n"
        "    a: int = 1\n    b: int = 2\ndef target(): return vars(d)\n",
        "`D` was defined anew",
    ),
    "an old class under a new name": (
        "class A:\n    def f(self): return 1\nOld = A\n# %%\nclass A:\n    def f(self): return 2\n"
        "def target(): return Old().f(), A().f()\n",
        "`A` stands for two different objects",
    ),
    "a class that extends one without methods of its own name": (
        "class A:\n    n = 1\n# %%\nclass A(A):\n    m = 2\ndef target(): return A.n\n",
        "`A` uses an earlier `A`",
    ),
    "a default of the function's own name": (
        "def f(): return 1\n# %%\ndef f(g=f): return g()\ndef target(): return f()\n",
        "`f` uses an earlier `f`",
    ),
    "two closures of one name": (
        "def make(n):\n    def f(): return n\n    return f\na, b = make(1), make(2)\ndef target(): return a(), b()\n",
        "stands for two different objects",
    ),
    "a local of the function around": (
        "def make(n):\n    class A:\n        rows = [0] * n\n        def f(self): return self.rows\n"
        "    return A\nA = make(3)\n"
        "def target(): return A().f()\n",
        "`A` uses `n` of the function in which it is defined",
    ),
    "an iterator": ("F = iter([1])\ndef target(): return next(F)\n", "`target` uses `F`, an object"),
    "a generator of random numbers": (
        "import numpy as np\nR = np.random.default_rng(1)\ndef target(): return R.random()\n",
        "`target` uses `R`, an object of this session that other processes cannot get: a value of type `Generator`",
    ),
    "a list that holds itself": (
        "L = []\nL.append(L)\ndef target(): return len(L)\n",
        "`target` uses `L`, .* holds itself",
    ),
    "a method": (
        "class A:\n    def f(self): return 1\ntarget = A().f\n",
        "`A.f` cannot be sent .* the object stays here",
    ),
    "code without a source": ("exec('def target(): return 1')\n", "`target` cannot be sent to other processes"),
    "too much": ("A = 'x' * 5_000_000\ndef target(): return len(A)\n", "`target` uses `A`.*5,000,002 characters"),
}

Program = Callable[[str], Any]


@pytest.fixture(params=["script", "cells"])
def program(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Program]:
    """Return a function that runs a program as `__main__`, and returns its `target`."""
    before, main = dict(linecache.cache), types.ModuleType("__main__")
    monkeypatch.setitem(sys.modules, "__main__", main)

    def run(text: str) -> Any:
        if request.param == "script":
            main.__file__ = str(tmp_path / "script.py")
            Path(main.__file__).write_text(text)
            exec(compile(text, main.__file__, "exec", dont_inherit=True), vars(main))
            return vars(main)["target"]
        vars(main).pop("__file__", None)
        main.In = [""]  # type: ignore[attr-defined]
        for number, cell in enumerate(text.split("# %%\n")):
            file = f"/tmp/ipykernel_7/{number}.py"
            linecache.cache[file] = (len(cell), None, cell.splitlines(keepends=True), file)
            main.In.append(cell)
            exec(compile(cell, file, "exec", dont_inherit=True), vars(main))
        return vars(main)["target"]

    yield run
    linecache.cache.clear()
    linecache.cache.update(before)


def module_of(target: Any, folder: Path) -> Any:
    """Write the module of `target`, import it and return its object."""
    session = SessionModule()
    name = session.add(target, "target")
    (folder / "session.py").write_text(session.text())
    spec = importlib.util.spec_from_file_location("session_of_a_test", folder / "session.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[module.__name__] = module
    try:
        spec.loader.exec_module(module)
    finally:
        del sys.modules[module.__name__]
    return getattr(module, name)


@pytest.mark.rotates
@pytest.mark.parametrize("form", WORKS)
def test_a_form_gives_the_same_elsewhere(form: str, program: Program, tmp_path: Path) -> None:
    if form in ("tables", "market data"):
        pytest.importorskip("pandas")
    target = program(WORKS[form])
    assert module_of(target, tmp_path)() == target()


def test_code_that_names_its_file_gets_that_of_the_script(program: Program, tmp_path: Path) -> None:
    there = module_of(program("import sys\ndef target(): return __file__ if sys else 0\n"), tmp_path)
    if hasattr(sys.modules["__main__"], "__file__"):
        assert there() == str(tmp_path / "script.py")
    else:
        assert there() == str(tmp_path / "session.py")  # a notebook has no file, and its code raises NameError there


@pytest.mark.parametrize("form", REFUSED)
def test_a_form_that_cannot_be_kept_is_refused_by_name(form: str, program: Program, tmp_path: Path) -> None:
    text, message = REFUSED[form]
    with pytest.raises(UsageError, match=message) as caught:
        module_of(program(text), tmp_path)
    assert caught.value.hint


def test_a_script_that_was_edited_is_not_taken_for_what_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    main = types.ModuleType("__main__")
    monkeypatch.setitem(sys.modules, "__main__", main)
    main.__file__ = str(tmp_path / "script.py")
    for kind in ("def target(): return {}\n", "class target:\n    def f(self): return {}\n"):
        exec(compile(kind.format(1), main.__file__, "exec", dont_inherit=True), vars(main))
        Path(main.__file__).write_text(kind.format(2))
        with pytest.raises(UsageError, match="the file was changed after it was imported or started"):
            module_of(vars(main)["target"], tmp_path)


def test_a_cell_that_ran_again_counts_as_new(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """IPython gives a cell of the same text the same file, so its place among the cells is that of its last run."""
    main = types.ModuleType("__main__")
    monkeypatch.setitem(sys.modules, "__main__", main)
    cells = ["N = 3\n", "class A:\n    rows = [0] * N\n    def f(self): return self.rows\n", "N = 5\n"]
    main.In = ["", *cells, cells[1], "def target(): return A().f()\n"]  # type: ignore[attr-defined]
    before = dict(linecache.cache)
    try:
        for cell in main.In[1:]:
            file = f"/tmp/ipykernel_7/{hash(cell)}.py"
            linecache.cache[file] = (len(cell), None, cell.splitlines(keepends=True), file)
            exec(compile(cell, file, "exec", dont_inherit=True), vars(main))
        assert module_of(vars(main)["target"], tmp_path)() == [0] * 5
    finally:
        linecache.cache.clear()
        linecache.cache.update(before)


def test_changes_of_imported_modules_are_repeated(
    program: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "own_parts.py").write_text("FEE = 1\nclass A:\n    size = 2\n    def f(self): return self.size, FEE\n")
    monkeypatch.syspath_prepend(tmp_path)
    text = (
        "import own_parts\nfrom own_parts import A\nclass B(own_parts.A): ...\nown_parts.FEE = 5\nA.size = 7\n"
        "A.g = lambda self: 'g'\ndef target(): return A().f(), B().f(), B().g()\n"
    )
    target = program(text)
    assert target() == ((7, 5), (7, 5), "g")
    loaded = sys.modules.pop("own_parts")
    session = SessionModule()
    sys.modules["own_parts"] = loaded
    try:
        (tmp_path / "session.py").write_text((session.add(target, "target"), session.text())[1])
        del sys.modules["own_parts"]
        found: dict[str, Any] = {"__name__": "session"}
        exec(compile((tmp_path / "session.py").read_text(), "session.py", "exec", dont_inherit=True), found)
        assert found["target"]() == ((7, 5), (7, 5), "g")
        sys.modules["own_parts"] = loaded
        (tmp_path / "own_parts.py").write_text("FEE = 1\nclass A:\n    size = 2\n    def f(self): return 'new'\n")
        with pytest.raises(UsageError, match=r"`own_parts.A` in .* is not what runs"):
            SessionModule().add(target, "target")
    finally:
        sys.modules.pop("own_parts", None)


OWN_SETTINGS = """
import collections
class Options:
    def __init__(self): self.wind = 0
_private = 1
count = 0
options = Options()
table = dict(a=1)
made = [n for n in range(2)]
SIZE = None
connected, connection = False, None
def connect():
    global connected, connection
    connected, connection = True, iter([1])
def set_count(value):
    global count, late
    count = late = value
"""
OWN_WORLD = """
import own_settings
from own_settings import Options, options, table
def seen():
    late = getattr(own_settings, "late", None)
    assert not own_settings.connected
    return own_settings._private, own_settings.count, late, options.wind, table, own_settings.made, own_settings.SIZE
"""
OWN_SETTING = {
    "a private name": "own_settings._private = 7",
    "a name bound by a function": "own_settings.set_count(3)",
    "an attribute of an object": "own_settings.options.wind = 5",
    "a container": "own_settings.table['b'] = 2\nown_settings.made.append(9)",
    "an array": "import numpy\nown_settings.SIZE = [numpy.zeros(2).tolist()]",
}


@pytest.mark.parametrize("setting", OWN_SETTING)
def test_what_a_script_sets_in_its_modules_holds_elsewhere(
    setting: str, program: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "own_settings.py").write_text(OWN_SETTINGS)
    (tmp_path / "own_world.py").write_text(OWN_WORLD)
    try:
        target = program(
            f"import own_settings, own_world\n{OWN_SETTING[setting]}\ndef target(): return own_world.seen()\n"
        )
        expected, session = target(), SessionModule()
        sys.modules["own_settings"].connect()  # which is not sent, nor that it was done
        (tmp_path / "session.py").write_text((session.add(target, "target"), session.text())[1])
        for name in ("own_settings", "own_world"):
            del sys.modules[name]
        found: dict[str, Any] = {"__name__": "session"}
        exec(compile((tmp_path / "session.py").read_text(), "session.py", "exec", dont_inherit=True), found)
        assert found["target"]() == expected
    finally:
        for name in ("own_settings", "own_world"):
            sys.modules.pop(name, None)


def test_settings_of_libraries_are_statements() -> None:
    assert [*statements_of_settings(str)] == []
    with decimal.localcontext(prec=3), np.errstate(over="raise"), np.printoptions(precision=2):
        first, second = statements_of_settings(str)
    assert "decimal.Context(prec=3" in first
    assert "decimal.Overflow" in first
    assert "'over': 'raise'" in second
    assert "'precision': 2" in second


def test_a_project_inside_its_virtual_environment_is_not_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`python -m venv .` makes the project's folder the environment's."""
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    installed_folders.cache_clear()
    (tmp_path / "in_the_project.py").write_text("class A: ...\n")
    monkeypatch.syspath_prepend(tmp_path)
    module = importlib.import_module("in_the_project")
    try:
        assert not is_installed(module)
        assert is_installed(sys)
        assert is_installed(pytest)
        assert is_installed(importlib)
    finally:
        del sys.modules["in_the_project"]
        installed_folders.cache_clear()
