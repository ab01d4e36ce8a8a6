"""hive: reinforcement learning on one machine with many processes.

    result = hive.train("ppo", env="CartPole-v1", steps=100_000)
    policy = hive.load("cartpole-ppo-1")

The distribution that contains this package is `hive-trainer`.

These are all public names; the other modules of hive may change at any time.

    train, run, train_async, run_async, Result    start a run, and what it gives
    load, Policy                                  the trained policy of a run
    evaluate, Score                               how good a policy is: the returns of whole episodes
    export, Exported                              a policy as a file for other programs
    Config, load_config                           the keys of a run
    algorithms, networks                          parts of a run that can be replaced by custom ones
    integrations                                  callbacks for other packages: Optuna
    testing                                       tests of actors and topologies
    errors                                        everything that hive raises
    compat                                        classes of four public documents, for scripts

Actors and topologies:

    Actor, endpoint, Handle                       an actor, the methods that others may call, and how they call it
    Message, Shape                                what travels between actors
    Topology                                      actors, and channels between their ports
    Inlet, Outlet                                 ports of messages, carried by Messages
    SlotInlet, SlotOutlet, Layout                 ports of large arrays, carried by Slots or Zmq
    Publication, Subscription                     ports of numbered versions, carried by a Board
    SharedIn, SharedOut                           ports of memory that its writer changes in place, carried by Shared
    Slot, SlotSender, SlotReceiver, Line, End     the ends of a channel, for a custom carrier
    WAIT_IN, WAIT_OUT                             kinds of phases of an actor in which it waits

The built-in trainer, for topologies that change it:

    schemes                                       builds the trainer as a topology
    Blueprint                                     its networks, layouts and environments
    CollectorActor                                the collector, to derive from
    RolloutReady, Gradient, Weights, OptimizerState, Metrics, CheckpointDue, Improved, EvaluationDue, Evaluation,
    EpisodesEnded, ReplayRows, ReplayLedger, ReplayFloor, ReplayPlan             its messages
    Rollout, Replay                               views of the arrays of a rollout, and of a replay memory
    Callback                                      the methods of a callback (`run.callbacks`), and what they receive:
    RoundEvent, EpisodeEvent, EvaluationEvent, EndEvent
    Update                                        what `run.update_hook` receives
    Sink, MetricsRecord, Video, JsonlSink         what a custom sink has and receives, and the one for metrics.jsonl
    VectorEnvironment, make_vector, StepRow, FinalObservations    environments that are stepped together
    EnvContext                                    who an environment is (`env_context` of its constructor)
    ObservationSpec, observation_spec, action_spec                how observations and actions are stored
    include_folder                                the folder of hive/env.h, for compiled environments
    stream, stream_seeds, Purpose                 random numbers that depend on the seed of the run

Its parts without processes:

    Trainer                                       a whole trainer in one process
    GWorker, GradAccumulator                      computes gradients of rollouts; averages gradients
    ReplayBuffer                                  a replay memory for scripts

`import hive` is lazy: a module is imported when one of its names is first used.
"""

from __future__ import annotations

from hive.distribution import warn_of_strangers as _warn_of_strangers
from hive.lazy import lazy_names

__version__ = "0.1.0.dev0"

__getattr__, __dir__ = lazy_names(__name__, __file__, "hive.versions", "hive.config.other_names")

_warn_of_strangers()
