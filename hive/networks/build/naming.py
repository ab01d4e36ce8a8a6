"""Names of parameters as users write and read them, and freezing by patterns of these names.

    network.encoder.0.weight     in the flat block and in a checkpoint: with the modules that hive puts around a network
    encoder.0.weight             as `hive check --parameters` prints it, and in network.frozen and network.weights

So a key of the config keeps its meaning when observations become a dictionary, are stacked or are normalized.

A module whose parameters are all frozen stays in evaluation mode: a pretrained BatchNorm normalizes by its statistics
and does not change them, and dropout is off.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase

from torch import Tensor, nn

from hive.errors import NetworkError
from hive.networks.rows.normalization import NormalizedNetwork
from hive.networks.rows.packed import PackedNetwork, StackedNetwork

WRAPPERS = (NormalizedNetwork, PackedNetwork, StackedNetwork)
NAMES_SHOWN = 12  # maximum names in an error: those of a small network


def shown_name(name: str, module: nn.Module) -> str:
    """Return the name of a parameter, buffer or submodule without the modules that hive puts around networks."""
    node: object = module
    shown = []
    for part in name.split("."):
        if not (isinstance(node, WRAPPERS) and part == "network"):
            shown.append(part)
        node = getattr(node, part, None)
    return ".".join(shown)


def shown_tensors(module: nn.Module) -> dict[str, Tensor]:
    """Return parameters and saved buffers by the names that users see. A tied parameter has several names."""
    found: dict[str, Tensor] = {}
    for name, tensor in module.state_dict(keep_vars=True).items():
        if isinstance(tensor, Tensor):  # and not what a module's get_extra_state returns
            found[shown_name(name, module)] = tensor
    return found


def statistics_of(module: nn.Module) -> list[Tensor]:
    """Return the parameters and buffers of what hive puts beside a network: normalizers, and the networks of RND."""
    beside = [
        child
        for wrapper in module.modules()
        if isinstance(wrapper, NormalizedNetwork)
        for name, child in wrapper.named_children()
        if name != "network"
    ]
    return [tensor for child in beside for tensor in (*child.parameters(), *child.buffers())]


def parameter_rows(module: nn.Module) -> list[tuple[str, list[int], bool]]:
    """Return name, shape and whether it is frozen of each parameter, in the order of the module."""
    return [
        (name, list(one.shape), not one.requires_grad)
        for name, one in shown_tensors(module).items()
        if isinstance(one, nn.Parameter)
    ]


def frozen_text(module: nn.Module) -> str:
    """Return how much of a network is frozen, for `hive check`; "" for nothing."""
    sizes = [(one.numel(), one.requires_grad) for one in module.parameters()]
    frozen, all_of_them = sum(size for size, learns in sizes if not learns), sum(size for size, _ in sizes)
    return f"{frozen:,} of {all_of_them:,} parameters" if frozen else ""


def names_text(names: Iterable[str]) -> str:
    """Return names for an error: all of a few, otherwise the first ones."""
    listed = list(names)
    more = f" and {len(listed) - NAMES_SHOWN:,} more" if len(listed) > NAMES_SHOWN else ""
    return ", ".join(listed[:NAMES_SHOWN]) + more


def freeze(module: nn.Module, patterns: Sequence[str]) -> None:
    """Freeze the parameters whose names match one of the patterns (fnmatch, upper and lower case differ).

    Raises NetworkError for a pattern without a match, and if nothing that an update changes is left: of the network, or
    of the actor or the critics of an agent.
    """
    parameters = {shown: one for shown, one in shown_tensors(module).items() if isinstance(one, nn.Parameter)}
    for pattern in patterns:
        matching = [one for name, one in parameters.items() if fnmatchcase(name, pattern)]
        if not matching:
            raise _unmatched(pattern, parameters)
        for one in matching:
            one.requires_grad_(False)
    if not patterns:
        return
    groups = {"the network": module, **_groups_of(module)}
    for name, group in groups.items():
        if not any(parameter.requires_grad for parameter in group.parameters()):
            raise NetworkError(
                f"network.frozen {list(patterns)} leaves nothing to learn in {name}",
                hint="leave the heads out of the patterns; `hive check --parameters` prints all names",
            )
    _keep_in_evaluation(module)


def set_training(module: nn.Module, training: bool) -> None:
    """Set the mode of a module and of all inside, except those that freezing keeps in evaluation mode."""
    module.train(training)
    for child in module.modules():
        if getattr(child, "stays_in_evaluation", False):
            child.eval()


def _groups_of(module: nn.Module) -> dict[str, nn.Module]:
    """Return the parts of an agent that updates step alone. Its temperature may be all that a pattern freezes."""
    names = [name for name in getattr(module, "parameter_groups", ()) if name in ("actor", "critic")]
    return {f"the {name}": getattr(module, name) for name in names}


def _keep_in_evaluation(module: nn.Module) -> None:
    parameters = list(module.parameters())
    if parameters and not any(parameter.requires_grad for parameter in parameters):
        module.stays_in_evaluation = True  # type: ignore[assignment]  # a mark of `set_training`, not a tensor
        module.eval()
        return
    for child in module.children():
        _keep_in_evaluation(child)


def _unmatched(pattern: str, parameters: Mapping[str, nn.Parameter]) -> NetworkError:
    inside = [name for name in parameters if name.startswith(f"{pattern}.")]
    meant = f'"{pattern}.*" matches the parameters of `{pattern}`' if inside else f"there are {names_text(parameters)}"
    return NetworkError(f'network.frozen "{pattern}" matches no parameter of the network', hint=meant)
