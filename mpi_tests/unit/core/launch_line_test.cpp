#include "dstune/core/launch_line.hpp"

#include <array>
#include <cstdio>
#include <memory>
#include <sstream>

#include <gtest/gtest.h>

#include "dstune/base/error.hpp"
#include "golden.hpp"

namespace dstune {

namespace {

const json::Value tuned_config = {
    {"train_micro_batch_size_per_gpu", 4},
    {"gradient_accumulation_steps", "auto"},
    {"fp16", {{"enabled", false}}},
    {"bf16", {{"enabled", true}}},
    {"gradient_clipping", 0},
    {"optimizer", {{"type", "AdamW"}, {"params", {{"lr", 1e-4}, {"weight_decay", nullptr}}}}},
    {"zero_optimization", {{"stage", 2}, {"reduce_bucket_size", 5e8}}},
    {"autotuning", {{"arg_mappings", {{"stage", "--nothing"}}}}}};

using Mappings = std::vector<std::pair<std::string, std::string>>;

std::string line(const std::string& command, const Mappings& mappings = {},
                 const std::string& path = "/r/c.json") {
  return launch_line({command, mappings}, path, tuned_config, Recompute::none, {4, 2});
}

TEST(LaunchLineTest, CommandsBecomeLines) {
  test::expect_golden(DSTUNE_CORE_DATA "/launch_lines.txt", [](const std::string& input) {
    std::istringstream lines(input);
    std::string command;
    Mappings mappings;
    for (std::string text; std::getline(lines, text);) {
      if (text.starts_with("@ "))
        mappings.emplace_back(text.substr(2, text.find('=') - 2), text.substr(text.find('=') + 1));
      else
        command += (command.empty() ? "" : "\n") + text;
    }
    const std::string violation = launch_line_violation({command, mappings});
    if (!violation.empty()) return "refused: " + violation;
    return line(command, mappings);
  });
  EXPECT_THROW(line("deepspeed train.py | tee log"), LogicError);
}

TEST(LaunchLineTest, QuotesThePathAsThePlaceNeedsIt) {
  const std::string path = "/my $dir/it's \"c\".json";
  EXPECT_EQ(line("srun t $CONFIG", {}, path), R"(srun t '/my $dir/it'\''s "c".json')");
  EXPECT_EQ(line("srun t \"$CONFIG\"", {}, path), R"(srun t "/my \$dir/it's \"c\".json")");
  EXPECT_EQ(line("srun t '$CONFIG'", {}, path), R"(srun t '''/my $dir/it'\''s "c".json''')");
}

TEST(LaunchLineTest, NamesTheHostfileToDeepSpeed) {
  const auto with_hostfile = [](const std::string& command) {
    return launch_line({command}, "/r/c.json", json::Value::object(), Recompute::none, {4, 2},
                       "/my r/hosts");
  };
  EXPECT_EQ(with_hostfile("train.py $CONFIG"),
            "deepspeed --hostfile '/my r/hosts' --num_nodes 2 --num_gpus 4 train.py /r/c.json");
  for (const std::string given : {"deepspeed -H h --num_gpus 1", "deepspeed --hostfile=h -i a"})
    EXPECT_EQ(with_hostfile(given + " train.py $CONFIG").find("/my r/hosts"), std::string::npos);
  EXPECT_EQ(with_hostfile("srun train.sh $CONFIG"), "srun train.sh /r/c.json");
}

TEST(LaunchLineTest, NamesThePlaceholder) {
  EXPECT_EQ(placeholder_launch_line("/my dir/c.json", {8, 1}),
            "deepspeed --num_nodes 1 --num_gpus 8 your_training_script.py --deepspeed_config "
            "'/my dir/c.json'");
}

/// The output that a shell gives for a command that only prints its arguments, one a line.
std::string shell_output(const std::string& command) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> pipe(::popen(command.c_str(), "r"),
                                                             ::pclose);
  std::string out;
  std::array<char, 256> chunk;
  while (pipe && std::fgets(chunk.data(), chunk.size(), pipe.get()) != nullptr) out += chunk.data();
  return out;
}

TEST(LaunchLineTest, ShellPassesWhatIsAddedToTheTraining) {
  const std::string arguments = "1\n--deepspeed_config\n/r/c.json\n";
  for (const char* const redirection : {"", " 2>/dev/null", " 2>&1 </dev/null"})
    EXPECT_EQ(shell_output(line(std::string("printf '%s\\n' 1") + redirection)), arguments);
}

TEST(LaunchLineTest, ShellReadsThePathBack) {
  const std::string path = "/my $HOME/`x`/it's \\ \"c\" *.json";
  for (const std::string place : {"$CONFIG", "\"$CONFIG\"", "'$CONFIG'", "\"${CONFIG}\""})
    EXPECT_EQ(shell_output(line("printf '%s\\n' " + place, {}, path)), path + "\n") << place;
}

}  // namespace

}  // namespace dstune
