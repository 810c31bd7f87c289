/* A plug-in that does what its option "do" says. Variants of it, that must be refused, are made by
 * definitions. Where it is loaded at all, its constructor writes the file that
 * DSTUNE_TEST_PLUGIN_MARK names: a refusal leaves none. */

#include <dstune/workload.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#if defined(SUBJECT_VERSION)
const uint32_t dstune_workload_stamp[2] = {SUBJECT_MAGIC, SUBJECT_VERSION};
#elif !defined(SUBJECT_WITHOUT_STAMP)
DSTUNE_WORKLOAD_DEFINE_STAMP
#endif

#if defined(SUBJECT_CALLS)
extern int SUBJECT_CALLS(void);
#endif

static void nap(void) {
  const struct timespec millisecond = {0, 1000000};
  nanosleep(&millisecond, NULL);
}

__attribute__((constructor)) static void leave_a_mark(void) {
  const char* name = getenv("DSTUNE_TEST_PLUGIN_MARK");
  const char* hang = getenv("DSTUNE_TEST_PLUGIN_HANG");
  FILE* file = name == NULL ? NULL : fopen(name, "w");
  if (file != NULL) fclose(file);
  while (hang != NULL) nap();
}

typedef struct {
  const dstune_group* group;
  char action[64];
  int is_victim; /* of what the action does to one micro-batch size */
  int is_last;   /* the rank that does it where one alone does */
  int64_t micro_batch;
} subject;

static int alive; /* experiments that were built and not destroyed */

static int does(const subject* self, const char* action) {
  return self->is_victim && strcmp(self->action, action) == 0;
}

static void read_action(subject* self, const char* options) {
  const char* at = strstr(options, "\"do\":\"");
  size_t length;
  if (at == NULL) return;
  at += strlen("\"do\":\"");
  length = strcspn(at, "\"");
  if (length < sizeof self->action) memcpy(self->action, at, length);
}

dstune_status dstune_workload_build(const dstune_configuration* configuration,
                                    const dstune_group* group, void** workload) {
  subject* self = calloc(1, sizeof *self);
  char text[160];
  if (self == NULL) return DSTUNE_OUT_OF_MEMORY;
  self->group = group;
  self->micro_batch = configuration->micro_batch;
  self->is_victim = configuration->micro_batch == 2;
  self->is_last = group->group_rank == group->group_size - 1;
  read_action(self, configuration->options);
  if (alive != 0) return group->fail(group, DSTUNE_FAILED, "the last experiment was not destroyed");
  if (does(self, "describe")) {
    snprintf(text, sizeof text, "%s z%d m%d a%d g%d l%d %s %s t%d b%lld %s",
             configuration->experiment, (int)configuration->zero_stage,
             (int)configuration->micro_batch, (int)configuration->accumulation_steps,
             (int)configuration->global_batch, (int)configuration->sequence_length,
             configuration->precision, configuration->recompute, (int)configuration->threads,
             (long long)configuration->device_memory_bytes, configuration->ds_config);
    free(self);
    return group->fail(group, DSTUNE_FAILED, text);
  }
  if (does(self, "fail in build") && self->is_last) {
    free(self);
    return group->fail(group, DSTUNE_FAILED, "planted in build");
  }
  if (does(self, "collective in build") || does(self, "fail in build")) {
    const dstune_status status = group->barrier(group);
    if (status != DSTUNE_OK) {
      free(self);
      return status;
    }
  }
  if (does(self, "out of memory in build")) {
    free(self);
    return group->fail(group, DSTUNE_OUT_OF_MEMORY, "planted: 31 GiB are too many");
  }
  ++alive;
  *workload = self;
  return DSTUNE_OK;
}

/* What may go wrong at step 2, while the peers are on their way into a collective. */
static dstune_status misbehave(const subject* self) {
  const dstune_group* group = self->group;
  float number = 0;
  if (does(self, "wrong status")) return 17;
  if (does(self, "wrong root")) return group->broadcast(group, &number, 4, group->group_size);
  if (does(self, "wrong element")) return group->all_reduce_mean(group, &number, 1, 5);
  if (does(self, "null buffer")) return group->all_gather(group, NULL, NULL, 8);
  if (does(self, "say ended")) return DSTUNE_ENDED;
  if (does(self, "crash everywhere")) raise(SIGSEGV);
  if (!self->is_last) return DSTUNE_OK;
  if (does(self, "crash")) raise(SIGSEGV);
  if (does(self, "close descriptors")) {
    int descriptor;
    for (descriptor = 0; descriptor < 1024; ++descriptor) close(descriptor);
  }
  if (does(self, "say no text")) return group->fail(group, DSTUNE_FAILED, "\xff\xc3\x1b[31m red");
  if (does(self, "out of memory in step")) {
    return group->fail(group, DSTUNE_OUT_OF_MEMORY, "planted: no room for the step");
  }
  if (does(self, "fail in step")) return group->fail(group, DSTUNE_FAILED, "planted in step 2");
  if (does(self, "fail silently")) return DSTUNE_FAILED;
  if (does(self, "another collective")) return group->barrier(group);
  while (does(self, "hang")) nap();
  while (does(self, "wait for the end")) {
    const dstune_status status = group->poll(group);
    if (status != DSTUNE_OK) return status;
    nap();
  }
  return DSTUNE_OK;
}

/* Element k of rank r is r + k, so the mean over the ranks is (size - 1) / 2 + k. */
static dstune_status check_averages(const dstune_group* group) {
  enum { count = 5000 };
  const int size = group->group_size, rank = group->group_rank;
  float* data = malloc(sizeof(float) * count * (size_t)size);
  float part[count];
  dstune_status status;
  int k, wrong = 0;
  if (data == NULL) return DSTUNE_OUT_OF_MEMORY;
  for (k = 0; k < count * size; ++k) data[k] = (float)(rank + k);
  status = group->reduce_scatter_mean(group, part, data, count, DSTUNE_F32);
  for (k = 0; k < count; ++k) wrong += part[k] != (float)(size - 1) / 2 + (float)(rank * count + k);
  if (status == DSTUNE_OK) {
    status = group->all_reduce_mean(group, data, (uint64_t)(count * size), DSTUNE_F32);
  }
  for (k = 0; k < count * size; ++k) wrong += data[k] != (float)(size - 1) / 2 + (float)k;
  free(data);
  if (status == DSTUNE_OK && wrong) return group->fail(group, DSTUNE_FAILED, "a mean is wrong");
  return status;
}

/* A number of bytes that is no multiple of anything. */
static dstune_status check_bytes(const dstune_group* group, size_t bytes) {
  const int size = group->group_size, rank = group->group_rank;
  unsigned char *all = malloc(bytes * (size_t)size + 1), *mine = malloc(bytes + 1);
  dstune_status status = DSTUNE_OUT_OF_MEMORY;
  int root, wrong = 0;
  size_t k;
  if (all != NULL && mine != NULL) {
    for (k = 0; k < bytes; ++k) mine[k] = (unsigned char)(rank * 31 + (int)(k % 251));
    all[bytes * (size_t)size] = 0xA5;
    mine[bytes] = 0xA5;
    status = group->all_gather(group, all, mine, bytes);
    for (k = 0; k < bytes * (size_t)size; ++k) {
      wrong += all[k] != (unsigned char)((int)(k / bytes) * 31 + (int)(k % bytes % 251));
    }
    for (root = 0; root < size && status == DSTUNE_OK; ++root) {
      for (k = 0; k < bytes; ++k) mine[k] = (unsigned char)(rank + 1);
      status = group->broadcast(group, mine, bytes, root);
      for (k = 0; k < bytes; ++k) wrong += mine[k] != (unsigned char)(root + 1);
    }
    wrong += all[bytes * (size_t)size] != 0xA5 || mine[bytes] != 0xA5;
  }
  free(all);
  free(mine);
  if (status == DSTUNE_OK && wrong) return group->fail(group, DSTUNE_FAILED, "bytes are wrong");
  return status;
}

static dstune_status check_collectives(const dstune_group* group) {
  static const size_t sizes[] = {1, 2, 3, 4, 1001, 70000, 1500001};
  /* 1 and 3 as bf16. */
  uint16_t number = group->group_rank % 2 == 0 ? 0x3F80 : 0x4040;
  dstune_status status = check_averages(group);
  size_t i;
  for (i = 0; i < sizeof sizes / sizeof sizes[0] && status == DSTUNE_OK; ++i) {
    status = check_bytes(group, sizes[i]);
  }
  if (status == DSTUNE_OK) status = group->barrier(group);
  if (status == DSTUNE_OK) status = group->poll(group);
  if (status == DSTUNE_OK) status = group->all_reduce_mean(group, &number, 1, DSTUNE_BF16);
  if (status == DSTUNE_OK && group->group_size == 2 && number != 0x4000) {
    return group->fail(group, DSTUNE_FAILED, "a mean in bf16 is wrong");
  }
  return status;
}

dstune_status dstune_workload_step(void* workload, int64_t number, dstune_step* step) {
  const subject* self = workload;
  const dstune_group* group = self->group;
  float value = (float)group->group_rank;
  dstune_status status = DSTUNE_OK;
  if (number == 2) status = misbehave(self);
  if (status != DSTUNE_OK) return status;
  if (does(self, "check collectives") && number < 2) status = check_collectives(group);
  if (status == DSTUNE_OK) status = group->all_reduce_mean(group, &value, 1, DSTUNE_F32);
  /* One that does not look at what it is told is ended all the same. */
  if (status != DSTUNE_OK && !does(self, "another collective")) return status;
  if (does(self, "not a time")) {
    step->step_s = strtod("nan", NULL);
    return DSTUNE_OK;
  }
  if (does(self, "for ever")) {
    step->step_s = 1e308;
    return DSTUNE_OK;
  }
  step->loss = 1.0 / (double)(1 + number) + (double)value;
  step->step_s = does(self, "wrong time") ? -1 : 0.001;
  step->forward_s = 0.0004;
  step->backward_s = 0.0005;
  step->update_s = 0.0001;
  return DSTUNE_OK;
}

#if !defined(SUBJECT_WITHOUT_REPORT)
dstune_status dstune_workload_report(void* workload, dstune_usage* usage) {
  const subject* self = workload;
#if defined(SUBJECT_CALLS)
  if (SUBJECT_CALLS() != 0) return DSTUNE_FAILED;
#endif
  usage->device_bytes = 1000 * self->micro_batch;
  usage->host_bytes = 24;
  usage->parameters = 500;
  if (does(self, "too large")) usage->device_bytes = (int64_t)1 << 50;
  if (does(self, "negative bytes")) usage->host_bytes = -1;
  if (does(self, "endless bytes")) usage->host_bytes = INT64_MAX;
  if (does(self, "endless work")) usage->flops_per_step = 1e308;
  return DSTUNE_OK;
}
#endif

void dstune_workload_destroy(void* workload) {
  const subject* self = workload;
  while (does(self, "hang in destroy") && self->is_last) nap();
  --alive;
  free(workload);
}
