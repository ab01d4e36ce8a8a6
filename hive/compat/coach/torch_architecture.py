"""The `Architecture` that computes with torch, on one flat block of weights.

    inputs ─ module ─ outputs ─ heads' losses ─ backward ─ gradient block ─ clip ─ accumulated block
                                                                                        │
    weights block <── if finite ── spare block <── native optimizer, moments ───────────┘

It trains in one process, in place, with the FlatParameters and FlatOptimizer of a run.

Every method that reads or writes weights holds the network's lock, so a thread that predicts sees all of an update
or nothing of it. The arrays of `weights_view` are live and not protected by the lock.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from hive import _native
from hive.compat.coach.architecture import Architecture, Array, Inputs, Targets, TrainingResult
from hive.compat.coach.arrays import (
    checked_inputs,
    chosen_outputs,
    first_not_finite,
    is_output_number,
    merged_inputs,
    refuse_misfits,
)
from hive.compat.coach.losses import caller_array, head_loss, l2_loss, weighted_losses
from hive.compat.coach.optimization import LimitedMemoryBFGS, clip_gradient
from hive.compat.coach.parallel import predict_in_parallel
from hive.errors import NetworkError
from hive.networks.build.embedders import network_inputs
from hive.networks.build.head_kinds import make_head
from hive.networks.build.layers import seeded
from hive.networks.build.naming import set_training
from hive.networks.build.network import Observations, heads_of
from hive.networks.build.spaces import InputSpec, Spaces
from hive.networks.rows.inputs import dotted_name
from hive.networks.weights.flat import Floats, aligned_block, keep_frozen, polyak
from hive.networks.weights.optimizers import FlatOptimizer
from hive.networks.weights.wrapper import BoundNetwork
from hive.runtime.process.user_code.torch_state import hive_torch

_numbers = itertools.count()  # numbers of networks; two locks are taken in this order, which prevents deadlocks


class TorchArchitecture(Architecture):
    """A torch network, `module`, with its weights in one block, `flat`. `Architecture` documents the methods.

    generator: the source of the initial weights; None: a generator seeded with 0, so that equal parameters
        give equal networks.

    `updates` counts the steps of this network's optimizer and determines the learning rate. `state_width` is the
    width of a recurrent network's state, else 0. Raises NetworkError for invalid parameters.
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
        network = BoundNetwork(parameters, spaces, generator or torch.Generator().manual_seed(0))
        self.module, self.flat = network.module, network.flat
        self.heads = heads_of(self.module) or self._heads_for_outputs()
        huber = parameters.replace_mse_with_huber_loss
        self._losses = [head_loss(head, huber=huber) for head in self.heads]
        self.inputs = network_inputs(parameters, spaces)
        self.state_width = int(getattr(self.module, "state_width", 0))
        self.lock = threading.RLock()
        self._number = next(_numbers)
        settings = parameters.optimizer_settings()
        self._optimizer = LimitedMemoryBFGS(settings) if settings.name == "lbfgs" else FlatOptimizer(settings)
        self._weight = 0.0  # number of accumulated batches, or of samples with gradient_averaging = "samples"
        self.updates = 0

    # The first training allocates these blocks: a network that only acts needs none of them.

    @functools.cached_property
    def _gradient(self) -> Floats:
        return self._gradient_block()

    @functools.cached_property
    def _accumulated(self) -> Floats:
        return self._gradient_block()

    @functools.cached_property
    def _spare(self) -> Floats:
        return self._gradient_block()

    @functools.cached_property
    def _moments(self) -> list[Floats]:
        return [self._gradient_block() for _ in range(self._optimizer.moment_blocks)]

    @functools.cached_property
    def _spare_moments(self) -> list[Floats]:
        return [self._gradient_block() for _ in range(self._optimizer.moment_blocks)]

    @functools.cached_property
    def _reduction(self) -> _native.GradAccumulator:
        """The reduction of hive.gradients, over whole gradient blocks, float32 [parameter_elements]."""
        reduction = _native.GradAccumulator()
        reduction.lay_out(["float32"], [self.flat.parameter_elements])
        return reduction

    @property
    def accumulated_gradients(self) -> list[Array]:
        return self.flat.gradient_arrays(self._accumulated)

    @property
    def weights_view(self) -> dict[str, Array]:
        """Live views of all parameters and buffers, by name."""
        return self.flat.arrays(self.flat.block)

    def initial_state(self, sequences: int) -> Array:
        """Return the initial `recurrent_state` of `sequences` episodes: zeros float32 [sequences, state_width]."""
        return np.zeros((sequences, self.state_width), np.float32)

    def accumulate_gradients(
        self,
        inputs: Inputs,
        targets: Targets,
        additional_fetches: Sequence[Any] | None = None,
        importance_weights: Array | Sequence[Array] | None = None,
        no_accumulation: bool = False,
    ) -> TrainingResult:
        with self.lock, torch.inference_mode(False), torch.enable_grad():
            fetches = [fetch if is_output_number(fetch) else self._named(fetch) for fetch in additional_fetches or ()]
            observations, samples = self._observations(inputs, training=True)
            outputs = self.module(observations)
            chosen_outputs([fetch for fetch in fetches if is_output_number(fetch)], len(outputs), self.heads, self.name)
            losses = weighted_losses(self._losses, outputs, inputs, targets, importance_weights)
            if self.network_parameters.l2_regularization:
                losses.append(l2_loss(self.module, self.network_parameters.l2_regularization))
            total = torch.stack(losses).sum()
            if not total.requires_grad:
                raise NetworkError(
                    f"network `{self.name}` has nothing to learn: no loss depends on a trainable parameter",
                    hint="leave requires_grad of some of its parameters True",
                )
            self.flat.release_gradients()
            torch.autograd.backward(total)
            self.flat.gradient(self._gradient)
            self.flat.release_gradients()
            norm = self._norm_of(self._gradient, lambda: first_not_finite(inputs, targets, importance_weights))
            if self.network_parameters.clip_gradients and self.network_parameters.clip_stage == "batch":
                self._clip(norm)
            self._accumulate(samples, replace=no_accumulation)
            fetched = [
                outputs[fetch].detach().numpy().copy() if is_output_number(fetch) else self.get_variable_value(fetch)
                for fetch in fetches
            ]
        return float(total.detach()), [float(loss.detach()) for loss in losses], norm, fetched

    def apply_gradients(self, gradients: Sequence[Array], scaler: float = 1.0) -> None:
        self.apply_gradients_to(self, gradients, scaler)

    def apply_gradients_to(self, network: TorchArchitecture, gradients: Sequence[Array], scaler: float = 1.0) -> None:
        """Make one step of this network's optimizer on the weights of an identical `network`.

        Arguments and errors are those of `apply_gradients`.
        """
        with _locked(self, network):
            self._refuse_other_layout(network)
            frozen = network.flat.frozen()
            self._take(gradients, frozen)
            norm = self._norm_of(self._gradient)
            if self.network_parameters.clip_stage == "update" and self.network_parameters.clip_gradients:
                with np.errstate(over="ignore", invalid="ignore"):  # the step returns whether its result is finite
                    self._gradient *= np.float32(scaler)
                    self._clip(abs(scaler) * norm)
                scaler = 1.0
            weights = network._parameter_block()
            # The step writes spare blocks, so a non-finite result leaves weights and moments unchanged.
            finite = self._optimizer.step(
                weights,
                self._spare,
                self._gradient,
                self._moments,
                self._spare_moments,
                step=self.updates + 1,
                learning_rate=self.network_parameters.learning_rate_at(self.updates),
                gradient_scale=scaler,
            )
            if not finite:
                raise NetworkError(
                    f"update {self.updates + 1} of network `{network.name}` is not finite; it was not applied",
                    hint=f"the gradient's norm is {norm:.3g}, scaled by {scaler:g}; lower learning_rate "
                    "or set clip_gradients",
                )
            keep_frozen(frozen, [weights, *self._moments], [self._spare, *self._spare_moments])
            np.copyto(weights, self._spare)
            self._moments, self._spare_moments = self._spare_moments, self._moments
            self.updates += 1

    def reset_accumulated_gradients(self) -> None:
        with self.lock:
            self._accumulated.fill(0.0)
            self._weight = 0.0

    def get_weights(self) -> list[Array]:
        with self.lock:
            return [array.copy() for array in self.weights_view.values()]

    def set_weights(self, weights: Sequence[Array], rate: float = 1.0) -> None:
        given = aligned_block(self.flat.block_bytes)
        views = list(self.flat.arrays(given).values())
        refuse_misfits(views, weights, f"weights of network `{self.name}`")
        for view, weight in zip(views, weights, strict=True):
            view[...] = caller_array(weight, "a weight")
        if not _native.norm_and_finite(given[: self.flat.parameter_bytes].view(np.float32))[1]:
            raise NetworkError(f"weights of network `{self.name}` are not finite; they were not set")
        self._blend(given, rate)

    def copy_weights_from(self, network: TorchArchitecture, rate: float = 1.0) -> None:
        """Do `set_weights(network.get_weights(), rate)` for an identical network, in one pass over blocks.

        Raises NetworkError for a network of another layout and a rate outside of 0 to 1.
        """
        with _locked(self, network):
            self._refuse_other_layout(network)
            self._blend(network.flat.block, rate)

    def predict(
        self,
        inputs: Inputs,
        outputs: Sequence[int] | None = None,
        squeeze_output: bool = True,
        initial_feed_dict: Inputs | None = None,
    ) -> Any:
        with self.lock, torch.inference_mode():
            results = self.module(self._observations(merged_inputs(inputs, initial_feed_dict))[0])
        numbers = chosen_outputs(outputs, len(results), self.heads, self.name)
        chosen = tuple(results[number].numpy() for number in numbers)
        return chosen[0] if squeeze_output and len(chosen) == 1 else chosen

    @staticmethod
    def parallel_predict(sess: Any, network_input_tuples: Sequence[tuple[Architecture, Inputs]]) -> tuple[Array, ...]:
        return predict_in_parallel(network_input_tuples)

    @property
    def rows_are_independent(self) -> bool:
        """Whether the outputs of a sample do not depend on the other samples of its batch."""
        normalized = torch.nn.modules.batchnorm._BatchNorm
        return not self.state_width and not any(
            isinstance(child, normalized) and (child.training or child.running_mean is None)
            for child in self.module.modules()
        )

    def get_variable_value(self, variable: Any) -> Array:
        with self.lock:
            return self._variable(variable).copy()

    def set_variable_value(self, assign_op: Any, value: np.ndarray, placeholder: Any = None) -> None:
        view = self._variable(assign_op)
        refuse_misfits([view], [value], f"variable `{assign_op}`")
        if not np.isfinite(value).all():
            raise NetworkError(f"the value for variable `{assign_op}` is not finite; it was not set")
        with self.lock:
            view[...] = value

    def set_is_training(self, state: bool) -> None:
        set_training(self.module, state)

    @hive_torch()
    def _heads_for_outputs(self) -> list[Any]:
        """Return heads that compute the losses of a user-defined module; their weights, if any, are not used."""
        parameters = self.network_parameters
        with seeded(torch.Generator()):
            return [make_head(head, self.spaces.action) for head in parameters.heads()]

    def _refuse_other_layout(self, network: TorchArchitecture) -> None:
        if network.flat.parameters + network.flat.buffers != self.flat.parameters + self.flat.buffers:
            raise NetworkError(f"network `{network.name}` is not built like `{self.name}`")

    def _observations(self, inputs: Inputs, *, training: bool = False) -> tuple[Observations, int]:
        """Return the module's argument and the number of samples; raises NetworkError for inputs that do not fit."""
        given: dict[str, InputSpec] = {dotted_name(name): spec for name, spec in self.inputs.items()}
        needed = list(self.network_parameters.input_embedders_parameters or given)
        return checked_inputs(inputs, given, needed, self._losses, self.state_width, self.name, training=training)

    def _take(self, gradients: Sequence[Array], frozen: Sequence[slice]) -> None:
        """Copy `gradients` into the gradient block, and zeros for frozen parameters."""
        views = self.flat.gradient_arrays(self._gradient)
        refuse_misfits(views, gradients, f"gradients of network `{self.name}`")
        for view, gradient in zip(views, gradients, strict=True):
            view[...] = caller_array(gradient, "a gradient")
        for elements in frozen:
            self._gradient[elements] = 0.0

    def _accumulate(self, samples: int, *, replace: bool) -> None:
        """Add the gradient block to the accumulated sum or average, or replace it."""
        averaging = self.network_parameters.gradient_averaging
        weight = float(samples) if averaging == "samples" else 1.0
        held = 0.0 if replace else self._weight
        if averaging != "sum" and held > 0.0:
            self._reduce([held, weight], held + weight)
        elif averaging != "sum" or replace:
            np.copyto(self._accumulated, self._gradient)
        else:
            self._reduce([1.0, 1.0], 1.0)
        self._weight = held + weight

    def _reduce(self, weights: Sequence[float], divisor: float) -> None:
        """Set the accumulated block to (w0 * itself + w1 * gradient block) / divisor. Its memory does not move."""
        blocks = [block.view(np.uint8) for block in (self._accumulated, self._gradient)]
        self._reduction.reduce(blocks, weights, divisor, self._spare.view(np.uint8))
        np.copyto(self._accumulated, self._spare)

    def _clip(self, norm: float) -> None:
        """Clip the gradient block as the parameters require; `norm` is its global norm."""
        parameters = self.network_parameters
        parts = self.flat.gradient_arrays(self._gradient)
        clip_gradient(self._gradient, parts, norm, parameters.clip_gradients, parameters.gradients_clipping_method)

    def _norm_of(self, gradient: Floats, look_for_cause: Callable[[], str] = str) -> float:
        """Return the global norm. Raises NetworkError, which names the first non-finite parameter and the cause."""
        norm, finite = _native.norm_and_finite(gradient)
        if not finite:
            parts = zip(self.flat.names, self.flat.gradient_arrays(gradient), strict=True)
            name = next(name for name, part in parts if not np.isfinite(part).all())
            cause = look_for_cause()
            raise NetworkError(
                f"the gradient of `{name}` in network `{self.name}` is not finite; it was not applied"
                + (f": {cause} is not finite" if cause else ""),
                hint="look for NaN in the inputs and targets of this batch, or lower learning_rate",
            )
        return float(norm)

    def _blend(self, source: npt.NDArray[np.uint8], rate: float) -> None:
        if not 0.0 <= rate <= 1.0:
            raise NetworkError(f"the rate of a weight update must be from 0 to 1, got {rate}")
        end = self.flat.parameter_bytes
        with self.lock:
            weights, given = self._parameter_block(), source[:end].view(np.float32)
            if rate:
                polyak(weights, given, weights, rate, self.flat.frozen())
            np.copyto(self.flat.block[end : self.flat.block_bytes], source[end : self.flat.block_bytes])

    def _named(self, name: Any) -> Any:
        self._variable(name)
        return name

    def _variable(self, name: Any) -> Array:
        variables = self.weights_view
        if not isinstance(name, str) or name not in variables:
            raise NetworkError(
                f"network `{self.name}` has no variable `{name}`", hint=f"there are: {', '.join(variables)}"
            )
        return variables[name]

    def _parameter_block(self) -> Floats:
        return self.flat.block[: self.flat.parameter_bytes].view(np.float32)

    def _gradient_block(self) -> Floats:
        return aligned_block(self.flat.parameter_bytes).view(np.float32)


@contextlib.contextmanager
def _locked(*networks: TorchArchitecture) -> Iterator[None]:
    """Hold the locks of several networks, taken in the order in which they were built."""
    with contextlib.ExitStack() as stack:
        for network in sorted(networks, key=lambda network: network._number):
            stack.enter_context(network.lock)
        yield
