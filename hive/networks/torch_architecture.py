"""The `Architecture` that computes with torch, on one flat block of weights.

    inputs ─ module ─ outputs ─ heads' losses ─ backward ─ gradient block ─ clip ─ accumulated block
                                                                                        │
    weights block <──────────────── native optimizer, moments ──────────────────────────┘

This is the library's way to train: one process, in place. In a run the same FlatParameters and FlatOptimizer
work on blocks in shared memory, and workers call the module themselves.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from hive import _native
from hive.errors import NetworkError
from hive.networks.architecture import Architecture, Array, Inputs, Targets, TrainingResult
from hive.networks.flat import FlatParameters, aligned_block
from hive.networks.heads import make_head
from hive.networks.losses import checked_tensor, extra_input_names, l2_loss, weighted_losses
from hive.networks.network import Observations, build_network
from hive.networks.optimizers import FlatOptimizer, LimitedMemoryBFGS
from hive.networks.parameters import GradientClippingMethod
from hive.networks.spaces import Spaces

__all__ = ["TorchArchitecture"]

Floats = npt.NDArray[np.float32]


class TorchArchitecture(Architecture):
    """A torch network, `module`, with its weights in one block, `flat`. Methods as in `Architecture`.

    generator: the source of the initial weights; None: a generator seeded with 0, so that equal parameters
        give equal networks. `updates` counts the optimizer steps of this network's optimizer; the learning
        rate follows it.
    """

    def __init__(
        self,
        agent_parameters: Any,
        spaces: Spaces,
        name: str = "",
        *,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__(agent_parameters, spaces, name)
        parameters = self.network_parameters
        self.module = build_network(parameters, spaces, generator or torch.Generator().manual_seed(0))
        self.flat = FlatParameters(self.module)
        # Losses depend on no weights, so these heads serve modules of users' own as well.
        self.heads = [
            make_head(head, spaces.action, huber=parameters.replace_mse_with_huber_loss) for head in parameters.heads()
        ]
        settings = parameters.optimizer_settings()
        self._optimizer = LimitedMemoryBFGS(settings) if settings.name == "lbfgs" else FlatOptimizer(settings)
        self._moments = [self._gradient_block() for _ in range(self._optimizer.moment_blocks)]
        self._gradient = self._gradient_block()
        self._accumulated = self._gradient_block()
        self.updates = 0
        self._refuse_impossible_parameters()

    @property
    def accumulated_gradients(self) -> list[Array]:
        return self.flat.gradient_arrays(self._accumulated)

    @property
    def weights_view(self) -> dict[str, Array]:
        """All parameters and buffers by name, live: a view, not a copy."""
        return self.flat.arrays(self.flat.block)

    def accumulate_gradients(
        self,
        inputs: Inputs,
        targets: Targets,
        additional_fetches: Sequence[Any] | None = None,
        importance_weights: Array | Sequence[Array] | None = None,
        no_accumulation: bool = False,
    ) -> TrainingResult:
        outputs = self.module(self._observations(inputs))
        losses = weighted_losses(self.heads, outputs, inputs, targets, importance_weights)
        if self.network_parameters.l2_regularization:
            losses.append(l2_loss(self.module, self.network_parameters.l2_regularization))
        total = torch.stack(losses).sum()
        self.flat.release_gradients()
        torch.autograd.backward(total)
        self.flat.gradient(self._gradient)
        self.flat.release_gradients()
        norm = self._norm_of(self._gradient)
        self._clip(norm)
        if no_accumulation:
            np.copyto(self._accumulated, self._gradient)
        else:
            self._accumulated += self._gradient
        fetched = [
            outputs[fetch].detach().numpy().copy() if isinstance(fetch, int) else self.get_variable_value(fetch)
            for fetch in additional_fetches or ()
        ]
        return float(total.detach()), [float(loss.detach()) for loss in losses], norm, fetched

    def apply_gradients(self, gradients: Sequence[Array], scaler: float = 1.0) -> None:
        self.apply_gradients_to(self, gradients, scaler)

    def apply_gradients_to(self, network: TorchArchitecture, gradients: Sequence[Array], scaler: float = 1.0) -> None:
        """One step of this network's optimizer on the weights of an identical `network`."""
        views = self.flat.gradient_arrays(self._gradient)
        _check_fit(views, gradients, f"gradients of network `{self.name}`")
        for view, gradient in zip(views, gradients, strict=True):
            view[...] = gradient
        self._norm_of(self._gradient)
        weights = network._parameter_block()
        self._optimizer.step(
            weights,
            weights,
            self._gradient,
            self._moments,
            self._moments,
            step=self.updates + 1,
            learning_rate=self.network_parameters.learning_rate_at(self.updates),
            gradient_scale=scaler,
        )
        self.updates += 1

    def reset_accumulated_gradients(self) -> None:
        self._accumulated.fill(0.0)

    def get_weights(self) -> list[Array]:
        return [array.copy() for array in self.weights_view.values()]

    def set_weights(self, weights: Sequence[Array], rate: float = 1.0) -> None:
        given = aligned_block(self.flat.block_bytes)
        views = list(self.flat.arrays(given).values())
        _check_fit(views, weights, f"weights of network `{self.name}`")
        for view, weight in zip(views, weights, strict=True):
            view[...] = weight
        self._blend(given, rate)

    def copy_weights_from(self, network: TorchArchitecture, rate: float = 1.0) -> None:
        """`set_weights(network.get_weights(), rate)` of an identical network, as one pass over blocks."""
        if network.flat.parameters + network.flat.buffers != self.flat.parameters + self.flat.buffers:
            raise NetworkError(f"network `{network.name}` is not built like `{self.name}`")
        self._blend(network.flat.block, rate)

    def predict(
        self,
        inputs: Inputs,
        outputs: Sequence[int] | None = None,
        squeeze_output: bool = True,
        initial_feed_dict: Inputs | None = None,
    ) -> Any:
        with torch.inference_mode():
            results = self.module(self._observations({**inputs, **(initial_feed_dict or {})}))
        chosen = tuple(results[index].numpy() for index in (range(len(results)) if outputs is None else outputs))
        return chosen[0] if squeeze_output and len(chosen) == 1 else chosen

    @staticmethod
    def parallel_predict(sess: Any, network_input_tuples: Sequence[tuple[Architecture, Inputs]]) -> tuple[Array, ...]:
        return tuple(
            output
            for network, inputs in network_input_tuples
            for output in network.predict(inputs, squeeze_output=False)
        )

    def get_variable_value(self, variable: Any) -> Array:
        return self._variable(variable).copy()

    def set_variable_value(self, assign_op: Any, value: np.ndarray, placeholder: Any = None) -> None:
        view = self._variable(assign_op)
        _check_fit([view], [value], f"variable `{assign_op}`")
        view[...] = value

    def set_is_training(self, state: bool) -> None:
        self.module.train(state)

    def _refuse_impossible_parameters(self) -> None:
        """NetworkError now instead of at the first update."""
        parameters = self.network_parameters
        parameters.learning_rate_at(0)
        if parameters.clip_gradients is not None and parameters.clip_gradients < 0:
            raise NetworkError(
                f"clip_gradients = {parameters.clip_gradients} is negative", hint="None or 0: no clipping"
            )
        if parameters.weight_decay and not all(p.requires_grad for p in self.module.parameters()):
            raise NetworkError(
                f"weight_decay would shrink the frozen parameters of network `{self.name}`",
                hint="use l2_regularization, which leaves frozen parameters alone",
            )

    def _observations(self, inputs: Inputs) -> Observations:
        """The module's argument; NetworkError for an input that is unknown, missing or of another shape."""
        specs = self.spaces.observations
        known = [*specs, *extra_input_names(self.heads)]
        for name in inputs:
            if name not in known:
                raise NetworkError(f"network `{self.name}` has no input `{name}`", hint=f"inputs: {', '.join(known)}")
        for name in self.network_parameters.input_embedders_parameters or specs:
            if name not in inputs:
                raise NetworkError(
                    f"network `{self.name}` needs the input `{name}`", hint=f"given: {', '.join(inputs)}"
                )
        count = len(next(iter(inputs.values())))
        tensors = {
            name: checked_tensor(inputs[name], spec.dtype, (count, *spec.shape), f"input `{name}`")
            for name, spec in specs.items()
            if name in inputs
        }
        return tensors if len(specs) > 1 else next(iter(tensors.values()))

    def _clip(self, norm: float) -> None:
        """Clips the gradient block as the parameters say; `norm` is its global norm."""
        limit = self.network_parameters.clip_gradients
        method = self.network_parameters.gradients_clipping_method
        if not limit:
            return
        if method is GradientClippingMethod.ClipByValue:
            np.clip(self._gradient, -limit, limit, out=self._gradient)
        elif method is GradientClippingMethod.ClipByGlobalNorm:
            self._gradient *= np.float32(limit / max(norm, limit))
        else:
            for view in self.flat.gradient_arrays(self._gradient):
                view *= np.float32(limit / max(float(np.linalg.norm(view)), limit))

    def _norm_of(self, gradient: Floats) -> float:
        """Its global norm; NetworkError names the first parameter whose gradient is not finite."""
        norm, finite = _native.norm_and_finite(gradient)
        if not finite:
            parts = zip(self.flat.names, self.flat.gradient_arrays(gradient), strict=True)
            name = next(name for name, part in parts if not np.isfinite(part).all())
            raise NetworkError(
                f"the gradient of `{name}` in network `{self.name}` is not finite; it was not applied",
                hint="look for NaN in the inputs and targets of this batch, or lower learning_rate",
            )
        return float(norm)

    def _blend(self, source: npt.NDArray[np.uint8], rate: float) -> None:
        if not 0.0 <= rate <= 1.0:
            raise NetworkError(f"the rate of a weight update is between 0 and 1, got {rate}")
        end = self.flat.parameter_bytes
        target = self._parameter_block()
        _native.polyak(target, source[:end].view(np.float32), target, rate)
        np.copyto(self.flat.block[end : self.flat.block_bytes], source[end : self.flat.block_bytes])

    def _variable(self, name: Any) -> Array:
        variables = self.weights_view
        if name not in variables:
            raise NetworkError(
                f"network `{self.name}` has no variable `{name}`", hint=f"there are: {', '.join(variables)}"
            )
        return variables[name]

    def _parameter_block(self) -> Floats:
        return self.flat.block[: self.flat.parameter_bytes].view(np.float32)

    def _gradient_block(self) -> Floats:
        return aligned_block(self.flat.parameter_bytes).view(np.float32)


def _check_fit(views: Sequence[Array], given: Sequence[Array], what: str) -> None:
    shapes, expected = [np.shape(array) for array in given], [view.shape for view in views]
    if shapes != expected:
        raise NetworkError(
            f"{what} do not fit: shapes {shapes}, expected {expected}",
            hint="take them from an identical network",
        )
