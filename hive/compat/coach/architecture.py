"""The interface of a trainable network, independent of the library that computes it: Coach's `Architecture`.

Arguments and results are NumPy arrays; `TorchArchitecture` is the implementation. The cycle of training is

    accumulate_gradients(inputs, targets)        forward, loss, backward, clip, add to `accumulated_gradients`
    apply_gradients(accumulated_gradients)       one optimizer step
    reset_accumulated_gradients()

and `train_on_batch` does all three. Gradients of several batches are summed; pass `scaler` = 1 / batches to apply
their average.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from hive.errors import NetworkError
from hive.networks.build.parameters import NetworkParameters
from hive.networks.build.spaces import Spaces

Array = npt.NDArray[Any]
Inputs = Mapping[str, Array]
"""The arrays [N, ...] of a batch, by the names of the spaces' observations and of further inputs of the heads."""

Targets = Array | Sequence[Array] | Callable[[tuple[Array, ...]], Sequence[Array]]
"""The targets [N, ...] of each head, or a function that computes them from the outputs."""

TrainingResult = tuple[float, list[float], float, list[Any]]
"""The whole loss, those of the heads, the norm of the gradient before clipping, and the additional fetches."""


class Architecture(ABC):
    """A trainable network that owns its weights.

    agent_parameters: a NetworkParameters, a mapping from network names to them, or an object with such a
        mapping as `network_wrappers`.
    spaces: the inputs and the action that the network is built for.
    name: the network's name; the part before a `/` selects the parameters from a mapping.

    Raises NetworkError if `agent_parameters` has no parameters for this name.
    """

    def __init__(self, agent_parameters: Any, spaces: Spaces, name: str = "") -> None:
        self.network_parameters: NetworkParameters = network_parameters_of(agent_parameters, name)
        self.spaces = spaces
        self.name = name

    @property
    @abstractmethod
    def accumulated_gradients(self) -> list[Array]:
        """The accumulated gradient of every parameter, each of its shape, in the order of `get_weights`; live views."""

    @abstractmethod
    def accumulate_gradients(
        self,
        inputs: Inputs,
        targets: Targets,
        additional_fetches: Sequence[Any] | None = None,
        importance_weights: Array | Sequence[Array] | None = None,
        no_accumulation: bool = False,
    ) -> TrainingResult:
        """Add the gradient of the loss on a batch to `accumulated_gradients`; weights do not change.

        inputs: name -> array [N, *shape]: the inputs of the spaces, and the extra inputs of the losses. The loss of
            output i (counted over all heads and their copies) may need `output_<i>_0` (a policy or Q head: the
            actions) and `output_<i>_1` (a PPO head: their old log probabilities). A recurrent network also takes
            `recurrent_state` and `episode_starts`, see `hive.networks.rows.recurrent`; it stores no state itself.
        targets: for each output an array [N], for some heads [N, *target_shape] (a single array if there is one
            output). Or a function from the tuple of outputs to such arrays, called between forward pass and loss.
        additional_fetches: further results, each an output's number (as in `predict`) or a variable's name (as in
            `get_variable_value`).
        importance_weights: [N], multiplies each sample's loss; or a list with one such array for each output.
        no_accumulation: replace the accumulated gradients instead of adding to them.

        Return (total_loss, losses, norm_unclipped_grads, fetched): the sum of all losses; the weighted loss
        of every output, then the regularization loss if there is one; the global norm of this batch's
        gradient before clipping; the fetched values. Raises NetworkError, and accumulates nothing, for arrays of
        another shape or kind, and if an input or the gradient is not finite.
        """

    @abstractmethod
    def apply_gradients(self, gradients: Sequence[Array], scaler: float = 1.0) -> None:
        """Make one optimizer step with `gradients` (the `accumulated_gradients` of this or an identical network).

        `scaler` multiplies the gradients; the arrays themselves are not changed. Raises NetworkError, and changes
        nothing, if the gradients do not fit the network, or if they or the new weights are not finite.
        """

    def apply_and_reset_gradients(self, gradients: Sequence[Array], scaler: float = 1.0) -> None:
        """Call `apply_gradients`, then `reset_accumulated_gradients`."""
        self.apply_gradients(gradients, scaler)
        self.reset_accumulated_gradients()

    @abstractmethod
    def reset_accumulated_gradients(self) -> None:
        """Set all accumulated gradients to 0, NaN and infinities included."""

    @abstractmethod
    def get_weights(self) -> list[Array]:
        """Return copies of all parameters, then of all buffers, in the module's order."""

    @abstractmethod
    def set_weights(self, weights: Sequence[Array], rate: float = 1.0) -> None:
        """Set every parameter to rate * given + (1 - rate) * old; buffers are copied.

        weights: arrays as `get_weights` returns them. rate: from 0 to 1.

        A reader in another thread sees all of the change or nothing. Raises NetworkError, and changes nothing, if
        the arrays do not fit or are not finite.
        """

    @abstractmethod
    def predict(
        self,
        inputs: Inputs,
        outputs: Sequence[int] | None = None,
        squeeze_output: bool = True,
        initial_feed_dict: Inputs | None = None,
    ) -> Any:
        """Return the outputs for a batch, without gradients: one for each head, then a recurrent network's next state.

        A call changes no state of the network. Raises NetworkError for inputs that do not fit and unknown outputs.

        inputs: name -> array [N, *shape]. initial_feed_dict: further inputs.
        outputs: the numbers of the outputs to return; None: all.
        squeeze_output: return a single output as itself instead of as a tuple of one.
        """

    @staticmethod
    @abstractmethod
    def parallel_predict(sess: Any, network_input_tuples: Sequence[tuple[Architecture, Inputs]]) -> tuple[Array, ...]:
        """Return the outputs of several networks, or of one for several inputs, as one flat tuple in order.

        sess: a session in Coach; not used here. Inputs of one network form one batch if its rows are independent.
        Raises NetworkError for an entry that is not a pair (network, inputs), and as `predict`.
        """

    def train_on_batch(
        self,
        inputs: Inputs,
        targets: Targets,
        scaler: float = 1.0,
        additional_fetches: Sequence[Any] | None = None,
        importance_weights: Array | Sequence[Array] | None = None,
    ) -> TrainingResult:
        """Call `accumulate_gradients`, then `apply_and_reset_gradients`; return the result of the former."""
        result = self.accumulate_gradients(inputs, targets, additional_fetches, importance_weights)
        self.apply_and_reset_gradients(self.accumulated_gradients, scaler)
        return result

    @abstractmethod
    def get_variable_value(self, variable: Any) -> Array:
        """Return a copy of the parameter or buffer of that name, for example `heads.0.kl_coefficient`.

        Raises NetworkError for an unknown name.
        """

    @abstractmethod
    def set_variable_value(self, assign_op: Any, value: np.ndarray, placeholder: Any = None) -> None:
        """Set the parameter or buffer named `assign_op`. `placeholder` is TensorFlow's; it is not used.

        Raises NetworkError, and changes nothing, for an unknown name and a value that does not fit or is not finite.
        """

    @abstractmethod
    def set_is_training(self, state: bool) -> None:
        """Switch layers such as dropout between training (True) and evaluation (False)."""


def network_parameters_of(agent_parameters: Any, name: str) -> NetworkParameters:
    """Return the parameters of network `name`, of which only the part before a `/` counts.

    agent_parameters: a NetworkParameters, a mapping from names to them, or an object with such a mapping as
        `network_wrappers` (Coach's AgentParameters).

    Raises NetworkError if there are none for this name.
    """
    if isinstance(agent_parameters, NetworkParameters):
        return agent_parameters
    wrappers = getattr(agent_parameters, "network_wrappers", agent_parameters)
    if not isinstance(wrappers, Mapping):
        raise NetworkError(
            f"{type(agent_parameters).__name__} holds no network parameters",
            hint="pass a NetworkParameters, or a mapping from network names to them",
        )
    key = name.split("/")[0]
    parameters = wrappers.get(key)
    if not isinstance(parameters, NetworkParameters):
        raise NetworkError(
            f"no parameters for network `{key}`", hint=f"there are: {', '.join(map(str, wrappers)) or 'none'}"
        )
    return parameters
