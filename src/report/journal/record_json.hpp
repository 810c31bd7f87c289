#pragma once
/// Records as the journal keeps them, and the pieces that other files share. Local.

#include "dstune/base/json.hpp"
#include "dstune/core/measurement.hpp"

namespace dstune {

/// JSON has no NaN and no infinity: null stands for them.
json::Value finite_or_null(double number);
/// {throughput, peak_memory_bytes, target_memory_bytes}; throughput is null where there is none.
json::Value to_json(const Prediction& predicted);

/// Everything of a record, so that a later run can report it without measuring again.
json::Value to_json(const Record& record);
/// What an earlier release did not write keeps its default. Adds a problem for every wrong type;
/// throws InputError where the measurement is none.
Record record_from_json(const json::Node& node, json::Problems& problems);

/// Likewise of a run once more.
json::Value to_json(const Repeat& repeat);
Repeat repeat_from_json(const json::Node& node, json::Problems& problems);

}  // namespace dstune
