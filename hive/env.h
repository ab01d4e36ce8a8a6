/* The C interface of compiled environments: hive steps B environments by one call, without Python.
 *
 * A shared library defines one constant per environment with HIVE_ENVIRONMENT, and a config names both:
 *
 *     [env]
 *     id = "./catch.so:Catch"     # the library, and the name of the constant; without a name: `environment`
 *
 * hive owns all memory: observations and rewards are written into the rows of a rollout, where the policy and the
 * gradient read them. hive also keeps the account of episodes: it counts steps and returns, applies the time limit,
 * keeps the last observation of a truncated episode, resets environments whose episode ended, and checks that numbers
 * are finite and actions are within their bounds. `examples/catch.c` is a whole environment.
 *
 * Functions that return `int` return 0, or any other number after writing a text of at most HIVE_ERROR_BYTES bytes
 * into `error` (hive_fail). They are called by one thread at a time, which may be another one each time.
 *
 * The header is C99 and C++, for GCC and Clang.
 */
#ifndef HIVE_ENV_H
#define HIVE_ENV_H

#include <stdint.h>
#include <stdio.h>
#include <string.h>

#define HIVE_ENV_VERSION 1        /* changes whenever a structure or a meaning below changes */
#define HIVE_ERROR_BYTES 256      /* size of `error`, with the terminating zero */
#define HIVE_MAX_DIMENSIONS 8     /* of an observation */
#define HIVE_MAX_ACTIONS 256      /* elements of one action */

/* Options of the config, [env.options]: numbers, and words as text. true and false are 1 and 0. */
typedef struct hive_option {
  const char *name;
  const char *text; /* NULL for a number */
  double number;
} hive_option;

typedef struct hive_options {
  const hive_option *items;
  int64_t count;
} hive_options;

typedef enum hive_dtype { HIVE_FLOAT32 = 0, HIVE_UINT8 = 1 } hive_dtype;

typedef enum hive_actions {
  HIVE_DISCRETE = 0,  /* int64, from 0 to action_choices[i] - 1 in element i */
  HIVE_CONTINUOUS = 1 /* float, from action_low[i] to action_high[i] in element i */
} hive_actions;

/* The sizes of an environment. hive has set all to zero before it calls `describe`. */
typedef struct hive_description {
  int32_t observation_dtype;      /* hive_dtype */
  int32_t observation_dimensions; /* numbers in observation_shape; 0: one number */
  int64_t observation_shape[HIVE_MAX_DIMENSIONS];
  int32_t action_kind;            /* hive_actions */
  int32_t action_elements;        /* 0: a discrete action is one number, with action_choices[0] values */
  int64_t action_choices[HIVE_MAX_ACTIONS];
  float action_low[HIVE_MAX_ACTIONS];
  float action_high[HIVE_MAX_ACTIONS];
  int64_t max_episode_steps;      /* steps after which hive truncates an episode; 0: no limit */
} hive_description;

/* What one step writes. hive has set rewards and flags to zero before it calls `step`. */
typedef struct hive_rows {
  int64_t environments;       /* B */
  void *observations;         /* observation b is contiguous and begins at byte b * observation_stride */
  int64_t observation_stride; /* bytes */
  float *rewards;             /* [B] */
  uint8_t *terminated;        /* [B] 1: the episode ended, and its last state has no value */
  uint8_t *truncated;         /* [B] 1: the episode was cut; hive adds the time limit */
} hive_rows;

typedef struct hive_environment {
  uint32_t version; /* HIVE_ENV_VERSION */
  uint32_t size;    /* sizeof(hive_environment) */

  /* Write the sizes. Refuse unknown options and wrong values here: hive calls it before it starts any process. */
  int (*describe)(const hive_options *options, hive_description *description, char *error);

  /* Return the state of `environments` environments, which all other functions get as `state`; NULL is an error. hive
   * also creates and destroys one environment before it forks the processes of a run: keep no threads between calls. */
  void *(*create)(const hive_options *options, int64_t environments, char *error);

  /* Start an episode in one environment and write its first observation. With `seed` not NULL, the same seed must give
   * the same episodes for the same actions from now on, whatever was before; with NULL, continue the random numbers. */
  int (*reset)(void *state, int64_t environment, const uint64_t *seed, void *observation, char *error);

  /* Step every environment and write `rows`. `actions` are [B, action_elements], contiguous: int64_t or float. Where an
   * episode ends, write its last observation; hive calls `reset` after it has kept what it needs. */
  int (*step)(void *state, const void *actions, const hive_rows *rows, char *error);

  void (*destroy)(void *state); /* free what `create` returned */
} hive_environment;

#if defined(__cplusplus)
#define HIVE_EXPORT extern "C" __attribute__((visibility("default")))
#else
#define HIVE_EXPORT extern __attribute__((visibility("default")))
#endif

/* HIVE_ENVIRONMENT(Catch) = {HIVE_ENV_VERSION, sizeof(hive_environment), describe, create, reset, step, destroy}; */
#define HIVE_ENVIRONMENT(name)             \
  HIVE_EXPORT const hive_environment name; \
  const hive_environment name

/* Write `text` to `error` and return 1: `return hive_fail(error, "size must be odd");` */
static inline int hive_fail(char *error, const char *text) {
  snprintf(error, HIVE_ERROR_BYTES, "%s", text);
  return 1;
}

/* Return the number of the option `name`, or `usual` if the config does not have it. */
static inline double hive_number(const hive_options *options, const char *name, double usual) {
  for (int64_t i = 0; i < options->count; ++i) {
    if (!strcmp(options->items[i].name, name) && !options->items[i].text) return options->items[i].number;
  }
  return usual;
}

/* Return the text of the option `name`, or `usual` if the config does not have it. */
static inline const char *hive_text(const hive_options *options, const char *name, const char *usual) {
  for (int64_t i = 0; i < options->count; ++i) {
    if (!strcmp(options->items[i].name, name) && options->items[i].text) return options->items[i].text;
  }
  return usual;
}

/* Return the first option that is neither a number called as in `numbers` nor a text called as in `texts`; NULL if there
 * is none. Both lists end with NULL, and may be NULL. */
static inline const char *hive_unknown_option(const hive_options *options, const char *const *numbers,
                                              const char *const *texts) {
  for (int64_t i = 0; i < options->count; ++i) {
    const char *const *known = options->items[i].text ? texts : numbers;
    while (known && *known && strcmp(*known, options->items[i].name)) ++known;
    if (!known || !*known) return options->items[i].name;
  }
  return NULL;
}

/* Return where observation `b` of the rows begins. */
static inline void *hive_observation(const hive_rows *rows, int64_t b) {
  return (char *)rows->observations + b * rows->observation_stride;
}

/* A small generator of random numbers (splitmix64; Steele, Lea and Flood 2014): begin with any state. */
static inline uint64_t hive_random(uint64_t *state) {
  uint64_t z = *state += 0x9e3779b97f4a7c15u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

/* Return a random number in [0, 1). */
static inline double hive_uniform(uint64_t *state) { return (double)(hive_random(state) >> 11) / 9007199254740992.0; }

#endif
