"""A network that can be trained and asked, whatever library computes it: Coach's `Architecture`.

Arrays go in and out; `TorchArchitecture` is the implementation. The cycle of training is

    accumulate_gradients(inputs, targets)        forward, loss, backward, clip, add to `accumulated_gradients`
    apply_gradients(accumulated_gradients)       one optimizer step
    reset_accumulated_gradients()

and `train_on_batch` is all three. Gradients of several batches are added up; averaging them is what `scaler`
is for.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from hive.networks.parameters import NetworkParameters, network_parameters_of
from hive.networks.spaces import Spaces

__all__ = ["Architecture", "Array", "Inputs", "Targets", "TrainingResult"]

Array = npt.NDArray[Any]
Inputs = Mapping[str, Array]
Targets = Array | Sequence[Array] | Callable[[tuple[Array, ...]], Sequence[Array]]
TrainingResult = tuple[float, list[float], float, list[Any]]


class Architecture(ABC):
    """A trainable network with weights of its own.

    agent_parameters: a NetworkParameters, a mapping from network names to them, or an object with such a
        mapping as `network_wrappers`.
    spaces: the inputs and the action the network is built for.
    name: of the network; the part before a `/` picks the parameters from a mapping.
    """

    def __init__(self, agent_parameters: Any, spaces: Spaces, name: str = "") -> None:
        self.network_parameters: NetworkParameters = network_parameters_of(agent_parameters, name)
        self.spaces = spaces
        self.name = name

    @property
    @abstractmethod
    def accumulated_gradients(self) -> list[Array]:
        """The accumulated gradient of every parameter, live, in the order of `get_weights`' first entries."""

    @abstractmethod
    def accumulate_gradients(
        self,
        inputs: Inputs,
        targets: Targets,
        additional_fetches: Sequence[Any] | None = None,
        importance_weights: Array | Sequence[Array] | None = None,
        no_accumulation: bool = False,
    ) -> TrainingResult:
        """Adds the gradient of the loss on a batch to `accumulated_gradients`; weights do not change.

        inputs: name -> array [N, *shape]: the inputs of the spaces, and for output i (counted over all heads
            and their copies) that needs more for its loss `output_<i>_0`, for a policy or Q head the actions, and
            `output_<i>_1`, for a PPO head their old log probabilities. A recurrent network takes `recurrent_state`
            and `episode_starts`, see `hive.networks.recurrent`; it keeps no state itself.
        targets: for each output an array [N], of some heads [N, *target_shape] (a single array if there is one
            output), or a function of the tuple of outputs, called between forward and loss, that returns them.
        additional_fetches: what to return besides, as `predict`'s `outputs` (a number) or as
            `get_variable_value`'s `variable` (a name).
        importance_weights: [N], multiplies each sample's loss; or a list with one such array for each output.
        no_accumulation: replace the accumulated gradients instead of adding to them.

        Returns (total_loss, losses, norm_unclipped_grads, fetched): the sum of all losses; the weighted loss
        of every output, then the regularisation loss if there is one; the global norm of this batch's
        gradient before clipping; the fetched values. Raises NetworkError, and accumulates nothing, for arrays of
        another shape or kind, and if an input or the gradient is not finite.
        """

    @abstractmethod
    def apply_gradients(self, gradients: Sequence[Array], scaler: float = 1.0) -> None:
        """One optimizer step with `gradients` (as `accumulated_gradients`, of this or an identical network).

        `scaler` multiplies them; the arrays themselves are not changed. The step is counted once.
        Raises NetworkError, and changes nothing, if they do not fit, or they or the new weights are not finite.
        """

    def apply_and_reset_gradients(self, gradients: Sequence[Array], scaler: float = 1.0) -> None:
        """`apply_gradients`, then `reset_accumulated_gradients`."""
        self.apply_gradients(gradients, scaler)
        self.reset_accumulated_gradients()

    @abstractmethod
    def reset_accumulated_gradients(self) -> None:
        """Sets all accumulated gradients to 0, whatever they were."""

    @abstractmethod
    def get_weights(self) -> list[Array]:
        """Copies of all parameters, then of all buffers."""

    @abstractmethod
    def set_weights(self, weights: Sequence[Array], rate: float = 1.0) -> None:
        """new parameter = rate * given + (1 - rate) * old; buffers are copied.

        `weights` as from `get_weights`. A reader in another thread sees all of the change or nothing. Raises
        NetworkError, and changes nothing, if they do not fit or parameters are not finite.
        """

    @abstractmethod
    def predict(
        self,
        inputs: Inputs,
        outputs: Sequence[int] | None = None,
        squeeze_output: bool = True,
        initial_feed_dict: Inputs | None = None,
    ) -> Any:
        """The outputs for a batch, without gradients: one for each head, then a recurrent network's next state.

        Asking twice gives the same answer. Raises NetworkError for inputs that do not fit and unknown outputs.

        inputs: name -> array [N, *shape]. initial_feed_dict: more of them.
        outputs: which outputs to return, by number; None: all.
        squeeze_output: return a single output as itself instead of as a tuple of one.
        """

    @staticmethod
    @abstractmethod
    def parallel_predict(sess: Any, network_input_tuples: Sequence[tuple[Architecture, Inputs]]) -> tuple[Array, ...]:
        """The outputs of several networks, or of one for several inputs, in order and flat.

        sess: a session in Coach; not used here. Inputs of one network are one batch, if its rows are independent.
        Raises NetworkError for what is no pair of a network and inputs, and as `predict`.
        """

    def train_on_batch(
        self,
        inputs: Inputs,
        targets: Targets,
        scaler: float = 1.0,
        additional_fetches: Sequence[Any] | None = None,
        importance_weights: Array | Sequence[Array] | None = None,
    ) -> TrainingResult:
        """`accumulate_gradients`, then `apply_and_reset_gradients`; returns what the former returns."""
        result = self.accumulate_gradients(inputs, targets, additional_fetches, importance_weights)
        self.apply_and_reset_gradients(self.accumulated_gradients, scaler)
        return result

    @abstractmethod
    def get_variable_value(self, variable: Any) -> Array:
        """A copy of the parameter or buffer of that name, for example `heads.0.kl_coefficient`."""

    @abstractmethod
    def set_variable_value(self, assign_op: Any, value: np.ndarray, placeholder: Any = None) -> None:
        """Sets the parameter or buffer named `assign_op`. `placeholder`: for other libraries, not used.

        Raises NetworkError, and changes nothing, for an unknown name and a value that does not fit or is not finite.
        """

    @abstractmethod
    def set_is_training(self, state: bool) -> None:
        """Switches layers such as dropout between training (True) and evaluation (False)."""
