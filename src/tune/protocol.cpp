#include "dstune/tune/protocol.hpp"

#include <type_traits>

#include "dstune/base/error.hpp"
#include "dstune/base/json.hpp"

namespace dstune {
namespace {

using json::Value;

/// The kinds as they travel: the alternative's index in Message.
template <class T, std::size_t I = 0>
constexpr int kind_of() {
  if constexpr (std::is_same_v<std::variant_alternative_t<I, Message>, T>) {
    return static_cast<int>(I);
  } else {
    return kind_of<T, I + 1>();
  }
}

Value encode_config(const TrainingConfig& config) {
  Value value;
  for_each_member(config, [&](const char* name, const auto& field) {
    if constexpr (std::is_enum_v<std::decay_t<decltype(field)>>) {
      value[name] = static_cast<int>(field);
    } else {
      value[name] = field;
    }
  });
  return value;
}

TrainingConfig decode_config(const Value& value) {
  TrainingConfig config;
  for_each_member(config, [&](const char* name, auto& field) {
    using Field = std::decay_t<decltype(field)>;
    if constexpr (std::is_enum_v<Field>) {
      field = static_cast<Field>(value.at(name).template get<int>());
    } else {
      field = value.at(name).template get<Field>();
    }
  });
  return config;
}

Measurement decode_measurement(const Value& value) {
  // Our own text of a moment ago, but strict reading is the only reading there is.
  const json::Document document = json::Document::parse(value.dump(), "outcome");
  return measurement_from_json(document.node());
}

Value encode_work(const Work& work) {
  return Value::array({static_cast<int>(work.kind), static_cast<int>(work.type),
                       static_cast<int>(work.out_type), work.flags, work.width, work.depth,
                       work.size});
}

Work decode_work(const Value& value) {
  return {static_cast<WorkKind>(value.at(0).get<int>()),
          static_cast<DType>(value.at(1).get<int>()),
          static_cast<DType>(value.at(2).get<int>()),
          value.at(3).get<std::uint32_t>(),
          value.at(4).get<std::int64_t>(),
          value.at(5).get<std::int64_t>(),
          value.at(6).get<std::int64_t>()};
}

Value encode_task(const ProfilingTask& task) {
  Value runs = Value::array();
  for (const ProfilingRun& run : task.runs) {
    runs.push_back(
        {{"layers", run.num_layers}, {"config", encode_config(run.config)}, {"cost", run.cost}});
  }
  Value collectives = Value::array();
  for (const Work& work : task.collectives) collectives.push_back(encode_work(work));
  return {{"num_gpus", task.shape.num_gpus},
          {"num_nodes", task.shape.num_nodes},
          {"runs", std::move(runs)},
          {"collectives", std::move(collectives)},
          {"disk",
           {task.disk.use.folder, task.disk.use.block_bytes, task.disk.use.queue_depth,
            task.disk.use.threads}},
          {"transfers", task.disk.bytes},
          {"budget", task.budget_s}};
}

ProfilingTask decode_task(const Value& value) {
  ProfilingTask task;
  task.shape = {value.at("num_gpus"), value.at("num_nodes")};
  for (const Value& run : value.at("runs"))
    task.runs.push_back({run.at("layers"), decode_config(run.at("config")), run.at("cost")});
  for (const Value& work : value.at("collectives")) task.collectives.push_back(decode_work(work));
  DiskUse& disk = task.disk.use;
  disk.folder = value.at("disk").at(0);
  disk.block_bytes = value.at("disk").at(1);
  disk.queue_depth = value.at("disk").at(2);
  disk.threads = value.at("disk").at(3);
  task.disk.bytes = value.at("transfers").get<std::vector<std::int64_t>>();
  task.budget_s = value.at("budget");
  return task;
}

DeviceProfile decode_profile(const Value& value) {
  const json::Document document = json::Document::parse(value.dump(), "calibrated");
  return device_profile_from_json(document.node());
}

RaceBar decode_bar(const Value& value) {
  return {value.at(0), value.at(1), value.at(2), value.at(3)};
}

Value body(const message::Assign& m) {
  return {{"experiment", m.experiment},
          {"config", encode_config(m.config)},
          {"ranks", m.world_ranks},
          {"timeout", m.timeout_s},
          {"ds_config", m.ds_config},
          {"risky", m.is_risky},
          {"rest", m.rest_s}};
}
Value body(const message::Bar& m) {
  return {{"bar", {m.bar.step_s, m.bar.standard_error, m.bar.spread, m.bar.degrees_of_freedom}}};
}
Value body(const message::Quit& m) {
  return {{"exit_code", m.exit_code}, {"finalize", m.finalize}};
}
Value body(const message::Progress& m) {
  return {{"steps", m.steps}, {"slowest", m.slowest_step_s}};
}
Value body(const message::Outcome& m) {
  return {{"measurement", to_json(m.measurement)}};
}
Value body(const message::Gone& m) {
  return {{"status", static_cast<int>(m.status)},
          {"reason", m.reason},
          {"cause", m.is_cause},
          {"device_lost", m.has_lost_device},
          {"device_silent", m.is_device_silent}};
}
Value body(const message::Calibrate& m) {
  Value value{{"task", encode_task(m.task)}, {"ranks", m.world_ranks}, {"timeout", m.timeout_s}};
  // An order is part of the key by which journals know what was measured, of earlier releases, too.
  if (m.rest_s > 0) value["rest"] = m.rest_s;
  return value;
}
Value body(const message::Calibrated& m) {
  return {{"profile", to_json(m.profile)},
          {"outside", m.outside_bytes},
          {"gpu_outside", m.gpu_outside_bytes}};
}
template <class T>
Value body(const T&) {
  return Value::object();
}

Message decode_body(int kind, const Value& value) {
  switch (kind) {
    case kind_of<message::Assign>():
      return message::Assign{0,
                             value.at("experiment"),
                             decode_config(value.at("config")),
                             value.at("ranks").get<std::vector<int>>(),
                             value.at("timeout"),
                             value.at("ds_config"),
                             value.at("risky"),
                             value.at("rest")};
    case kind_of<message::Bar>():
      return message::Bar{0, decode_bar(value.at("bar"))};
    case kind_of<message::Go>():
      return message::Go{};
    case kind_of<message::Stop>():
      return message::Stop{};
    case kind_of<message::Abort>():
      return message::Abort{};
    case kind_of<message::Quit>():
      return message::Quit{value.at("exit_code"), value.at("finalize")};
    case kind_of<message::Ready>():
      return message::Ready{};
    case kind_of<message::Progress>():
      return message::Progress{0, value.at("steps"), value.at("slowest")};
    case kind_of<message::Outcome>():
      return message::Outcome{0, decode_measurement(value.at("measurement"))};
    case kind_of<message::Gone>():
      return message::Gone{0,
                           static_cast<Status>(value.at("status").get<int>()),
                           value.at("reason"),
                           value.at("cause"),
                           value.at("device_lost"),
                           value.at("device_silent")};
    case kind_of<message::Calibrate>():
      return message::Calibrate{0, decode_task(value.at("task")),
                                value.at("ranks").get<std::vector<int>>(), value.at("timeout"),
                                value.value("rest", 0.0)};
    case kind_of<message::Calibrated>():
      return message::Calibrated{0, decode_profile(value.at("profile")), value.at("outside"),
                                 value.at("gpu_outside")};
    default:
      throw InputError({{"message", "/kind", 0, "unknown kind of message"}});
  }
}

}  // namespace

Bytes encode(const Message& message) {
  return std::visit(
      [&](const auto& m) {
        Value value = body(m);
        value["kind"] = message.index();
        if constexpr (requires { m.attempt; }) value["attempt"] = m.attempt;
        const std::vector<std::uint8_t> cbor = Value::to_cbor(value);
        const auto* begin = reinterpret_cast<const std::byte*>(cbor.data());
        return Bytes(begin, begin + cbor.size());
      },
      message);
}

Message decode(const Bytes& bytes) {
  try {
    const auto* begin = reinterpret_cast<const std::uint8_t*>(bytes.data());
    const Value value = Value::from_cbor(begin, begin + bytes.size());
    Message message = decode_body(value.at("kind").get<int>(), value);
    std::visit(
        [&](auto& m) {
          if constexpr (requires { m.attempt; }) m.attempt = value.at("attempt");
        },
        message);
    return message;
  } catch (const Value::exception& error) {
    throw InputError({{"message", "", 0, error.what()}});
  }
}

}  // namespace dstune
