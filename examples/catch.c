/* Catch (Osband et al. 2020, bsuite) as a compiled environment: a paddle must catch a ball that falls down a board.
 *   cc -O2 -shared -fPIC -I"$(python -c 'import hive; print(hive.include_folder())')" examples/catch.c -o catch.so
 *   hive init ./catch.so:Catch -o catch.toml && hive up catch.toml
 */
#include <hive/env.h>
#include <stdlib.h>

typedef struct {
  uint64_t random; /* the state of its random numbers */
  int row, column; /* of the ball */
  int paddle;      /* its column, in the last row */
} board;

typedef struct {
  int rows, columns;
  board boards[]; /* one for each environment */
} catch_state;

static int describe(const hive_options *options, hive_description *found, char *error) {
  static const char *const names[] = {"rows", "columns", NULL};
  double rows = hive_number(options, "rows", 10), columns = hive_number(options, "columns", 5);
  if (hive_unknown_option(options, names, NULL)) return hive_fail(error, "its options are the numbers rows and columns");
  if (!(rows >= 2 && rows <= 100 && columns >= 1 && columns <= 100)) return hive_fail(error, "expected rows 2..100, columns 1..100");
  found->observation_dtype = HIVE_FLOAT32;
  found->observation_dimensions = 1;
  found->observation_shape[0] = (int64_t)rows * (int64_t)columns;
  found->action_kind = HIVE_DISCRETE;
  found->action_choices[0] = 3; /* left, stay, right */
  return 0;
}

static void *create(const hive_options *options, int64_t environments, char *error) {
  catch_state *self = calloc(1, sizeof *self + (size_t)environments * sizeof(board));
  if (!self) return hive_fail(error, "no memory"), NULL;
  self->rows = (int)hive_number(options, "rows", 10);
  self->columns = (int)hive_number(options, "columns", 5);
  return self;
}

static void observe(const catch_state *self, const board *b, float *observation) {
  memset(observation, 0, sizeof(float) * (size_t)(self->rows * self->columns));
  observation[b->row * self->columns + b->column] = 1;
  observation[(self->rows - 1) * self->columns + b->paddle] = 1;
}

static int reset(void *state, int64_t environment, const uint64_t *seed, void *observation, char *error) {
  catch_state *self = state;
  board *b = &self->boards[environment];
  (void)error;
  if (seed) b->random = *seed;
  b->row = 0;
  b->column = (int)(hive_uniform(&b->random) * self->columns);
  b->paddle = self->columns / 2;
  observe(self, b, observation);
  return 0;
}

static int step(void *state, const void *actions, const hive_rows *rows, char *error) {
  catch_state *self = state;
  const int64_t *moves = actions;
  (void)error;
  for (int64_t i = 0; i < rows->environments; ++i) {
    board *b = &self->boards[i];
    int to = b->paddle + (int)moves[i] - 1;
    if (to >= 0 && to < self->columns) b->paddle = to;
    if (++b->row == self->rows - 1) {
      rows->rewards[i] = b->paddle == b->column ? 1 : -1;
      rows->terminated[i] = 1;
    }
    observe(self, b, hive_observation(rows, i));
  }
  return 0;
}

static void destroy(void *state) { free(state); }

HIVE_ENVIRONMENT(Catch) = {HIVE_ENV_VERSION, sizeof(hive_environment), describe, create, reset, step, destroy};
