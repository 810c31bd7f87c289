#include <string>
#include <string_view>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "dstune/base/text.hpp"
#include "dstune/space/reference.hpp"
#include "manuals.hpp"
#include "roff.hpp"

namespace dstune {
namespace {

/// "integer, 0 to 3; default `0`; stages 1, 2; releases: from 0.17.6; effect: measured."
std::string facts_of(const KeyWords& key) {
  std::string facts = key.type;
  const auto add = [&](std::string_view name, const std::string& value) {
    if (!value.empty()) facts += fmt::format("; {}{}", name, value);
  };
  add("default ", key.fallback);
  add("stages: ", key.stages == "all" ? "" : key.stages);
  add("releases: ", key.releases);
  add("effect: ", key.effect);
  add("other keys in it: ", key.others);
  return facts + ".";
}

void add_keys(roff::Page& page) {
  std::string part;
  for (const KeyGroup& group : key_groups()) {
    if (group.part != part) {
      part = group.part;
      page.section("KEYS OF " + part);
      if (group.part == "DeepSpeed")
        page.paragraph(fmt::format("{}", fmt::join(key_legend(), " ")));
    }
    if (group.part == "DeepSpeed") page.subsection(group.title);
    for (const KeyWords& key : group.keys)
      page.item(roff::bold(key.path),
                fmt::format("{} {}.{}", facts_of(key), key.help,
                            key.example.empty() ? "" : fmt::format(" Example: `{}`", key.example)));
  }
}

}  // namespace

std::string space_page(const Release& release) {
  roff::Page page("DSTUNE-SPACE", 5, release.date, "dstune-mpi " + release.version, "File Formats");
  page.section("NAME");
  page.line("dstune\\-space \\- the DeepSpeed configurations that dstune\\-mpi searches");
  page.section("DESCRIPTION");
  page.paragraph(
      "A space is a DeepSpeed config in which any value may be a list of candidates. The section "
      "`dstune` has the model, the machine and how the training is started. The section "
      "`autotuning` is DeepSpeed's. A config that DeepSpeed takes today is a space with "
      "`\"autotuning\": {\"enabled\": true}` in it and `--model` on the command line.");
  page.paragraph(
      "The space is the product of all lists. The first member is the baseline and always runs, so "
      "today's value stands first in each list. If DeepSpeed's schema has a list, a list of lists "
      "holds the candidates.");
  page.paragraph(
      "The file is JSON with comments, Hjson, YAML, or a file of `accelerate config`. Its content "
      "says which. Paths in it are relative to its folder. Duplicate keys are refused.");
  page.paragraph(
      "`null` and `\"auto\"` stand for DeepSpeed's default, and `\"auto\"` in the training of "
      "Hugging Face's Trainer for what that puts there. `\"$NAME\"` stands for a variable of "
      "dstune.variables. Keys at the top level that DeepSpeed does not know pass through with a "
      "warning.");
  page.section("EXAMPLE");
  page.example(
      "{\n"
      "  \"dstune\": {\"model\": {\"hf_config\": \"config.json\"}, \"sequence_length\": 1024,\n"
      "             \"resources\": {\"num_gpus\": [2, 4]},\n"
      "             \"training_command\": \"train.py --deepspeed_config $CONFIG\"},\n"
      "  \"autotuning\": {\"enabled\": true},\n"
      "  \"train_micro_batch_size_per_gpu\": [1, 2, 4, 8],\n"
      "  \"bf16\": {\"enabled\": true},\n"
      "  \"optimizer\": {\"type\": \"AdamW\", \"params\": {\"lr\": 1e-4}},\n"
      "  \"zero_optimization\": {\"stage\": [0, 1, 2, 3]}\n"
      "}");
  add_keys(page);
  page.section("SEE ALSO");
  page.written(roff::bold("dstune-mpi") + "(1)");
  page.paragraph("docs/space.md is a guide to spaces. docs/keys.md has all keys in sections.");
  return page.text();
}

}  // namespace dstune
