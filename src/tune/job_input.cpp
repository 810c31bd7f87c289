#include "dstune/tune/job_input.hpp"

#include "dstune/base/json.hpp"

namespace dstune {

using json::Value;

Bytes encode(const JobInput& input) {
  const Value value = {{"exit_code", input.exit_code},
                       {"run", input.run},
                       {"model", input.run ? to_json(input.model) : Value()},
                       {"workload", static_cast<int>(input.workload.kind)},
                       {"step_time_s", input.workload.step_time_s},
                       {"table_path", input.workload.table_path},
                       {"table", input.workload.table},
                       {"time_scale", input.workload.time_scale},
                       {"options", input.workload.options},
                       {"library_path", input.workload.library_path},
                       {"library_hash", input.workload.library_hash},
                       {"start", input.measure.start_profile_step},
                       {"end", input.measure.end_profile_step},
                       {"budget_s", input.measure.trial_budget_s},
                       {"memory", input.device_memory_bytes},
                       {"host_memory", input.host_memory_bytes},
                       {"groups", input.groups}};
  const std::vector<std::uint8_t> cbor = Value::to_cbor(value);
  const auto* begin = reinterpret_cast<const std::byte*>(cbor.data());
  return Bytes(begin, begin + cbor.size());
}

JobInput decode_job_input(const Bytes& bytes) {
  const auto* begin = reinterpret_cast<const std::uint8_t*>(bytes.data());
  const Value value = Value::from_cbor(begin, begin + bytes.size());
  JobInput input;
  input.exit_code = value.at("exit_code");
  input.run = value.at("run");
  if (!input.run) return input;
  input.model = model_from_json(value.at("model"));
  input.workload.kind = static_cast<WorkloadKind>(value.at("workload").get<int>());
  input.workload.step_time_s = value.at("step_time_s");
  input.workload.table_path = value.at("table_path");
  input.workload.table = value.at("table");
  input.workload.time_scale = value.at("time_scale");
  input.workload.options = value.at("options");
  input.workload.library_path = value.at("library_path");
  input.workload.library_hash = value.at("library_hash");
  input.measure.start_profile_step = value.at("start");
  input.measure.end_profile_step = value.at("end");
  input.measure.trial_budget_s = value.at("budget_s");
  input.device_memory_bytes = value.at("memory");
  input.host_memory_bytes = value.at("host_memory");
  input.groups = value.at("groups").get<std::vector<std::vector<int>>>();
  return input;
}

}  // namespace dstune
