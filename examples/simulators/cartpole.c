/* CartPole as a program in C: the physics of Gymnasium's CartPole-v1.
 *
 *   cc -O2 -o cartpole examples/simulators/cartpole.c -lm
 *   hive up examples/simulators/cartpole-c.toml
 */
#include "hive_client.h"

typedef struct {
  uint64_t random;
  double force, x, speed, angle, turning;
} world;

/* Returns a number from -0.05 to 0.05 (splitmix64: Steele, Lea and Flood 2014). */
static double drawn(world *me) {
  uint64_t z = me->random += 0x9e3779b97f4a7c15u;
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
  z = (z ^ z >> 27) * 0x94d049bb133111ebu;
  return (double)((z ^ z >> 31) >> 11) / 9007199254740992.0 * 0.1 - 0.05;
}

static void seen(const world *me, void *const *observation) {
  float *to = (float *)observation[0];
  to[0] = (float)me->x, to[1] = (float)me->speed, to[2] = (float)me->angle, to[3] = (float)me->turning;
}

static void *make(int64_t index, hive_value options) {
  world *me = (world *)calloc(1, sizeof *me);
  if (me) me->random = (uint64_t)index, me->force = hive_option(options, "force", 10.0);
  return me;
}

static const char *reset(void *self, const uint64_t *seed, hive_value options, void *const *observation) {
  world *me = (world *)self;
  (void)options;
  if (seed) me->random = *seed;
  me->x = drawn(me), me->speed = drawn(me), me->angle = drawn(me), me->turning = drawn(me);
  seen(me, observation);
  return NULL;
}

static const char *step(void *self, const void *const *action, void *const *observation, hive_result *result) {
  world *me = (world *)self;
  double force = *(const int64_t *)action[0] == 1 ? me->force : -me->force;
  double sine = sin(me->angle), cosine = cos(me->angle);
  /* Mass of the pole 0.1, of pole and cart 1.1; half the length of the pole 0.5. */
  double push = (force + 0.05 * me->turning * me->turning * sine) / 1.1;
  double turn = (9.8 * sine - cosine * push) / (0.5 * (4.0 / 3.0 - 0.1 * cosine * cosine / 1.1));
  double pull = push - 0.05 * turn * cosine / 1.1;
  me->x += 0.02 * me->speed, me->speed += 0.02 * pull;
  me->angle += 0.02 * me->turning, me->turning += 0.02 * turn;
  seen(me, observation);
  result->reward = 1.0f;
  result->terminated = fabs(me->x) > 2.4 || fabs(me->angle) > 12 * 3.141592653589793 / 180;
  return NULL;
}

int main(void) {
  static const hive_space observation = {
      .kind = HIVE_BOX, .dtype = "float32", .axes = 1, .shape = {4}, .low = -INFINITY, .high = INFINITY};
  static const hive_space action = {.kind = HIVE_DISCRETE, .n = 2};
  static const hive_program program = {
      .name = "CartPole", .observation = &observation, .observation_parts = 1, .action = &action, .action_parts = 1,
      .max_episode_steps = 500, .deterministic = 1, .make = make, .reset = reset, .step = step, .destroy = free};
  return hive_serve(&program);
}
