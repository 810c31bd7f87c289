/* A workload plug-in to copy: stochastic gradient descent with momentum on a problem of one line,
 * run as ZeRO runs a training: what is cut into shards, and which collectives that costs, follows
 * the stage. Its step time depends on stage, micro-batch, accumulation and group size; its losses
 * do not depend on the stage.
 *
 * The problem: parameter w[i] should be goal(i); sample s sees it with noise. A sample's loss is
 * the mean of (w[i] - seen[s][i])^2 / 2, so its gradient is (w[i] - seen[s][i]) (times 1/n, which
 * the learning rate takes up).
 *
 * Option: "parameters", how many (default 1,000,000). */

#include <dstune/workload.h>
#include <stdlib.h>
#include <string.h>

DSTUNE_WORKLOAD_DEFINE_STAMP

static const float learning_rate = 0.1f;
static const float momentum_kept = 0.9f;
static const int64_t default_parameters = 1000000;

/* Everything of one experiment on this rank. Pointers that the stage does not need are null. */
typedef struct {
  const dstune_group* group;
  int64_t parameters; /* rounded up to a multiple of the group's size */
  int64_t shard;      /* parameters / group_size */
  int64_t micro_batch, accumulation_steps, global_batch;
  int stage;
  int64_t device_bytes;
  float* w;        /* [parameters]; at stage 3 only whole during a micro-step */
  float* gradient; /* [parameters] */
  float* momentum; /* [parameters]; from stage 1 on [shard] */
  float* reduced;  /* [shard], stages 2 and 3: of one micro-step */
  float* summed;   /* [shard], stages 2 and 3: over the micro-steps */
  float* own;      /* [shard], stage 3: this rank's part of w between the steps */
} workload;

/* An integer among the options. A plug-in with more of them would bring a JSON library. */
static int64_t option(const char* options, const char* quoted_key, int64_t otherwise) {
  const char* at = strstr(options, quoted_key);
  if (at == NULL) return otherwise;
  at = strchr(at + strlen(quoted_key), ':');
  return at == NULL ? otherwise : (int64_t)strtoll(at + 1, NULL, 10);
}

static float* allocate(workload* work, int64_t count, int* failed) {
  float* memory = calloc((size_t)count, sizeof(float));
  if (memory == NULL) *failed = 1;
  work->device_bytes += count * (int64_t)sizeof(float);
  return memory;
}

dstune_status dstune_workload_build(const dstune_configuration* configuration,
                                    const dstune_group* group, void** result) {
  const int64_t wanted = option(configuration->options, "\"parameters\"", default_parameters);
  const int64_t size = group->group_size;
  workload* work = calloc(1, sizeof *work);
  int failed = 0;
  if (work == NULL) return group->fail(group, DSTUNE_OUT_OF_MEMORY, "no memory at all");
  if (wanted < 1 || wanted > ((int64_t)1 << 40)) {
    free(work);
    return group->fail(group, DSTUNE_FAILED, "the option parameters is no sensible number");
  }
  work->group = group;
  work->stage = configuration->zero_stage;
  work->micro_batch = configuration->micro_batch;
  work->accumulation_steps = configuration->accumulation_steps;
  work->global_batch = configuration->global_batch;
  work->shard = (wanted + size - 1) / size;
  work->parameters = work->shard * size;

  work->w = allocate(work, work->parameters, &failed);
  work->gradient = allocate(work, work->parameters, &failed);
  work->momentum = allocate(work, work->stage >= 1 ? work->shard : work->parameters, &failed);
  if (work->stage >= 2) {
    work->reduced = allocate(work, work->shard, &failed);
    work->summed = allocate(work, work->shard, &failed);
  }
  if (work->stage == 3) work->own = allocate(work, work->shard, &failed);
  if (failed) {
    dstune_workload_destroy(work);
    return group->fail(group, DSTUNE_OUT_OF_MEMORY, "malloc refused");
  }
  *result = work;
  return DSTUNE_OK;
}

/* The same numbers for a sample and parameter whoever computes them: in [-1, 1). */
static float noise(int64_t step, int64_t sample, int64_t index) {
  uint32_t bits = (uint32_t)(step * 2654435761LL + sample * 40503LL + index);
  bits ^= bits >> 16;
  bits *= 0x7feb352du;
  bits ^= bits >> 15;
  bits *= 0x846ca68bu;
  bits ^= bits >> 16;
  return (float)(bits >> 8) * (2.0f / 16777216.0f) - 1.0f;
}

static float goal(int64_t index) {
  return (float)(index % 7) - 3.0f;
}

/* Adds the micro-batch's mean gradient / accumulation_steps, and its summed loss. */
static double forward_backward(workload* work, int64_t step, int64_t first_sample) {
  const float share = 1.0f / (float)(work->micro_batch * work->accumulation_steps);
  double loss = 0;
  int64_t sample, i;
  for (sample = first_sample; sample < first_sample + work->micro_batch; ++sample) {
    for (i = 0; i < work->parameters; ++i) {
      const float error = work->w[i] - goal(i) - noise(step, sample, i);
      loss += 0.5 * (double)error * (double)error;
      work->gradient[i] += share * error;
    }
  }
  return loss / (double)work->parameters;
}

static void update(float* w, const float* gradient, float* momentum, int64_t count) {
  int64_t i;
  for (i = 0; i < count; ++i) {
    momentum[i] = momentum_kept * momentum[i] + gradient[i];
    w[i] -= learning_rate * momentum[i];
  }
}

/* One micro-step with the collectives that its stage has in each of them. */
static dstune_status micro_step(workload* work, int64_t step, int64_t first_sample, double* loss) {
  const dstune_group* group = work->group;
  const size_t shard_bytes = (size_t)work->shard * sizeof(float);
  dstune_status status;
  int64_t i;
  if (work->stage == 3) {
    status = group->all_gather(group, work->w, work->own, shard_bytes);
    if (status != DSTUNE_OK) return status;
  }
  if (work->stage >= 2) memset(work->gradient, 0, shard_bytes * (size_t)group->group_size);
  *loss += forward_backward(work, step, first_sample);
  if (work->stage < 2) return DSTUNE_OK;
  status = group->reduce_scatter_mean(group, work->reduced, work->gradient, (uint64_t)work->shard,
                                      DSTUNE_F32);
  for (i = 0; i < work->shard; ++i) work->summed[i] += work->reduced[i];
  return status;
}

/* Gradients that were not reduced yet, the update, and the parameters back on every rank. */
static dstune_status boundary(workload* work) {
  const dstune_group* group = work->group;
  const int64_t first = work->shard * group->group_rank;
  dstune_status status;
  if (work->stage < 2) {
    status = group->all_reduce_mean(group, work->gradient, (uint64_t)work->parameters, DSTUNE_F32);
    if (status != DSTUNE_OK) return status;
  }
  if (work->stage == 0) {
    update(work->w, work->gradient, work->momentum, work->parameters);
    return DSTUNE_OK;
  }
  if (work->stage == 3) {
    update(work->own, work->summed, work->momentum, work->shard);
    return DSTUNE_OK;
  }
  update(work->w + first, work->stage == 1 ? work->gradient + first : work->summed, work->momentum,
         work->shard);
  return group->all_gather(group, work->w, work->w + first, (uint64_t)work->shard * sizeof(float));
}

dstune_status dstune_workload_step(void* opaque, int64_t number, dstune_step* step) {
  workload* work = opaque;
  const dstune_group* group = work->group;
  const int64_t samples = work->micro_batch * work->accumulation_steps;
  double loss = 0;
  float mean_loss;
  dstune_status status;
  int64_t micro;
  if (work->stage < 2) {
    memset(work->gradient, 0, (size_t)work->parameters * sizeof(float));
  } else {
    memset(work->summed, 0, (size_t)work->shard * sizeof(float));
  }
  for (micro = 0; micro < work->accumulation_steps; ++micro) {
    const int64_t first = number * work->global_batch + group->group_rank * samples;
    status = micro_step(work, number, first + micro * work->micro_batch, &loss);
    if (status != DSTUNE_OK) return status;
  }
  status = boundary(work);
  if (status != DSTUNE_OK) return status;
  mean_loss = (float)(loss / (double)samples);
  status = group->all_reduce_mean(group, &mean_loss, 1, DSTUNE_F32);
  step->loss = (double)mean_loss;
  return status;
}

dstune_status dstune_workload_report(void* opaque, dstune_usage* usage) {
  const workload* work = opaque;
  usage->device_bytes = work->device_bytes;
  usage->parameters = work->parameters;
  /* About six operations a parameter and sample: this workload has no tokens. */
  usage->flops_per_step = 6.0 * (double)work->parameters * (double)work->global_batch;
  return DSTUNE_OK;
}

void dstune_workload_destroy(void* opaque) {
  workload* work = opaque;
  free(work->w);
  free(work->gradient);
  free(work->momentum);
  free(work->reduced);
  free(work->summed);
  free(work->own);
  free(work);
}
