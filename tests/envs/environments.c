/* Two environments for tests/envs/test_compiled.py; options choose what they do wrong. */
#include <hive/env.h>
#include <math.h>
#include <stdlib.h>

#ifndef VERSION
#define VERSION HIVE_ENV_VERSION
#endif

/* Counting of fake_environments.py: observes [episode, step], rewards the number of the step. `fault` is what goes wrong
 * in step 3 of environment 1: "reward", "nan", "inf", "step", or "reset" after it. */
typedef struct {
  const char *fault;
  int64_t terminates, truncates;
  int64_t (*at)[2];
} counting;

static int describe_counting(const hive_options *options, hive_description *found, char *error) {
  static const char *const numbers[] = {"terminates", "truncates", "limit", "dimensions", "choices", NULL};
  static const char *const texts[] = {"fault", NULL};
  if (hive_unknown_option(options, numbers, texts)) return hive_fail(error, "which option is that?");
  found->observation_dimensions = (int32_t)hive_number(options, "dimensions", 1);
  found->observation_shape[0] = 2;
  found->action_choices[0] = (int64_t)hive_number(options, "choices", 2);
  found->max_episode_steps = (int64_t)hive_number(options, "limit", 0);
  return 0;
}

static void *create_counting(const hive_options *options, int64_t environments, char *error) {
  static const char *const faults[] = {"", "reward", "nan", "inf", "step", "reset", "silent"};
  const char *fault = hive_text(options, "fault", "");
  if (!strcmp(fault, "create")) return hive_fail(error, "no fuel"), NULL;
  counting *self = calloc(1, sizeof *self);
  for (size_t i = 0; i < sizeof faults / sizeof *faults; ++i) {
    if (!strcmp(fault, faults[i])) self->fault = faults[i];
  }
  self->terminates = (int64_t)hive_number(options, "terminates", 0);
  self->truncates = (int64_t)hive_number(options, "truncates", 0);
  self->at = calloc((size_t)environments, sizeof *self->at);
  return self;
}

static int reset_counting(void *state, int64_t environment, const uint64_t *seed, void *observation, char *error) {
  counting *self = state;
  float *seen = observation;
  if (!seed && environment == 1 && !strcmp(self->fault, "reset")) return hive_fail(error, "no fuel");
  self->at[environment][0] = seed ? 0 : self->at[environment][0] + 1;
  self->at[environment][1] = 0;
  seen[0] = (float)self->at[environment][0];
  seen[1] = 0;
  return 0;
}

static int step_counting(void *state, const void *actions, const hive_rows *rows, char *error) {
  counting *self = state;
  (void)actions;
  for (int64_t b = 0; b < rows->environments; ++b) {
    float *seen = hive_observation(rows, b);
    int64_t t = ++self->at[b][1];
    int wrong = t == 3 && b == 1;
    seen[0] = (float)self->at[b][0];
    seen[1] = wrong && !strcmp(self->fault, "nan") ? NAN : (float)t;
    rows->rewards[b] = wrong && !strcmp(self->fault, "reward") ? INFINITY : (float)t;
    rows->terminated[b] = t == self->terminates;
    rows->truncated[b] = t == self->truncates;
    if (wrong && !strcmp(self->fault, "step")) return hive_fail(error, "no fuel");
    if (wrong && !strcmp(self->fault, "silent")) return 7;
  }
  return 0;
}

static void destroy_counting(void *state) {
  free(((counting *)state)->at);
  free(state);
}

HIVE_ENVIRONMENT(environment) = {VERSION,        sizeof(hive_environment), describe_counting, create_counting,
                                 reset_counting, step_counting,            destroy_counting};

/* Observes bytes [2, 3]: its seed and last actions. Of kind "box" it takes two numbers from -1 to 2, else two choices. */
typedef struct {
  int continuous;
} echo;

static int describe_echo(const hive_options *options, hive_description *found, char *error) {
  (void)error;
  found->observation_dtype = HIVE_UINT8;
  found->observation_dimensions = 2;
  found->observation_shape[0] = 2;
  found->observation_shape[1] = 3;
  found->action_kind = strcmp(hive_text(options, "kind", ""), "box") ? HIVE_DISCRETE : HIVE_CONTINUOUS;
  found->action_elements = 2;
  for (int i = 0; i < 2; ++i) {
    found->action_choices[i] = 3 + i;
    found->action_low[i] = -1;
    found->action_high[i] = 2;
  }
  return 0;
}

static void *create_echo(const hive_options *options, int64_t environments, char *error) {
  (void)environments, (void)error;
  echo *self = calloc(1, sizeof *self);
  self->continuous = !strcmp(hive_text(options, "kind", ""), "box");
  return self;
}

static int reset_echo(void *state, int64_t environment, const uint64_t *seed, void *observation, char *error) {
  (void)state, (void)environment, (void)error;
  memset(observation, seed ? (int)(*seed % 256) : 99, 6);
  return 0;
}

static int step_echo(void *state, const void *actions, const hive_rows *rows, char *error) {
  (void)error;
  for (int64_t b = 0; b < rows->environments; ++b) {
    uint8_t *seen = hive_observation(rows, b);
    for (int i = 0; i < 2; ++i) {
      double action = ((echo *)state)->continuous ? 10 * ((const float *)actions)[2 * b + i]
                                                  : (double)((const int64_t *)actions)[2 * b + i];
      seen[i] = (uint8_t)(100 + action);
    }
  }
  return 0;
}

static void destroy_echo(void *state) { free(state); }

HIVE_ENVIRONMENT(Echo) = {VERSION,    sizeof(hive_environment), describe_echo, create_echo, reset_echo, step_echo,
                          destroy_echo};

const int not_one = 77; /* a constant of another kind */
