"""What a network is made of and how it is trained, as typed values with Coach's names.

`NetworkParameters()` alone is usable: every input of the spaces gets an embedder, a middleware of two tanh
layers of 64 follows, and a policy and a value head end it. Assigning an attribute that does not exist raises
AttributeError, and a value that a field cannot have raises NetworkError; see `field_rules`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, ClassVar, Literal

from torch import nn

from hive.errors import NetworkError
from hive.networks.field_rules import CheckedFields, Rule, Rules
from hive.networks.layers import ACTIVATIONS
from hive.networks.optimizers import BETA, EPSILON, MOMENTUM, OptimizerSettings
from hive.networks.spaces import ActionSpec, Spaces

__all__ = [
    "EmbeddingMergerType",
    "GradientClippingMethod",
    "HeadParameters",
    "InputEmbedderParameters",
    "LSTMMiddlewareParameters",
    "MiddlewareParameters",
    "NetworkParameters",
    "network_parameters_of",
]


class GradientClippingMethod(Enum):
    """What `clip_gradients` limits: the norm of the whole gradient, of each parameter's, or each element."""

    ClipByGlobalNorm = 0
    ClipByNorm = 1
    ClipByValue = 2


class EmbeddingMergerType(Enum):
    """How the embeddings of several inputs become one: side by side, or added, if equally wide."""

    Concat = 0
    Sum = 1


@dataclass(slots=True)
class InputEmbedderParameters(CheckedFields):
    """An embedder; the input decides whether it is dense (vectors) or convolutional (images).

    widths: dense layers after the input or the convolutions; None: the usual one for an image, else none.
    """

    RULES: ClassVar[Rules] = {"widths": Rule.widths().or_none(), "activation": Rule.choice(ACTIVATIONS)}

    widths: Sequence[int] | None = None
    activation: str = "relu"


@dataclass(slots=True)
class MiddlewareParameters(CheckedFields):
    """Dense layers of these widths between the merged embeddings and the heads; `()` for none."""

    RULES: ClassVar[Rules] = {"widths": Rule.widths(), "activation": Rule.choice(ACTIVATIONS)}

    widths: Sequence[int] = (64, 64)
    activation: str = "tanh"


@dataclass(slots=True)
class LSTMMiddlewareParameters(MiddlewareParameters):
    """Dense layers as above, then an LSTM; what it remembers is an input and an output, see `recurrent`."""

    RULES: ClassVar[Rules] = {**MiddlewareParameters.RULES, "number_of_lstm_cells": Rule.whole(1)}

    number_of_lstm_cells: int = 256


@dataclass(slots=True)
class HeadParameters(CheckedFields):
    """A head. Heads with more parameters than these have a class of their own, see `head_parameters`.

    name: `"value"`, `"q"`, `"dueling_q"` or `"policy"`; or that of such a class.
    loss_weight: factor of its loss in the sum.
    rescale_gradient_from_head_by_factor: factor of the gradient that flows from it into the layers below: 0
        blocks it, a negative one reverses it. It is a constant, neither trained nor regularised.
    num_output_head_copies: so many independent heads, each with its own output, target and loss.
    cls: hive's own: makes the head of these parameters and the action, in the place of the one that `name` stands for.
        Its output has the same shape.
    """

    RULES: ClassVar[Rules] = {
        "name": Rule.name(),
        "loss_weight": Rule.number(),
        "rescale_gradient_from_head_by_factor": Rule.number(),
        "num_output_head_copies": Rule.whole(1),
        "cls": Rule.function().or_none(),
    }

    name: str
    loss_weight: float = 1.0
    rescale_gradient_from_head_by_factor: float = 1.0
    num_output_head_copies: int = 1
    cls: Callable[[HeadParameters, ActionSpec], nn.Module] | None = None


OPTIMIZERS = ("Adam", "AdamW", "RMSProp", "SGD", "LBFGS")


@dataclass(slots=True)
class NetworkParameters(CheckedFields):
    """Every parameter of Coach's class of this name, and at the end hive's own.

    Workers are those of a `WorkerGroup` that train one global network; a NetworkWrapper without one is alone.

    force_cpu: a NetworkWrapper lives on the CPU whatever devices it is given.
    async_training: each worker's gradients are applied as soon as it has them; otherwise all workers wait for
        each other and their gradients are applied together.
    shared_optimizer: one optimizer, that of the global network, serves all; otherwise each online network
        applies its gradients to the global weights with its own.
    scale_down_gradients_by_number_of_workers_for_sync_training: where workers wait for each other, apply the
        average of their gradients instead of the sum.
    clip_gradients: limit of the gradient, at `clip_stage`; None or 0: no clipping.
    gradients_clipping_method: what that limits.
    l2_regularization: adds this times half the sum of squares of all trainable weight matrices and kernels to
        the loss, once, whatever the number of heads; biases and vectors are left out.
    learning_rate, learning_rate_decay_rate, learning_rate_decay_steps: see `learning_rate_at`.
    input_embedders_parameters: input name -> embedder, used in order of the names; empty: all inputs, with
        defaults. Names are those of the spaces' observations, and `action` for a critic of states and actions.
    embedding_merger_type: how several embeddings become one.
    middleware_parameters: the layers between embedders and heads; None: `MiddlewareParameters()`.
    heads_parameters: the heads, in the order of the outputs; empty: a policy and a value.
    use_separate_networks_per_head: every head gets embedders and a middleware of its own.
    optimizer_type: Adam, AdamW, RMSProp, SGD or LBFGS.
    optimizer_epsilon, adam_optimizer_beta1, adam_optimizer_beta2, rms_prop_optimizer_decay: of that
        optimizer. Coach's defaults for epsilon and beta2, 1e-4 and 0.99, are not those of other libraries.
    batch_size: how many samples `NetworkWrapper.train_in_batches` makes an update of.
    replace_mse_with_huber_loss: the losses of value and Q heads are Huber's with delta 1 instead of the square.
    create_target_network: what `has_target = None` of a NetworkWrapper means.
    tensorflow_support: accepted so that presets load; without meaning here.
    weight_decay: decoupled in AdamW, added to the gradient in the others. momentum: of RMSProp and SGD.
    module: builds your own module from the spaces, instead of everything above that describes layers.
    gradient_averaging: how the gradients of several batches become the accumulated one: their `"sum"` (Coach),
        their `"mean"`, or weighted by `"samples"`, which is the gradient of one batch of all of them.
    normalize_observations, normalize_rewards: see `normalization`; whoever trains the network merges the statistics.
    clip_stage: clip each `"batch"`'s gradient before it is accumulated (Coach), or what an `"update"` applies,
        once, after all accumulation, averaging over workers and scaling.
    """

    RULES: ClassVar[Rules] = {
        "force_cpu": Rule.flag(),
        "async_training": Rule.flag(),
        "shared_optimizer": Rule.flag(),
        "scale_down_gradients_by_number_of_workers_for_sync_training": Rule.flag(),
        "clip_gradients": Rule.number(0).or_none(),
        "gradients_clipping_method": Rule.member(GradientClippingMethod),
        "l2_regularization": Rule.number(0),
        "learning_rate": Rule.number(0),
        "learning_rate_decay_rate": Rule.number(0),
        "learning_rate_decay_steps": Rule.whole(0),
        "input_embedders_parameters": Rule.named_parts(InputEmbedderParameters),
        "embedding_merger_type": Rule.member(EmbeddingMergerType),
        "middleware_parameters": Rule.part(MiddlewareParameters).or_none(),
        "heads_parameters": Rule.parts(HeadParameters),
        "use_separate_networks_per_head": Rule.flag(),
        "optimizer_type": Rule.choice(OPTIMIZERS, any_case=True),
        "optimizer_epsilon": EPSILON,
        "adam_optimizer_beta1": BETA,
        "adam_optimizer_beta2": BETA,
        "rms_prop_optimizer_decay": BETA,
        "batch_size": Rule.whole(1),
        "replace_mse_with_huber_loss": Rule.flag(),
        "create_target_network": Rule.flag(),
        "tensorflow_support": Rule.flag(),
        "weight_decay": Rule.number(0),
        "momentum": MOMENTUM,
        "module": Rule.function().or_none(),
        "normalize_observations": Rule.flag(),
        "normalize_rewards": Rule.flag(),
        "gradient_averaging": Rule.choice(("sum", "mean", "samples")),
        "clip_stage": Rule.choice(("batch", "update")),
    }

    force_cpu: bool = False
    async_training: bool = False
    shared_optimizer: bool = True
    scale_down_gradients_by_number_of_workers_for_sync_training: bool = True
    clip_gradients: float | None = None
    gradients_clipping_method: GradientClippingMethod = GradientClippingMethod.ClipByGlobalNorm
    l2_regularization: float = 0
    learning_rate: float = 0.00025
    learning_rate_decay_rate: float = 0
    learning_rate_decay_steps: int = 0
    input_embedders_parameters: dict[str, InputEmbedderParameters] = field(default_factory=dict)
    embedding_merger_type: EmbeddingMergerType = EmbeddingMergerType.Concat
    middleware_parameters: MiddlewareParameters | None = None
    heads_parameters: list[HeadParameters] = field(default_factory=list)
    use_separate_networks_per_head: bool = False
    optimizer_type: str = "Adam"
    optimizer_epsilon: float = 0.0001
    adam_optimizer_beta1: float = 0.9
    adam_optimizer_beta2: float = 0.99
    rms_prop_optimizer_decay: float = 0.9
    batch_size: int = 32
    replace_mse_with_huber_loss: bool = False
    create_target_network: bool = False
    tensorflow_support: bool = True
    weight_decay: float = 0.0
    momentum: float = 0.0
    module: Callable[[Spaces], nn.Module] | None = None
    normalize_observations: bool = False
    normalize_rewards: bool = False
    gradient_averaging: Literal["sum", "mean", "samples"] = "sum"
    clip_stage: Literal["batch", "update"] = "batch"

    def heads(self) -> list[HeadParameters]:
        """One entry for each output, copies written out; a policy and a value if none are given."""
        heads = self.heads_parameters or [HeadParameters("policy"), HeadParameters("value")]
        return [head for head in heads for _ in range(head.num_output_head_copies)]

    def refuse_impossible(self) -> None:
        """Raises NetworkError for fields that break their rules, also those of the parts, or contradict each other."""
        self.check_fields()
        middleware = [] if self.middleware_parameters is None else [self.middleware_parameters]
        for part in (*self.input_embedders_parameters.values(), *middleware, *self.heads_parameters):
            part.check_fields()
        self.learning_rate_at(0)

    def learning_rate_at(self, update: int) -> float:
        """The learning rate of update number `update`, counted from 0.

        `learning_rate * decay_rate ** (update // decay_steps)`: a staircase, as in Coach. Rate 0: no decay.
        """
        if not self.learning_rate_decay_rate:
            return self.learning_rate
        if self.learning_rate_decay_steps < 1:
            raise NetworkError(
                f"learning_rate_decay_rate = {self.learning_rate_decay_rate} needs learning_rate_decay_steps",
                hint="set learning_rate_decay_steps to the number of updates between two decays",
            )
        decays = update // self.learning_rate_decay_steps
        return self.learning_rate * self.learning_rate_decay_rate**decays

    def optimizer_settings(self) -> OptimizerSettings:
        """All that the optimizer needs but the learning rate."""
        return OptimizerSettings(
            name=self.optimizer_type.lower(),
            betas=(self.adam_optimizer_beta1, self.adam_optimizer_beta2),
            epsilon=self.optimizer_epsilon,
            decay=self.rms_prop_optimizer_decay,
            momentum=self.momentum,
            weight_decay=self.weight_decay,
        )


def network_parameters_of(agent_parameters: Any, name: str) -> NetworkParameters:
    """The parameters of network `name` (what precedes a `/` in it).

    agent_parameters: a NetworkParameters, a mapping from names to them, or an object with such a mapping as
        `network_wrappers` (Coach's AgentParameters).
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
