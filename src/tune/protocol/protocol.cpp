#include "dstune/tune/protocol.hpp"

#include <array>
#include <utility>

#include "dstune/base/archive.hpp"
#include "dstune/base/error.hpp"

namespace dstune {

namespace message {
namespace {

constexpr std::array losses{enum_text(Loss::nothing, "nothing"),
                            enum_text(Loss::device, "device lost by"),
                            enum_text(Loss::device_answer, "no answer from the device of"),
                            enum_text(Loss::python, "no answer from Python on")};
constexpr EnumTexts loss_texts{losses};

}  // namespace

const EnumTexts& texts_of(Loss) {
  return loss_texts;
}

}  // namespace message

using json::Of;

template <class Archive>
void elements(Archive& archive, Of<Archive, Work>& work) {
  archive.item(work.kind);
  archive.item(work.type);
  archive.item(work.out_type);
  archive.item(work.flags);
  archive.item(work.width);
  archive.item(work.depth);
  archive.item(work.size);
}

template <class Archive>
void elements(Archive& archive, Of<Archive, IncumbentEstimate>& incumbent) {
  archive.item(incumbent.step_s);
  archive.item(incumbent.standard_error);
  archive.item(incumbent.spread);
  archive.item(incumbent.degrees_of_freedom);
}

template <class Archive>
void elements(Archive& archive, Of<Archive, DiskUse>& use) {
  archive.item(use.folder);
  archive.item(use.block_bytes);
  archive.item(use.queue_depth);
  archive.item(use.threads);
}

template <class Archive>
void members(Archive& archive, Of<Archive, ProfilingRun>& run) {
  archive("layers", run.num_layers);
  archive("config", run.config);
  archive("cost", run.cost);
}

// An order is part of the key by which journals know what was measured, of earlier releases, too:
// what is written for a ProfilingTask stays as it is.
template <class Archive>
void members(Archive& archive, Of<Archive, ProfilingTask>& task) {
  archive("num_gpus", task.shape.num_gpus);
  archive("num_nodes", task.shape.num_nodes);
  archive("runs", task.runs);
  archive("collectives", task.collectives);
  archive("disk", task.disk.use);
  archive("transfers", task.disk.bytes);
  archive("budget", task.budget_s);
}

template <class Archive>
void members(Archive& archive, Of<Archive, WorkloadSpec>& workload) {
  archive("kind", workload.kind);
  archive("step_time_s", workload.step_time_s);
  archive("table_path", workload.table_path);
  archive("table", workload.table);
  archive("time_scale", workload.time_scale);
  archive("options", workload.options);
  archive("library_path", workload.library_path);
  archive("library_hash", workload.library_hash);
  archive("model_config", workload.model_config);
}

template <class Archive>
void members(Archive& archive, Of<Archive, MeasureOptions>& measure) {
  archive("start_profile_step", measure.start_profile_step);
  archive("end_profile_step", measure.end_profile_step);
  archive("trial_budget_s", measure.trial_budget_s);
  archive("asks_for_warmup", measure.asks_for_warmup);
}

template <class Archive>
void members(Archive& archive, Of<Archive, JobInput>& input) {
  archive("exit_code", input.exit_code);
  archive("run", input.run);
  if (!input.run) return;
  archive("model", input.model);
  archive("instruments", input.instruments);
  archive("measure", input.measure);
  archive("device_memory_bytes", input.device_memory_bytes);
  archive("host_memory_bytes", input.host_memory_bytes);
  archive("groups", input.groups);
}

template <class Archive>
void members(Archive& archive, Of<Archive, JobStart>& start) {
  archive("exit_code", start.exit_code);
  archive("choices", start.choices);
}

namespace message {

template <class Archive>
void members(Archive& archive, Of<Archive, Tiny>& tiny) {
  archive("model", tiny.model);
  archive("measure", tiny.measure);
}
template <class Archive>
void members(Archive& archive, Of<Archive, Finalist>& finalist) {
  archive("experiment", finalist.experiment);
  archive("config", finalist.config);
  archive("turn_steps", finalist.turn_steps);
}
template <class Archive>
void elements(Archive& archive, Of<Archive, Span>& span) {
  archive.item(span.began_s);
  archive.item(span.ended_s);
}
template <class Archive>
void members(Archive& archive, Of<Archive, Assign>& m) {
  archive("experiment", m.experiment);
  archive("config", m.config);
  archive("ranks", m.world_ranks);
  archive("timeout", m.timeout_s);
  archive("ds_config", m.input.ds_config);
  archive("arguments", m.input.arguments);
  archive("instrument", m.instrument);
  archive("risky", m.is_risky);
  archive("rest", m.drain_timeout_s);
  archive("tiny", m.tiny);
  archive("choices", m.choices, {.nothing = json::Nothing::omitted});
  archive("stays_built", m.stays_built, {.nothing = json::Nothing::omitted});
  archive("turn_steps", m.turn_steps);
  archive("slice_share", m.slice_share);
  archive("others", m.others, {.nothing = json::Nothing::omitted});
}
template <class Archive>
void members(Archive& archive, Of<Archive, Incumbent>& m) {
  archive("bar", m.incumbent);
}
template <class Archive, class AnySignal>
requires std::is_base_of_v<Signal, AnySignal>
void members(Archive&, AnySignal&) {}
template <class Archive>
void members(Archive& archive, Of<Archive, Quit>& m) {
  archive("exit_code", m.exit_code);
  archive("finalize", m.finalize);
}
template <class Archive>
void members(Archive& archive, Of<Archive, Progress>& m) {
  archive("steps", m.steps);
  archive("slowest", m.slowest_step_s);
  archive("turn", m.turn, {.nothing = json::Nothing::omitted});
}
template <class Archive>
void members(Archive& archive, Of<Archive, Outcome>& m) {
  archive("measurement", m.measurement);
  archive("notes", m.notes);
  archive("choices", m.choices, {.nothing = json::Nothing::omitted});
  archive("others", m.others, {.nothing = json::Nothing::omitted});
  archive("spans", m.spans, {.nothing = json::Nothing::omitted});
}
template <class Archive>
void members(Archive& archive, Of<Archive, Gone>& m) {
  archive("status", m.status);
  archive("reason", m.reason);
  archive("cause", m.is_cause);
  archive("loss", m.loss);
  archive("details", m.details);
  archive("notes", m.notes);
}
// The same as for a ProfilingTask.
template <class Archive>
void members(Archive& archive, Of<Archive, Profile>& m) {
  archive("task", m.task);
  archive("ranks", m.world_ranks);
  archive("timeout", m.timeout_s);
  archive("rest", m.drain_timeout_s, {.nothing = json::Nothing::omitted});
}
template <class Archive>
void members(Archive& archive, Of<Archive, Profiled>& m) {
  archive("profile", m.profile);
  archive("outside", m.non_arena_bytes);
  archive("gpu_outside", m.gpu_non_arena_bytes);
  archive("choices", m.choices, {.nothing = json::Nothing::omitted});
}
template <class Archive>
void members(Archive& archive, Of<Archive, Release>& m) {
  archive("experiment", m.experiment);
}

}  // namespace message

namespace {

/// A message with its kind, the alternative's index in Message, and its attempt where it has one.
template <class Body>
struct Letter {
  std::size_t kind = 0;
  Body body;
};

template <class Archive, class AnyLetter>
void members_of_letter(Archive& archive, AnyLetter& letter) {
  members(archive, letter.body);
  archive("kind", letter.kind);
  if constexpr (requires { letter.body.attempt; }) archive("attempt", letter.body.attempt);
}
template <class Body>
void members(json::Writer& archive, const Letter<Body>& letter) {
  members_of_letter(archive, letter);
}
template <class Body>
void members(json::Reader& archive, Letter<Body>& letter) {
  members_of_letter(archive, letter);
}

template <std::size_t kind>
Message open_as(const json::Node& node) {
  using Body = std::variant_alternative_t<kind, Message>;
  return json::read<Letter<Body>>(node, json::EnumForm::number).body;
}

template <std::size_t... kinds>
Message open(const json::Node& node, std::size_t kind, std::index_sequence<kinds...>) {
  constexpr std::array openers{&open_as<kinds>...};
  return openers.at(kind)(node);
}

}  // namespace

json::Value written(const Message& message) {
  return std::visit(
      [&](const auto& body) {
        return json::write(Letter<std::decay_t<decltype(body)>>{message.index(), body},
                           json::EnumForm::number);
      },
      message);
}

Bytes encode(const Message& message) {
  return json::to_cbor(written(message));
}

Message decode(const Bytes& bytes) {
  const json::Document document = json::Document::parse_cbor(bytes, "message");
  const json::Node node = document.node();
  constexpr std::size_t num_kinds = std::variant_size_v<Message>;
  json::Problems problems;
  std::optional<std::int64_t> kind;
  if (const auto found = node.find("kind"))
    kind = found->integer(problems, 0, static_cast<std::int64_t>(num_kinds) - 1);
  if (!kind) throw InputError({node.problem("this is no message of a known kind")});
  return open(node, static_cast<std::size_t>(*kind), std::make_index_sequence<num_kinds>());
}

Bytes encode(const JobInput& input) {
  return json::pack(input);
}

JobInput decode_job_input(const Bytes& bytes) {
  return json::unpack<JobInput>(bytes, "job input");
}

Bytes encode(const JobStart& start) {
  return json::pack(start);
}

JobStart decode_job_start(const Bytes& bytes) {
  return json::unpack<JobStart>(bytes, "job start");
}

}  // namespace dstune
