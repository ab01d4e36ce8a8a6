/* Lets hive train on a simulator that is written in C99 or C++, over a socket. Copy this file; it needs POSIX only.
 * The protocol: examples/guide/simulator-protocol.md. An example: cartpole.c.
 *
 * Fill a hive_program and call hive_serve in main(). It returns 0 when hive is finished, and 1 with a line on stderr
 * after a failure. Memory is allocated once, after the first request; nothing in a step allocates.
 */
#ifndef HIVE_CLIENT_H
#define HIVE_CLIENT_H

#include <arpa/inet.h>
#include <errno.h>
#include <math.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/un.h>
#include <unistd.h>

#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "arrays travel as little-endian bytes: swap them on this machine"
#endif

#ifdef MSG_NOSIGNAL
#define HIVE_NO_SIGNAL MSG_NOSIGNAL
#else
#define HIVE_NO_SIGNAL 0
#endif

#define HIVE_VERSION 1
#define HIVE_MOST_REQUEST (1u << 20) /* bytes of a request without its actions */
#define HIVE_MOST_COUNT 65536        /* environments of one program */
#define HIVE_MOST_PARTS 256          /* of a dictionary */
#define HIVE_MOST_DEPTH 16           /* of nested options */
#define HIVE_MOST_ERROR 1000         /* bytes of an error text */

typedef enum { HIVE_BOX, HIVE_DISCRETE, HIVE_MULTI_DISCRETE, HIVE_MULTI_BINARY } hive_kind;

/* One array. In memory it has elements of `dtype` (a box), int64_t (discrete) or uint8_t (multi_binary), in C order. */
typedef struct {
  const char *name;  /* of a part of a dictionary; NULL: the space is this array alone */
  hive_kind kind;
  const char *dtype; /* of a box: "uint8", "int8", ..., "int64", "float32", "float64" */
  int axes;
  size_t shape[8];     /* of a box or multi_binary; of a multi_discrete, shape[0] is the number of elements */
  double low, high;    /* of a box, for every element; -INFINITY and INFINITY: no bound */
  int64_t n, start;    /* of a discrete space: one of n integers from start */
  const int64_t *nvec; /* of a multi_discrete space: element i is one of nvec[i] integers from 0 */
} hive_space;

/* A value in a request. Options are a map of them. */
typedef struct {
  const uint8_t *at, *end;
} hive_value;

typedef struct {
  float reward;
  int terminated; /* the episode ends here: a goal, a fall */
  int truncated;  /* it was cut off here: a time limit */
  float *info;    /* [infos], NaN at first; read at the end of an episode */
} hive_result;

/* Functions return NULL, or the text of an error, which ends the program. Pointers to arrays are aligned; there is one
 * for each part of the space. */
typedef struct {
  const char *name;
  const hive_space *observation;
  int observation_parts;
  const hive_space *action;
  int action_parts;
  long max_episode_steps;  /* hive truncates an episode there; 0: never */
  int deterministic;       /* equal seeds and actions give equal bytes */
  const char *const *info; /* names of values */
  int infos;
  void *(*make)(int64_t index, hive_value options); /* one environment; NULL: it failed */
  const char *(*reset)(void *world, const uint64_t *seed, hive_value options, void *const *observation); /* seed may be NULL */
  const char *(*step)(void *world, const void *const *action, void *const *observation, hive_result *result);
  const char *(*render)(void *world, uint32_t *height, uint32_t *width, const uint8_t **rgb); /* may be NULL */
  void (*destroy)(void *world);
} hive_program;

/* ---- reading msgpack: a cursor that never passes its end ---- */

static int hive_take(hive_value *from, size_t size, const uint8_t **bytes) {
  if ((size_t)(from->end - from->at) < size) return 0;
  *bytes = from->at;
  from->at += size;
  return 1;
}

/* Reads `size` bytes as a big-endian number. */
static int hive_big(hive_value *from, size_t size, uint64_t *number) {
  const uint8_t *bytes;
  size_t i;
  if (!hive_take(from, size, &bytes)) return 0;
  for (*number = 0, i = 0; i < size; i++) *number = *number << 8 | bytes[i];
  return 1;
}

/* Reads the head of a value. type: one of "nil", 'b'ool, 'i'nteger, 'u'nsigned, 'f'loat, 's'tring, 'B'ytes, 'a'rray,
 * 'm'ap; number: its value (bits of a double for 'f'), or its length. */
static int hive_head(hive_value *from, char *type, uint64_t *number) {
  static const char types[] = "n?bbBBB???fduuuuiiii?????sssaamm";
  static const uint8_t sizes[] = {0, 0, 0, 0, 1, 2, 4, 0, 0, 0, 4, 8, 1, 2, 4, 8, 1, 2, 4, 8, 0, 0, 0, 0, 0, 1, 2, 4, 2, 4, 2, 4};
  const uint8_t *first;
  uint8_t code;
  if (!hive_take(from, 1, &first)) return 0;
  code = *first;
  *number = code;
  if (code < 0x80) return *type = 'u', 1;
  if (code >= 0xe0) return *type = 'i', *number = (uint64_t)(int64_t)(int8_t)code, 1;
  if (code < 0x90) return *type = 'm', *number = code & 15u, 1;
  if (code < 0xa0) return *type = 'a', *number = code & 15u, 1;
  if (code < 0xc0) return *type = 's', *number = code & 31u, 1;
  *type = types[code - 0xc0];
  if (*type == '?') return 0; /* an extension, or no msgpack */
  if (*type == 'b') return *number = code & 1u, 1;
  if (!hive_big(from, sizes[code - 0xc0], number)) return 0;
  if (*type == 'i') {
    unsigned unused = 64u - 8u * sizes[code - 0xc0];
    *number = *number << unused;
    if (unused && *number >> 63) *number = *number >> unused | ~(uint64_t)0 << (64u - unused);
    else *number = *number >> unused;
  }
  if (*type == 'f') {
    uint32_t bits = (uint32_t)*number;
    float narrow;
    double wide;
    memcpy(&narrow, &bits, sizeof narrow);
    wide = narrow;
    memcpy(number, &wide, sizeof wide);
  }
  if (*type == 'd') *type = 'f';
  return 1;
}

/* Passes one value. */
static int hive_skip(hive_value *from, int depth) {
  char type;
  uint64_t number;
  const uint8_t *bytes;
  if (depth > HIVE_MOST_DEPTH || !hive_head(from, &type, &number)) return 0;
  if (type == 's' || type == 'B') return number <= (uint64_t)(from->end - from->at) && hive_take(from, (size_t)number, &bytes);
  if (type != 'a' && type != 'm') return 1;
  for (number *= type == 'm' ? 2 : 1; number > 0; number--)
    if (!hive_skip(from, depth + 1)) return 0;
  return 1;
}

/* Finds the value of a key in a map. */
static int hive_find(hive_value map, const char *key, hive_value *value) {
  char type;
  uint64_t entries, length;
  const uint8_t *text;
  if (!hive_head(&map, &type, &entries) || type != 'm') return 0;
  for (; entries > 0; entries--) {
    if (!hive_head(&map, &type, &length) || type != 's' || length > HIVE_MOST_REQUEST) return 0;
    if (!hive_take(&map, (size_t)length, &text)) return 0;
    *value = map;
    if (length == strlen(key) && memcmp(text, key, (size_t)length) == 0) return 1;
    if (!hive_skip(&map, 0)) return 0;
  }
  return 0;
}

/* Reads an array's length; the cursor is then at its first item. */
static int hive_items(hive_value *from, uint64_t *count) {
  char type;
  return hive_head(from, &type, count) && type == 'a';
}

static int hive_integer(hive_value *from, uint64_t *number) {
  char type;
  return hive_head(from, &type, number) && (type == 'u' || type == 'i');
}

/* Returns the number of an option, `otherwise` if there is none. */
static inline double hive_option(hive_value options, const char *key, double otherwise) {
  hive_value value;
  char type;
  uint64_t number;
  double wide;
  if (!hive_find(options, key, &value) || !hive_head(&value, &type, &number)) return otherwise;
  if (type == 'u' || type == 'b') return (double)number;
  if (type == 'i') return (double)(int64_t)number;
  if (type != 'f') return otherwise;
  memcpy(&wide, &number, sizeof wide);
  return wide;
}

/* Copies the text of an option with a 0 at its end; returns 0 if there is none, or no room for it. */
static inline int hive_option_text(hive_value options, const char *key, char *text, size_t room) {
  hive_value value;
  char type;
  uint64_t length;
  const uint8_t *bytes;
  if (!hive_find(options, key, &value) || !hive_head(&value, &type, &length) || type != 's' || length >= room) return 0;
  if (!hive_take(&value, (size_t)length, &bytes)) return 0;
  memcpy(text, bytes, (size_t)length);
  text[length] = 0;
  return 1;
}

/* ---- writing msgpack into a buffer, whose first 4 bytes are for the length ---- */

typedef struct {
  uint8_t *bytes;
  size_t size, room;
  int is_short; /* there was no room */
} hive_buffer;

static void hive_put(hive_buffer *to, const void *bytes, size_t size) {
  if (to->is_short || to->room - to->size < size) {
    to->is_short = 1;
    return;
  }
  if (size) memcpy(to->bytes + to->size, bytes, size);
  to->size += size;
}

static void hive_put_head(hive_buffer *to, uint8_t code, uint64_t number, int size) {
  uint8_t head[9];
  int i;
  head[0] = code;
  for (i = size; i > 0; i--, number >>= 8) head[i] = (uint8_t)number;
  hive_put(to, head, (size_t)size + 1);
}

static void hive_put_nil(hive_buffer *to) { hive_put_head(to, 0xc0, 0, 0); }
static void hive_put_bool(hive_buffer *to, int value) { hive_put_head(to, value ? 0xc3 : 0xc2, 0, 0); }
static void hive_put_integer(hive_buffer *to, int64_t value) { hive_put_head(to, 0xd3, (uint64_t)value, 8); }
static void hive_put_map(hive_buffer *to, unsigned entries) { hive_put_head(to, 0xde, entries, 2); }
static void hive_put_array(hive_buffer *to, unsigned items) { hive_put_head(to, 0xdd, items, 4); }

static void hive_put_text(hive_buffer *to, const char *text) {
  size_t length = strlen(text);
  if (length > HIVE_MOST_ERROR) length = HIVE_MOST_ERROR;
  hive_put_head(to, 0xda, length, 2);
  hive_put(to, text, length);
}

static void hive_put_bytes(hive_buffer *to, const void *bytes, size_t size) {
  hive_put_head(to, 0xc6, size, 4);
  hive_put(to, bytes, size);
}

static void hive_put_number(hive_buffer *to, double value) {
  uint64_t bits;
  memcpy(&bits, &value, sizeof bits);
  hive_put_head(to, 0xcb, bits, 8);
}

/* ---- spaces ---- */

static size_t hive_element_bytes(const hive_space *space) {
  static const struct { const char *name; size_t size; } sizes[] = {
      {"uint8", 1}, {"int8", 1}, {"uint16", 2}, {"int16", 2}, {"uint32", 4},
      {"int32", 4}, {"int64", 8}, {"float32", 4}, {"float64", 8}};
  size_t i;
  if (space->kind == HIVE_MULTI_BINARY) return 1;
  if (space->kind != HIVE_BOX) return 8;
  for (i = 0; i < sizeof sizes / sizeof *sizes; i++)
    if (space->dtype && strcmp(space->dtype, sizes[i].name) == 0) return sizes[i].size;
  return 0;
}

static size_t hive_space_bytes(const hive_space *space) {
  size_t bytes = hive_element_bytes(space);
  int axis, axes = space->kind == HIVE_DISCRETE ? 0 : space->kind == HIVE_MULTI_DISCRETE ? 1 : space->axes;
  for (axis = 0; axis < axes; axis++) bytes *= space->shape[axis];
  return bytes;
}

static void hive_put_bound(hive_buffer *to, const char *key, double bound) {
  hive_put_text(to, key);
  if (isinf(bound)) hive_put_nil(to);
  else hive_put_number(to, bound);
}

static void hive_put_array_space(hive_buffer *to, const hive_space *space) {
  static const char *const kinds[] = {"box", "discrete", "multi_discrete", "multi_binary"};
  int i;
  hive_put_map(to, space->kind == HIVE_BOX ? 5 : space->kind == HIVE_DISCRETE ? 3 : 2);
  hive_put_text(to, "type");
  hive_put_text(to, kinds[space->kind]);
  if (space->kind == HIVE_DISCRETE) {
    hive_put_text(to, "n");
    hive_put_integer(to, space->n);
    hive_put_text(to, "start");
    hive_put_integer(to, space->start);
  } else if (space->kind == HIVE_MULTI_DISCRETE) {
    hive_put_text(to, "nvec");
    hive_put_array(to, (unsigned)space->shape[0]);
    for (i = 0; i < (int)space->shape[0]; i++) hive_put_integer(to, space->nvec[i]);
  } else {
    hive_put_text(to, "shape");
    hive_put_array(to, (unsigned)space->axes);
    for (i = 0; i < space->axes; i++) hive_put_integer(to, (int64_t)space->shape[i]);
  }
  if (space->kind == HIVE_BOX) {
    hive_put_text(to, "dtype");
    hive_put_text(to, space->dtype);
    hive_put_bound(to, "low", space->low);
    hive_put_bound(to, "high", space->high);
  }
}

static void hive_put_space(hive_buffer *to, const hive_space *parts, int count) {
  int i;
  if (parts[0].name == NULL) {
    hive_put_array_space(to, parts);
    return;
  }
  hive_put_map(to, 2);
  hive_put_text(to, "type");
  hive_put_text(to, "dict");
  hive_put_text(to, "parts");
  hive_put_map(to, (unsigned)count);
  for (i = 0; i < count; i++) {
    hive_put_text(to, parts[i].name);
    hive_put_array_space(to, &parts[i]);
  }
}

/* ---- the conversation ---- */

typedef struct {
  const hive_program *program;
  int socket;
  uint8_t *request; /* room for the longest one */
  size_t request_room;
  hive_buffer answer;
  uint32_t count;
  void **worlds;
  uint8_t *observations[HIVE_MOST_PARTS], *actions[HIVE_MOST_PARTS]; /* [count, ...] of each part */
  size_t observation_bytes[HIVE_MOST_PARTS], action_bytes[HIVE_MOST_PARTS]; /* of one environment */
  float *rewards, *infos; /* [count]; [infos, count] */
  uint8_t *terminated, *truncated;
} hive_session;

static int hive_read(int socket, uint8_t *to, size_t size) {
  while (size > 0) {
    ssize_t read = recv(socket, to, size, 0);
    if (read < 0 && errno == EINTR) continue;
    if (read <= 0) return 0;
    to += read;
    size -= (size_t)read;
  }
  return 1;
}

static int hive_send(hive_session *session) {
  hive_buffer *answer = &session->answer;
  size_t length = answer->size - 4, sent = 0;
  int i;
  if (answer->is_short) return 0;
  for (i = 0; i < 4; i++) answer->bytes[i] = (uint8_t)(length >> 8 * i);
  while (sent < answer->size) {
    ssize_t part = send(session->socket, answer->bytes + sent, answer->size - sent, HIVE_NO_SIGNAL);
    if (part < 0 && errno == EINTR) continue;
    if (part <= 0) return 0;
    sent += (size_t)part;
  }
  return 1;
}

static void *hive_allocated(size_t count, size_t size) {
  void *memory = calloc(count ? count : 1, size ? size : 1);
  if (memory == NULL) fprintf(stderr, "no memory for %zu x %zu bytes\n", count, size), exit(1);
  return memory;
}

/* Begins an answer with `fields` fields beside its number. */
static void hive_begin(hive_session *session, int is_hello, uint64_t number, unsigned fields) {
  hive_buffer *to = &session->answer;
  to->size = 4;
  to->is_short = 0;
  hive_put_map(to, fields + (is_hello ? 2 : 1));
  if (is_hello) {
    hive_put_text(to, "version");
    hive_put_integer(to, HIVE_VERSION);
  }
  hive_put_text(to, "number");
  hive_put_integer(to, (int64_t)number);
}

/* Answers with an error. */
static int hive_refuse(hive_session *session, int is_hello, uint64_t number, const char *text) {
  hive_begin(session, is_hello, number, 1);
  hive_put_text(&session->answer, "error");
  hive_put_text(&session->answer, text);
  hive_send(session);
  fprintf(stderr, "%s\n", text);
  return 0;
}

/* Allocates everything for the environments of a session. */
static void hive_allocate(hive_session *session) {
  const hive_program *program = session->program;
  size_t count = session->count, answer = 8192 + HIVE_MOST_REQUEST, request = HIVE_MOST_REQUEST;
  int i;
  for (i = 0; i < program->observation_parts; i++) {
    session->observation_bytes[i] = hive_space_bytes(&program->observation[i]);
    session->observations[i] = (uint8_t *)hive_allocated(count, session->observation_bytes[i]);
    answer += count * session->observation_bytes[i];
  }
  for (i = 0; i < program->action_parts; i++) {
    session->action_bytes[i] = hive_space_bytes(&program->action[i]);
    session->actions[i] = (uint8_t *)hive_allocated(count, session->action_bytes[i]);
    request += count * session->action_bytes[i];
  }
  answer += count * (6 + 4 * (size_t)program->infos);
  session->worlds = (void **)hive_allocated(count, sizeof(void *));
  session->rewards = (float *)hive_allocated(count, sizeof(float));
  session->infos = (float *)hive_allocated(count * (size_t)program->infos, sizeof(float));
  session->terminated = (uint8_t *)hive_allocated(count, 1);
  session->truncated = (uint8_t *)hive_allocated(count, 1);
  free(session->answer.bytes);
  session->answer.bytes = (uint8_t *)hive_allocated(answer, 1);
  session->answer.room = answer;
  session->request_room = request;
}

static void hive_release(hive_session *session) {
  uint32_t b;
  int i;
  for (b = 0; session->worlds && b < session->count; b++)
    if (session->worlds[b] && session->program->destroy) session->program->destroy(session->worlds[b]);
  for (i = 0; i < HIVE_MOST_PARTS; i++) free(session->observations[i]), free(session->actions[i]);
  free(session->worlds), free(session->rewards), free(session->infos);
  free(session->terminated), free(session->truncated), free(session->answer.bytes), free(session->request);
  close(session->socket);
}

static int hive_hello(hive_session *session, hive_value request, uint64_t number) {
  const hive_program *program = session->program;
  hive_buffer *to = &session->answer;
  const char *secret = getenv("HIVE_ENV_SECRET");
  hive_value indices, options;
  uint64_t version, count, items, index, b;
  int i;
  if (!hive_find(request, "version", &indices) || !hive_integer(&indices, &version) || version != HIVE_VERSION)
    return hive_refuse(session, 1, number, "this program speaks version 1");
  if (session->count) return hive_refuse(session, 1, number, "a second hello");
  if (!hive_find(request, "count", &indices) || !hive_integer(&indices, &count) || count < 1 || count > HIVE_MOST_COUNT)
    return hive_refuse(session, 1, number, "a wrong count");
  if (!hive_find(request, "indices", &indices) || !hive_items(&indices, &items) || items != count ||
      !hive_find(request, "options", &options) || !hive_items(&options, &items) || items != count)
    return hive_refuse(session, 1, number, "wrong indices or options");
  session->count = (uint32_t)count;
  hive_allocate(session);
  for (b = 0; b < count; b++) {
    hive_value own = options;
    if (!hive_integer(&indices, &index) || !hive_skip(&options, 0)) return hive_refuse(session, 1, number, "wrong indices");
    if ((session->worlds[b] = program->make((int64_t)index, own)) == NULL)
      return hive_refuse(session, 1, number, "cannot make an environment");
  }
  hive_begin(session, 1, number, 9);
  hive_put_text(to, "secret");
  hive_put_text(to, secret ? secret : "");
  hive_put_text(to, "name");
  hive_put_text(to, program->name ? program->name : "");
  hive_put_text(to, "observation");
  hive_put_space(to, program->observation, program->observation_parts);
  hive_put_text(to, "action");
  hive_put_space(to, program->action, program->action_parts);
  hive_put_text(to, "count");
  hive_put_integer(to, (int64_t)count);
  hive_put_text(to, "deterministic");
  hive_put_bool(to, program->deterministic);
  hive_put_text(to, "max_episode_steps");
  if (program->max_episode_steps > 0) hive_put_integer(to, program->max_episode_steps);
  else hive_put_nil(to);
  hive_put_text(to, "info");
  hive_put_array(to, (unsigned)program->infos);
  for (i = 0; i < program->infos; i++) hive_put_text(to, program->info[i]);
  hive_put_text(to, "renders");
  hive_put_bool(to, program->render != NULL);
  /* The buffer of requests grows now, because `request` is of no use any more. */
  free(session->request);
  session->request = (uint8_t *)hive_allocated(session->request_room, 1);
  return hive_send(session);
}

/* Writes the field `observations` of the first `count` environments. */
static void hive_put_observations(hive_session *session, size_t count) {
  const hive_program *program = session->program;
  hive_buffer *to = &session->answer;
  int i, is_alone = program->observation[0].name == NULL;
  hive_put_text(to, "observations");
  if (!is_alone) hive_put_map(to, (unsigned)program->observation_parts);
  for (i = 0; i < program->observation_parts; i++) {
    if (!is_alone) hive_put_text(to, program->observation[i].name);
    hive_put_bytes(to, session->observations[i], count * session->observation_bytes[i]);
  }
}

/* Points to the row `b` of each part. */
static void hive_rows(uint8_t *const *arrays, const size_t *bytes, int parts, size_t b, void **rows) {
  int i;
  for (i = 0; i < parts; i++) rows[i] = arrays[i] + b * bytes[i];
}

static int hive_reset(hive_session *session, hive_value request, uint64_t number) {
  const hive_program *program = session->program;
  hive_value which, seeds, options, nil;
  uint64_t items, given, b, seed, i;
  char type;
  void *rows[HIVE_MOST_PARTS];
  if (!hive_find(request, "which", &which) || !hive_items(&which, &items) || items > session->count ||
      !hive_find(request, "options", &options) || !hive_items(&options, &given) || given != items ||
      !hive_find(request, "seeds", &seeds))
    return hive_refuse(session, 0, number, "a wrong reset");
  nil = seeds;
  if (!hive_head(&nil, &type, &given)) return hive_refuse(session, 0, number, "wrong seeds");
  if (type == 'a') seeds = nil;
  if (type == 'a' ? given != items : type != 'n') return hive_refuse(session, 0, number, "wrong seeds");
  for (i = 0; i < items; i++) {
    hive_value own = options;
    const char *error;
    if (!hive_integer(&which, &b) || b >= session->count || !hive_skip(&options, 0) ||
        (type == 'a' && !hive_integer(&seeds, &seed)))
      return hive_refuse(session, 0, number, "a wrong reset");
    hive_rows(session->observations, session->observation_bytes, program->observation_parts, (size_t)i, rows);
    if ((error = program->reset(session->worlds[b], type == 'a' ? &seed : NULL, own, rows)) != NULL)
      return hive_refuse(session, 0, number, error);
  }
  hive_begin(session, 0, number, 1);
  hive_put_observations(session, (size_t)items);
  return hive_send(session);
}

/* Copies the actions of a request to aligned memory. */
static int hive_read_actions(hive_session *session, hive_value request) {
  const hive_program *program = session->program;
  hive_value actions, part;
  const uint8_t *bytes;
  uint64_t size;
  char type;
  int i;
  if (!hive_find(request, "actions", &actions)) return 0;
  for (i = 0; i < program->action_parts; i++) {
    part = actions;
    if (program->action[i].name && !hive_find(actions, program->action[i].name, &part)) return 0;
    if (!hive_head(&part, &type, &size) || type != 'B' || size != session->count * session->action_bytes[i]) return 0;
    if (!hive_take(&part, (size_t)size, &bytes)) return 0;
    memcpy(session->actions[i], bytes, (size_t)size);
  }
  return 1;
}

static int hive_step(hive_session *session, hive_value request, uint64_t number) {
  const hive_program *program = session->program;
  hive_buffer *to = &session->answer;
  void *rows[HIVE_MOST_PARTS], *actions[HIVE_MOST_PARTS];
  float infos[HIVE_MOST_PARTS];
  uint32_t b;
  int i;
  if (!hive_read_actions(session, request)) return hive_refuse(session, 0, number, "wrong actions");
  for (b = 0; b < session->count; b++) {
    hive_result result;
    const char *error;
    memset(&result, 0, sizeof result);
    result.info = infos;
    for (i = 0; i < program->infos; i++) infos[i] = NAN;
    hive_rows(session->observations, session->observation_bytes, program->observation_parts, b, rows);
    hive_rows(session->actions, session->action_bytes, program->action_parts, b, actions);
    if ((error = program->step(session->worlds[b], (const void *const *)actions, rows, &result)) != NULL)
      return hive_refuse(session, 0, number, error);
    session->rewards[b] = result.reward;
    session->terminated[b] = result.terminated != 0;
    session->truncated[b] = result.truncated != 0;
    for (i = 0; i < program->infos; i++) session->infos[(size_t)i * session->count + b] = infos[i];
  }
  hive_begin(session, 0, number, program->infos ? 5 : 4);
  hive_put_observations(session, session->count);
  hive_put_text(to, "rewards");
  hive_put_bytes(to, session->rewards, 4 * (size_t)session->count);
  hive_put_text(to, "terminated");
  hive_put_bytes(to, session->terminated, session->count);
  hive_put_text(to, "truncated");
  hive_put_bytes(to, session->truncated, session->count);
  if (program->infos) {
    hive_put_text(to, "info");
    hive_put_map(to, (unsigned)program->infos);
    for (i = 0; i < program->infos; i++) {
      hive_put_text(to, program->info[i]);
      hive_put_bytes(to, session->infos + (size_t)i * session->count, 4 * (size_t)session->count);
    }
  }
  return hive_send(session);
}

static int hive_render(hive_session *session, hive_value request, uint64_t number) {
  hive_buffer *to = &session->answer;
  hive_value value;
  uint64_t b;
  uint32_t height = 0, width = 0;
  const uint8_t *rgb = NULL;
  const char *error;
  size_t size;
  if (!session->program->render) return hive_refuse(session, 0, number, "this program does not render");
  if (!hive_find(request, "environment", &value) || !hive_integer(&value, &b) || b >= session->count)
    return hive_refuse(session, 0, number, "a wrong environment");
  if ((error = session->program->render(session->worlds[b], &height, &width, &rgb)) != NULL)
    return hive_refuse(session, 0, number, error);
  size = (size_t)height * width * 3;
  if (to->room < size + 8192) { /* only for the first image */
    free(to->bytes);
    to->bytes = (uint8_t *)hive_allocated(size + 8192, 1);
    to->room = size + 8192;
  }
  hive_begin(session, 0, number, 3);
  hive_put_text(to, "height");
  hive_put_integer(to, height);
  hive_put_text(to, "width");
  hive_put_integer(to, width);
  hive_put_text(to, "pixels");
  hive_put_bytes(to, rgb, size);
  return hive_send(session);
}

static int hive_is(hive_value kind, const char *name) {
  char type;
  uint64_t length;
  const uint8_t *text;
  return hive_head(&kind, &type, &length) && type == 's' && length == strlen(name) &&
         hive_take(&kind, (size_t)length, &text) && memcmp(text, name, (size_t)length) == 0;
}

/* Answers every request of one connection; returns 1 after `close`, 0 after a failure or when hive is gone. */
static int hive_answer(hive_session *session) {
  for (;;) {
    uint8_t head[4];
    size_t size;
    hive_value request, value;
    uint64_t number;
    int is_fine;
    if (!hive_read(session->socket, head, 4)) return 0;
    size = (size_t)head[0] | (size_t)head[1] << 8 | (size_t)head[2] << 16 | (size_t)head[3] << 24;
    if (size > session->request_room) return fprintf(stderr, "a request of %zu bytes\n", size), 0;
    if (!hive_read(session->socket, session->request, size)) return 0;
    request.at = session->request;
    request.end = session->request + size;
    if (!hive_find(request, "number", &value) || !hive_integer(&value, &number)) return 0;
    if (!hive_find(request, "request", &value)) return 0;
    if (hive_is(value, "hello")) is_fine = hive_hello(session, request, number);
    else if (!session->count) return hive_refuse(session, 0, number, "hello comes first");
    else if (hive_is(value, "step")) is_fine = hive_step(session, request, number);
    else if (hive_is(value, "reset")) is_fine = hive_reset(session, request, number);
    else if (hive_is(value, "render")) is_fine = hive_render(session, request, number);
    else if (hive_is(value, "close")) {
      hive_begin(session, 0, number, 0);
      return hive_send(session);
    } else return hive_refuse(session, 0, number, "an unknown request");
    if (!is_fine) return 0;
  }
}

static int hive_place(const char *address, struct sockaddr_un *local, struct sockaddr_in *tcp) {
  const char *colon = strrchr(address, ':');
  char host[64];
  if (strncmp(address, "unix:", 5) == 0) {
    memset(local, 0, sizeof *local);
    local->sun_family = AF_UNIX;
    if (strlen(address + 5) >= sizeof local->sun_path) return -1;
    strcpy(local->sun_path, address + 5);
    return AF_UNIX;
  }
  if (colon == NULL || (size_t)(colon - address) >= sizeof host) return -1;
  memcpy(host, address, (size_t)(colon - address));
  host[colon - address] = 0;
  memset(tcp, 0, sizeof *tcp);
  tcp->sin_family = AF_INET;
  tcp->sin_port = htons((uint16_t)atoi(colon + 1));
  if (inet_pton(AF_INET, strcmp(host, "localhost") ? host : "127.0.0.1", &tcp->sin_addr) != 1) return -1;
  return AF_INET;
}

/* Returns a connection with hive, by connecting to it, or by listening at an address; -1 after an error. */
static int hive_connection(void) {
  const char *listens = getenv("HIVE_ENV_LISTEN"), *address = listens ? listens : getenv("HIVE_ENV_ADDRESS");
  struct sockaddr_un local;
  struct sockaddr_in tcp;
  int family = address ? hive_place(address, &local, &tcp) : -1, one = 1, made, result;
  const struct sockaddr *to = family == AF_UNIX ? (const struct sockaddr *)&local : (const struct sockaddr *)&tcp;
  socklen_t size = family == AF_UNIX ? (socklen_t)sizeof local : (socklen_t)sizeof tcp;
  if (family < 0 || (made = socket(family, SOCK_STREAM, 0)) < 0) {
    fprintf(stderr, "hive starts this program: HIVE_ENV_ADDRESS or HIVE_ENV_LISTEN is missing or wrong\n");
    return -1;
  }
  if (!listens) {
    result = connect(made, to, size);
  } else {
    if (family == AF_UNIX) unlink(local.sun_path);
    else setsockopt(made, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    result = bind(made, to, size) || listen(made, 1);
    if (result == 0) {
      int accepted = accept(made, NULL, NULL);
      close(made);
      made = accepted;
      result = accepted < 0;
    }
  }
  if (result) return perror(address), -1;
  if (family == AF_INET) setsockopt(made, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  return made;
}

/* Answers hive until it is finished. Returns the exit status of the program. */
static inline int hive_serve(const hive_program *program) {
  hive_session session;
  int is_fine;
  if (program->observation_parts < 1 || program->observation_parts > HIVE_MOST_PARTS || program->action_parts < 1 ||
      program->action_parts > HIVE_MOST_PARTS || program->infos < 0 || program->infos > HIVE_MOST_PARTS)
    return fprintf(stderr, "a program has 1 to %d parts and at most as many values of info\n", HIVE_MOST_PARTS), 1;
  memset(&session, 0, sizeof session);
  session.program = program;
  if ((session.socket = hive_connection()) < 0) return 1;
  session.request_room = HIVE_MOST_REQUEST;
  session.request = (uint8_t *)hive_allocated(session.request_room, 1);
  session.answer.room = HIVE_MOST_REQUEST;
  session.answer.bytes = (uint8_t *)hive_allocated(session.answer.room, 1);
  is_fine = hive_answer(&session);
  hive_release(&session);
  return !is_fine;
}

#endif
