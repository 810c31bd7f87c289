#include "fake_workers.hpp"

#include <gtest/gtest.h>

namespace dstune {

void FakeWorkers::send(int world_rank, Bytes data) {
  const dstune::Message message = decode(data);
  if (dead_.contains(world_rank)) return;
  if (const auto* assign = std::get_if<message::Assign>(&message)) {
    assigned(world_rank, *assign);
  } else if (const auto* incumbent = std::get_if<message::Incumbent>(&message)) {
    incumbent_of_attempt_[incumbent->attempt] = incumbent->incumbent;
    if (waiting_for_incumbent_.erase(incumbent->attempt) > 0) ended(world_rank, incumbent->attempt);
  } else if (const auto* go = std::get_if<message::Go>(&message)) {
    went(world_rank, go->attempt);
  } else if (const auto* release = std::get_if<message::Release>(&message)) {
    built_.erase(release->experiment);
  } else if (const auto* abort = std::get_if<message::Abort>(&message)) {
    busy_.erase(world_rank);
    answer(world_rank, message::Gone{abort->attempt, Status::failed, "aborted"});
  }
}

std::optional<Mailbox::Message> FakeWorkers::try_receive() {
  if (answers_.empty()) return std::nullopt;
  Mailbox::Message message = std::move(answers_.front());
  answers_.pop();
  return message;
}

message::Loss FakeWorkers::loss_of(Behaviour behaviour) {
  switch (behaviour) {
    case Behaviour::loses_device:
      return message::Loss::device;
    case Behaviour::silent_device:
      return message::Loss::device_answer;
    case Behaviour::stuck_python:
      return message::Loss::python;
    default:
      return message::Loss::nothing;
  }
}

void FakeWorkers::answer(int world_rank, const dstune::Message& message) {
  answers_.push({world_rank, encode(message)});
}

void FakeWorkers::assigned(int world_rank, const message::Assign& assign) {
  was_slot_taken_twice_ = was_slot_taken_twice_ || !busy_.insert(world_rank).second;
  assigns_[assign.attempt] = assign;
  if (assign.is_risky) risky_.insert(assign.experiment);
  EXPECT_FALSE(unusable_.contains(world_rank)) << "it has lost its device, or Python";
  const Behaviour behaviour = behaviours_[assign.experiment];
  const bool is_leader = assign.world_ranks.front() == world_rank;
  if (is_leader) {
    ran_.push_back(assign.experiment);
    for (const message::Finalist& other : assign.others) ran_.push_back(other.experiment);
    if (assign.stays_built) note_turns(assign);
  }
  if (behaviour == Behaviour::out_of_memory) {
    busy_.erase(world_rank);
    if (is_leader) {
      Measurement measurement;
      measurement.status = Status::out_of_memory;
      measurement.reason = "rank 1: 10 bytes of 5";
      answer(world_rank, message::Outcome{assign.attempt, measurement});
    }
  } else if (behaviour == Behaviour::throws && is_leader) {
    busy_.erase(world_rank);
    answer(world_rank, message::Gone{assign.attempt, Status::failed, "rank 0: a bug"});
  } else if (behaviour == Behaviour::member_throws) {
    busy_.erase(world_rank);
    const std::string seen = "a rank has left the group";
    answer(world_rank, message::Gone{assign.attempt, Status::failed,
                                     is_leader ? seen : "rank 1: a bug", !is_leader});
  } else if (loss_of(behaviour) != message::Loss::nothing &&
             assign.world_ranks.back() == world_rank) {
    busy_.erase(world_rank);
    unusable_.insert(world_rank);
    const char* const reason = behaviour == Behaviour::loses_device ? "an illegal address" : "late";
    answer(world_rank,
           message::Gone{assign.attempt, Status::failed, reason, true, loss_of(behaviour)});
  } else if (behaviour == Behaviour::silent_member && !is_leader) {
    dead_.insert(world_rank);
  } else if (behaviour == Behaviour::dies_in_turns && turns_.size() == 1 && !is_leader) {
    answer(assign.world_ranks.front(), message::Progress{assign.attempt, 1, 0.001, 0});
    dead_.insert(world_rank);
  } else {
    answer(world_rank, message::Ready{assign.attempt});
  }
}

void FakeWorkers::went(int world_rank, std::uint64_t attempt) {
  busy_.erase(world_rank);
  const message::Assign& assign = assigns_[attempt];
  if (assign.world_ranks.front() != world_rank) return;
  if (behaviours_[assign.experiment] == Behaviour::raced_out && times_ran(assign.experiment) == 1) {
    waiting_for_incumbent_.insert(attempt);
  } else {
    ended(world_rank, attempt);
  }
}

/// A finalist that is built goes on, unless an abort or a release has come.
void FakeWorkers::note_turns(const message::Assign& assign) {
  std::vector<std::string> names{assign.experiment};
  for (const message::Finalist& other : assign.others) names.push_back(other.experiment);
  for (const std::string& name : names)
    if (built_.insert(name).second) ++times_built_[name];
  turns_.push_back(std::move(names));
}

void FakeWorkers::ended(int world_rank, std::uint64_t attempt) {
  const message::Assign& assign = assigns_[attempt];
  message::Outcome outcome{attempt,
                           measurement_of(assign, assign.experiment, assign.config.micro_batch)};
  for (const message::Finalist& other : assign.others)
    outcome.others.push_back(measurement_of(assign, other.experiment, other.config.micro_batch));
  if (!assign.others.empty())
    for (std::size_t turn = 0; turn <= assign.others.size(); ++turn)
      outcome.spans.push_back({0.125 * static_cast<double>(turn), 1});
  answer(world_rank, outcome);
}

Measurement FakeWorkers::measurement_of(const message::Assign& assign,
                                        const std::string& experiment, std::int64_t micro_batch) {
  const IncumbentEstimate incumbent = incumbent_of_attempt_[assign.attempt];
  Measurement measurement;
  measurement.status = Status::ok;
  // The larger the micro-batch the slower the step, but less than in proportion.
  double step_s = 0.1 + 0.01 * static_cast<double>(micro_batch);
  const Behaviour behaviour = behaviours_[experiment];
  if (behaviour == Behaviour::slow) step_s *= 2;
  if (behaviour == Behaviour::raced_out && incumbent.step_s > 0)
    measurement.status = Status::raced_out;
  if (behaviour == Behaviour::fails_again && times_ran(experiment) > 1)
    measurement.status = Status::failed;
  if (behaviour == Behaviour::fits_alone && assign.stays_built) {
    measurement.status = Status::out_of_memory;
    measurement.reason = "rank 1: 10 bytes of 5";
    built_.erase(experiment);
  }
  incumbents_[experiment].push_back(incumbent);
  measurement.step_times_s.assign(8, step_s);
  measurement.warmup_steps = 3;
  measurement.world_ranks = assign.world_ranks;
  measurement.energy_j = 10;
  measurement.peak_memory.total_bytes = 1000;
  measurement.peak_memory.host_bytes = 300;
  if (gpu_non_arena_bytes > 0) measurement.peak_memory.gpu_bytes = 700 + gpu_non_arena_bytes;
  if (non_arena_bytes > 0) measurement.peak_memory.process_bytes = 300 + non_arena_bytes;
  return measurement;
}

}  // namespace dstune
