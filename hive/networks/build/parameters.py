"""The parameters of a network and of its training, as typed fields with Coach's names.

`NetworkParameters()` alone is usable: it describes an embedder for every input of the spaces, a middleware of two
tanh layers of 64, and a policy and a value head. Assigning an unknown attribute raises AttributeError, and an invalid
value raises NetworkError; see `field_rules`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, ClassVar, Literal

from torch import nn

from hive.errors import NetworkError
from hive.networks.build.field_rules import CheckedFields, FieldRule, FieldRules
from hive.networks.build.layers import ACTIVATIONS, HIDDEN_GAIN
from hive.networks.build.spaces import ActionSpec, Spaces
from hive.networks.weights.optimizers import BETA, EPSILON, MOMENTUM, OptimizerSettings


class GradientClippingMethod(Enum):
    """The quantity limited by `clip_gradients`: the norm of the whole gradient, of each parameter, or each element."""

    ClipByGlobalNorm = 0
    ClipByNorm = 1
    ClipByValue = 2


class EmbeddingMergerType(Enum):
    """How the embeddings of several inputs become one: concatenated, or added, which needs equal widths."""

    Concat = 0
    Sum = 1


@dataclass(slots=True)
class InputEmbedderParameters(CheckedFields):
    """An embedder, dense for vectors and convolutional for images.

    widths: the widths of the dense layers after the input or the convolutions; None: one default layer for an image,
        none for a vector. activation: a key of `layers.ACTIVATIONS`. layer_norm: an addition of hive: normalize the
        outputs of each dense layer before its activation; convolutions are not normalized.
    """

    RULES: ClassVar[FieldRules] = {
        "widths": FieldRule.widths().or_none(),
        "activation": FieldRule.choice(ACTIVATIONS),
        "layer_norm": FieldRule.flag(),
    }

    widths: Sequence[int] | None = None
    activation: str = "relu"
    layer_norm: bool = field(default=False, kw_only=True)


@dataclass(slots=True)
class MiddlewareParameters(CheckedFields):
    """Dense layers of these widths between the merged embeddings and the heads; `()` for none.

    activation: a key of `layers.ACTIVATIONS`. layer_norm: an addition of hive: normalize the outputs of each layer
        before its activation.
    """

    RULES: ClassVar[FieldRules] = {
        "widths": FieldRule.widths(),
        "activation": FieldRule.choice(ACTIVATIONS),
        "layer_norm": FieldRule.flag(),
    }

    widths: Sequence[int] = (64, 64)
    activation: str = "tanh"
    layer_norm: bool = field(default=False, kw_only=True)


@dataclass(slots=True)
class LSTMMiddlewareParameters(MiddlewareParameters):
    """Dense layers as above, then an LSTM; its state is an input and an output of the network, see `recurrent`.

    dense_last: an addition of hive: the dense layers follow the LSTM, as in SB3-Contrib.
    """

    RULES: ClassVar[FieldRules] = {
        **MiddlewareParameters.RULES,
        "number_of_lstm_cells": FieldRule.whole(1),
        "dense_last": FieldRule.flag(),
    }

    number_of_lstm_cells: int = 256
    dense_last: bool = field(default=False, kw_only=True)


@dataclass(slots=True)
class GRUMiddlewareParameters(MiddlewareParameters):
    """An addition of hive: as LSTMMiddlewareParameters, with a GRU."""

    RULES: ClassVar[FieldRules] = {
        **MiddlewareParameters.RULES,
        "number_of_gru_cells": FieldRule.whole(1),
        "dense_last": FieldRule.flag(),
    }

    number_of_gru_cells: int = 256
    dense_last: bool = field(default=False, kw_only=True)


@dataclass(slots=True)
class HeadParameters(CheckedFields):
    """The parameters of a head. Heads with further parameters have subclasses, see `head_parameters`.

    name: `"value"`, `"q"`, `"dueling_q"` or `"policy"`; or the default name of a subclass.
    loss_weight: factor of its loss in the sum.
    rescale_gradient_from_head_by_factor: factor of the gradient that flows from it into the layers below: 0
        blocks it, a negative one reverses it. It is a constant, neither trained nor regularized.
    num_output_head_copies: the number of independent heads, each with a separate output, target and loss.
    cls: an addition of hive: called with these parameters and the action, it returns a custom head that replaces the
        one of `name`. Its output must have the same shape.
    gain: an addition of hive: the gain of the last layer's initial weights where these are orthogonal; None: that of
        the head's class.
    """

    RULES: ClassVar[FieldRules] = {
        "name": FieldRule.name(),
        "loss_weight": FieldRule.number(),
        "rescale_gradient_from_head_by_factor": FieldRule.number(),
        "num_output_head_copies": FieldRule.whole(1),
        "cls": FieldRule.function().or_none(),
        "gain": FieldRule.number(0).or_none(),
    }

    name: str
    loss_weight: float = 1.0
    rescale_gradient_from_head_by_factor: float = 1.0
    num_output_head_copies: int = 1
    cls: Callable[[HeadParameters, ActionSpec], nn.Module] | None = None
    gain: float | None = None


OPTIMIZERS = ("Adam", "AdamW", "RAdam", "RMSProp", "SGD", "LBFGS")


@dataclass(slots=True)
class NetworkParameters(CheckedFields):
    """All parameters of Coach's class of this name, followed by those that hive adds (from `weight_decay` on).

    "Workers" are those of a `WorkerGroup` that train one global network; a NetworkWrapper without one is the only one.

    force_cpu: keep a NetworkWrapper on the CPU and ignore the devices it is given.
    async_training: apply each worker's gradients as soon as it has computed them; otherwise all workers wait for
        each other and their gradients are applied together.
    shared_optimizer: apply all gradients with the optimizer of the global network; otherwise each worker applies its
        gradients to the global weights with the optimizer of its online network.
    scale_down_gradients_by_number_of_workers_for_sync_training: where workers wait for each other, apply the
        average of their gradients instead of the sum.
    clip_gradients: limit of the gradient, at `clip_stage`; None or 0: no clipping.
    gradients_clipping_method: the limited quantity.
    l2_regularization: adds this times half the sum of squares of all trainable weight matrices and kernels to
        the loss, once, independent of the number of heads; biases and vectors are excluded.
    learning_rate, learning_rate_decay_rate, learning_rate_decay_steps: see `learning_rate_at`.
    input_embedders_parameters: input name -> embedder, used in order of the names; empty: all inputs, with
        defaults. Names are those of the spaces' observations, of parts of the only observation (or their paths), and
        `action` for a critic of states and actions; `observation` alone is the embedder of all parts.
    embedding_merger_type: how several embeddings become one.
    middleware_parameters: the layers between embedders and heads; None: `MiddlewareParameters()`.
    heads_parameters: the heads, in the order of the outputs; empty: a policy and a value.
    use_separate_networks_per_head: give every head separate embedders and a separate middleware.
    optimizer_type: Adam, AdamW, RAdam, RMSProp, SGD or LBFGS.
    optimizer_epsilon, adam_optimizer_beta1, adam_optimizer_beta2, rms_prop_optimizer_decay: constants of that
        optimizer. Coach's defaults for epsilon and beta2, 1e-4 and 0.99, are not those of other libraries.
    batch_size: samples per update of `NetworkWrapper.train_in_batches`.
    replace_mse_with_huber_loss: value and Q heads use the Huber loss with delta 1 instead of the squared error.
    create_target_network: the meaning of `has_target = None` of a NetworkWrapper.
    tensorflow_support: accepted so that presets load; has no effect.
    weight_decay: decoupled in AdamW, added to the gradient in the others. momentum: for RMSProp and SGD.
    module: builds a user-defined module from the spaces; replaces all parameters above that describe layers.
    gradient_averaging: how the gradients of several batches become the accumulated one: their `"sum"` (Coach),
        their `"mean"`, or weighted by `"samples"`, which is the gradient of one batch of all of them.
    normalize_observations, normalize_rewards: see `normalization`; the training program must merge the statistics.
    novelty: build the networks of RND beside the network, see `novelty`; the training program must use them.
    clip_stage: clip the gradient of each `"batch"` before it is accumulated (Coach), or that of an `"update"`,
        once, after all accumulation, averaging over workers and scaling.
    initialization: the initial weights of all layers: `"orthogonal"` with zero biases, or `"uniform"`, the initial
        values of torch's layers; see `layers`.
    hidden_gain: the gain of orthogonal dense and convolutional layers; that of the last layer is a field of each head.
    noisy_deviation: the initial deviation of the noise in the weights of dense layers (hive.networks.build.layers); 0:
    none. backend: what computes dense layers: `"torch"`; `"native"`: hive.networks.weights.dense, with an error for a
    network that it
        cannot compute; `"auto"`: the latter where it can.
    precision: what convolutions and the dense layer after them compute in, `"float32"` or `"bfloat16"`, see
        `convolutions`.
    critics: number of critics beside the heads, each with separate layers, see `agents`; 0: none. critic_gain: the gain
        of their last layer, as `gain` of a head. temperature: whether the agent has a temperature beside its critics.
    value_middleware_parameters: the layers of value heads with separate networks, and of critics; of the class of
        `middleware_parameters`. None: these.
    extractor: builds a user-defined module from the spaces; replaces the embedders, see `custom`.
    frozen: patterns of the names of parameters that keep their values, see `naming`.
    critic_parts: names of parts of the only observation that heads called `value` and critics see, and others do not.
    """

    RULES: ClassVar[FieldRules] = {
        "force_cpu": FieldRule.flag(),
        "async_training": FieldRule.flag(),
        "shared_optimizer": FieldRule.flag(),
        "scale_down_gradients_by_number_of_workers_for_sync_training": FieldRule.flag(),
        "clip_gradients": FieldRule.number(0).or_none(),
        "gradients_clipping_method": FieldRule.member(GradientClippingMethod),
        "l2_regularization": FieldRule.number(0),
        "learning_rate": FieldRule.number(0),
        "learning_rate_decay_rate": FieldRule.number(0),
        "learning_rate_decay_steps": FieldRule.whole(0),
        "input_embedders_parameters": FieldRule.named_parts(InputEmbedderParameters),
        "embedding_merger_type": FieldRule.member(EmbeddingMergerType),
        "middleware_parameters": FieldRule.part(MiddlewareParameters).or_none(),
        "heads_parameters": FieldRule.parts(HeadParameters),
        "use_separate_networks_per_head": FieldRule.flag(),
        "optimizer_type": FieldRule.choice(OPTIMIZERS, any_case=True),
        "optimizer_epsilon": EPSILON,
        "adam_optimizer_beta1": BETA,
        "adam_optimizer_beta2": BETA,
        "rms_prop_optimizer_decay": BETA,
        "batch_size": FieldRule.whole(1),
        "replace_mse_with_huber_loss": FieldRule.flag(),
        "create_target_network": FieldRule.flag(),
        "tensorflow_support": FieldRule.flag(),
        "weight_decay": FieldRule.number(0),
        "momentum": MOMENTUM,
        "module": FieldRule.function().or_none(),
        "normalize_observations": FieldRule.flag(),
        "normalize_rewards": FieldRule.flag(),
        "novelty": FieldRule.flag(),
        "gradient_averaging": FieldRule.choice(("sum", "mean", "samples")),
        "clip_stage": FieldRule.choice(("batch", "update")),
        "initialization": FieldRule.choice(("orthogonal", "uniform")),
        "hidden_gain": FieldRule.number(above=0),
        "noisy_deviation": FieldRule.number(0),
        "backend": FieldRule.choice(("torch", "native", "auto")),
        "precision": FieldRule.choice(("float32", "bfloat16")),
        "critics": FieldRule.whole(0),
        "critic_gain": FieldRule.number(0).or_none(),
        "temperature": FieldRule.flag(),
        "value_middleware_parameters": FieldRule.part(MiddlewareParameters).or_none(),
        "extractor": FieldRule.function().or_none(),
        "frozen": FieldRule.names(),
        "critic_parts": FieldRule.names(),
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
    input_embedders_parameters: dict[Any, InputEmbedderParameters] = field(default_factory=dict)
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
    novelty: bool = False
    gradient_averaging: Literal["sum", "mean", "samples"] = "sum"
    clip_stage: Literal["batch", "update"] = "batch"
    initialization: str = "orthogonal"
    hidden_gain: float = HIDDEN_GAIN
    noisy_deviation: float = 0.0
    backend: Literal["torch", "native", "auto"] = "torch"
    precision: Literal["float32", "bfloat16"] = "float32"
    critics: int = 0
    critic_gain: float | None = None
    temperature: bool = False
    value_middleware_parameters: MiddlewareParameters | None = None
    extractor: Callable[[Spaces], nn.Module] | None = None
    frozen: Sequence[str] = ()
    critic_parts: Sequence[str] = ()

    def heads(self) -> list[HeadParameters]:
        """Return one entry for each output, a head with copies repeated; the default is a policy and a value."""
        heads = self.heads_parameters or [HeadParameters("policy"), HeadParameters("value")]
        return [head for head in heads for _ in range(head.num_output_head_copies)]

    def middleware_of(self, heads: Sequence[HeadParameters]) -> MiddlewareParameters:
        """Return the layers of a network that ends in these heads."""
        values = bool(heads) and all(head.name == "value" for head in heads)
        own = self.value_middleware_parameters if values else None
        return own or self.middleware_parameters or MiddlewareParameters()

    def refuse_impossible(self) -> None:
        """Raise NetworkError for invalid fields, those of the parts included, and for fields that contradict."""
        self.check_fields()
        middleware = [one for one in (self.middleware_parameters, self.value_middleware_parameters) if one is not None]
        for part in (*self.input_embedders_parameters.values(), *middleware, *self.heads_parameters):
            part.check_fields()
        self.learning_rate_at(0)
        recurrent = isinstance(self.middleware_parameters, LSTMMiddlewareParameters | GRUMiddlewareParameters)
        rescaled = any(head.rescale_gradient_from_head_by_factor != 1.0 for head in self.heads_parameters)
        if self.noisy_deviation and (recurrent or rescaled or self.module is not None):
            raise NetworkError(
                f"noisy_deviation = {self.noisy_deviation} is only for networks of embedders, dense layers and heads",
                hint="leave it out with `module`, with an LSTM or GRU, and with rescale_gradient_from_head_by_factor",
            )
        if self.extractor is not None and self.module is not None:
            raise NetworkError(
                "`module` replaces the whole network, `extractor` its first layers", hint="leave one out"
            )
        if self.value_middleware_parameters is not None:
            self._refuse_value_middleware(self.value_middleware_parameters)
        if self.critics:
            self._refuse_with_critics()

    def _refuse_value_middleware(self, given: MiddlewareParameters) -> None:
        usual = self.middleware_parameters or MiddlewareParameters()
        if type(given) is not type(usual):
            raise NetworkError(
                f"value_middleware_parameters are {type(given).__name__}, not {type(usual).__name__}",
                hint="the networks of one run have the same kind of memory",
            )
        separate = self.use_separate_networks_per_head and any(head.name == "value" for head in self.heads())
        if self.module is not None or not (self.critics or separate):
            raise NetworkError(
                "value_middleware_parameters are for a value head with a network of its own, or for critics",
                hint="leave them out, or let the heads have separate networks",
            )

    def _refuse_with_critics(self) -> None:
        memory = isinstance(self.middleware_parameters, LSTMMiddlewareParameters | GRUMiddlewareParameters)
        given = {
            "a custom module": self.module is not None,
            "a memory": memory,
            "novelty": self.novelty,
            "noisy_deviation": self.noisy_deviation > 0,
        }
        if refused := [name for name, is_given in given.items() if is_given]:
            raise NetworkError(f"{refused[0]} cannot be combined with critics", hint="leave it out, or use ppo or a2c")

    def learning_rate_at(self, update: int) -> float:
        """Return the learning rate of update number `update`, counted from 0.

        It is `learning_rate * decay_rate ** (update // decay_steps)`, a staircase as in Coach. Rate 0: no decay.
        Raises NetworkError for a decay rate without decay steps.
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
        """Return the optimizer's name and constants, without the learning rate."""
        return OptimizerSettings(
            name=self.optimizer_type.lower(),
            betas=(self.adam_optimizer_beta1, self.adam_optimizer_beta2),
            epsilon=self.optimizer_epsilon,
            decay=self.rms_prop_optimizer_decay,
            momentum=self.momentum,
            weight_decay=self.weight_decay,
        )


@dataclass(slots=True)
class DuelingQHeadParameters(HeadParameters):
    """Parameters of a DuelingQHead.

    hidden: the width of the hidden layer of each of the two streams; 0: none. Wang et al. 2016 have 512.
    """

    RULES: ClassVar[FieldRules] = {**HeadParameters.RULES, "hidden": FieldRule.whole(0)}

    name: str = "dueling_q"
    hidden: int = 0


@dataclass(slots=True)
class CategoricalQHeadParameters(HeadParameters):
    """Parameters of a CategoricalQHead: `atoms` equally spaced returns from `v_min` to `v_max`.

    dueling: the width of the hidden layers of two streams, state value and advantages; 0: no streams. The other
    defaults are those of Bellemare, Dabney and Munos 2017. The returns have the unit of the rewards.
    """

    RULES: ClassVar[FieldRules] = {
        **HeadParameters.RULES,
        "atoms": FieldRule.whole(2),
        "v_min": FieldRule.number(),
        "v_max": FieldRule.number(),
        "dueling": FieldRule.whole(0),
    }

    name: str = "categorical_q"
    atoms: int = 51
    v_min: float = -10.0
    v_max: float = 10.0
    dueling: int = 0


@dataclass(slots=True)
class QuantileQHeadParameters(HeadParameters):
    """Parameters of a QuantileQHead; the defaults are those of Dabney et al. 2018.

    atoms: the number of quantiles. huber_loss_interval: the paper's kappa; smaller errors count squared. dueling: as
    of CategoricalQHeadParameters.
    """

    RULES: ClassVar[FieldRules] = {
        **HeadParameters.RULES,
        "atoms": FieldRule.whole(1),
        "huber_loss_interval": FieldRule.number(0),
        "dueling": FieldRule.whole(0),
    }

    name: str = "quantile_q"
    atoms: int = 200
    huber_loss_interval: float = 1.0
    dueling: int = 0


@dataclass(slots=True)
class PolicyHeadParameters(HeadParameters):
    """Parameters of a PolicyHead; the last four are for box actions.

    beta_entropy: the factor of the entropy bonus, which is subtracted from the loss.
    action_distribution: `"gaussian"`, `"squashed"`: a Gaussian mapped into the bounds of the action by tanh, or
        `"gsde"`: noise that depends on the last layer's outputs (hive.networks.act.gsde).
    features: the width of that layer, which "gsde" needs.
    action_deviation: the log standard deviation of each action element is a trained `"parameter"`, the same for all
        observations, or an `"output"` of the last layer, clamped to LOG_STD_BOUNDS.
    initial_deviation: the standard deviation of each action element before training, for every observation; of a
        squashed Gaussian, before tanh; of "gsde", of each weight of the noise.
    """

    RULES: ClassVar[FieldRules] = {
        **HeadParameters.RULES,
        "beta_entropy": FieldRule.number(),
        "action_distribution": FieldRule.choice(("gaussian", "squashed", "gsde")),
        "features": FieldRule.whole(0),
        "action_deviation": FieldRule.choice(("parameter", "output")),
        "initial_deviation": FieldRule.number(above=0),
    }

    name: str = "policy"
    beta_entropy: float = 0.0
    action_distribution: str = "gaussian"
    features: int = 0
    action_deviation: str = "parameter"
    initial_deviation: float = 1.0


@dataclass(slots=True)
class SquashedPolicyHeadParameters(HeadParameters):
    """Parameters of a SquashedPolicyHead: those of HeadParameters."""

    name: str = "squashed_policy"


@dataclass(slots=True)
class PPOHeadParameters(PolicyHeadParameters):
    """Parameters of a PPOHead: those of a PolicyHead, with another default of `beta_entropy`, and PPO's.

    clip_likelihood_ratio_using_epsilon: the greatest distance of the probability ratio from 1; None: no clipping.
    initial_kl_coefficient: the initial value of the head's variable `kl_coefficient`, the factor of the
        divergence from the old policy in the loss.
    """

    RULES: ClassVar[FieldRules] = {
        **PolicyHeadParameters.RULES,
        "clip_likelihood_ratio_using_epsilon": FieldRule.number(above=0).or_none(),
        "initial_kl_coefficient": FieldRule.number(0),
    }

    name: str = "ppo"
    beta_entropy: float = 0.01
    clip_likelihood_ratio_using_epsilon: float | None = 0.2
    initial_kl_coefficient: float = 0.0
