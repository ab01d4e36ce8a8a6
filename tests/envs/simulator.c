/* A program with every kind of space, an option, `info`, pictures and an error, for test_external_clients.py. */
#include "hive_client.h"

typedef struct {
  int64_t index, steps;
  double speed;
  uint64_t seed;
} world;

static const int64_t choices[] = {3, 2};
static const char *const info[] = {"height", "won"};
static const hive_space seen[] = {
    {.name = "camera", .kind = HIVE_BOX, .dtype = "uint8", .axes = 3, .shape = {1, 2, 3}, .low = 0, .high = 255},
    {.name = "odd", .kind = HIVE_BOX, .dtype = "float64", .axes = 0, .low = -INFINITY, .high = INFINITY},
    {.name = "gear", .kind = HIVE_DISCRETE, .n = 3, .start = -1},
    {.name = "keys", .kind = HIVE_MULTI_BINARY, .axes = 1, .shape = {3}}};
static const hive_space acts[] = {
    {.name = "push", .kind = HIVE_BOX, .dtype = "float32", .axes = 1, .shape = {2}, .low = -1, .high = 1},
    {.name = "tiles", .kind = HIVE_MULTI_DISCRETE, .shape = {2}, .nvec = choices}};

static void *make(int64_t index, hive_value options) {
  world *me = (world *)calloc(1, sizeof *me);
  char name[8];
  if (me) me->index = index, me->speed = hive_option(options, "speed", -1);
  return me && hive_option_text(options, "name", name, sizeof name) && strcmp(name, "town") == 0 ? (void *)me : NULL;
}

static void see(const world *me, void *const *observation) {
  uint8_t *camera = (uint8_t *)observation[0], *keys = (uint8_t *)observation[3];
  int i;
  for (i = 0; i < 6; i++) camera[i] = (uint8_t)(me->index + i);
  *(double *)observation[1] = me->speed + (double)me->seed;
  *(int64_t *)observation[2] = me->steps % 3 - 1;
  keys[0] = 1, keys[1] = 0, keys[2] = 1;
}

static const char *reset(void *self, const uint64_t *seed, hive_value options, void *const *observation) {
  world *me = (world *)self;
  (void)options;
  if (seed) me->seed = *seed;
  me->steps = 0;
  see(me, observation);
  return NULL;
}

static const char *step(void *self, const void *const *action, void *const *observation, hive_result *result) {
  world *me = (world *)self;
  const float *push = (const float *)action[0];
  const int64_t *tiles = (const int64_t *)action[1];
  if (push[0] < 0) return "pushed backwards";
  me->steps++;
  see(me, observation);
  result->reward = push[1] + (float)(10 * tiles[0] + tiles[1]);
  result->truncated = me->steps == 2;
  result->info[0] = (float)me->steps;
  return NULL;
}

static const char *render(void *self, uint32_t *height, uint32_t *width, const uint8_t **rgb) {
  static const uint8_t pixels[6] = {0, 1, 2, 3, 4, 5};
  (void)self;
  *height = 1, *width = 2, *rgb = pixels;
  return NULL;
}

int main(void) {
  static const hive_program program = {
      .name = "Town", .observation = seen, .observation_parts = 4, .action = acts, .action_parts = 2, .info = info,
      .infos = 2, .make = make, .reset = reset, .step = step, .render = render, .destroy = free};
  return hive_serve(&program);
}
