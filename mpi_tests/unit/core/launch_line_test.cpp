#include "dstune/core/launch_line.hpp"

#include <array>
#include <cstdio>
#include <memory>

#include <gtest/gtest.h>

#include "dstune/base/error.hpp"

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

TEST(LaunchLineTest, PutsTheConfigurationInPlaceOfTheVariable) {
  EXPECT_EQ(line("srun t --deepspeed_config $CONFIG --x 1"),
            "srun t --deepspeed_config /r/c.json --x 1");
  EXPECT_EQ(line("srun t --c=${CONFIG}"), "srun t --c=/r/c.json");
  EXPECT_EQ(line("srun t $CONFIGURATION $CONFIG"), "srun t $CONFIGURATION /r/c.json");
  EXPECT_EQ(line("srun t \\$CONFIG $CONFIG"), "srun t \\$CONFIG /r/c.json");
}

TEST(LaunchLineTest, QuotesThePathAsThePlaceNeedsIt) {
  const std::string path = "/my $dir/it's \"c\".json";
  EXPECT_EQ(line("srun t $CONFIG", {}, path), R"(srun t '/my $dir/it'\''s "c".json')");
  EXPECT_EQ(line("srun t \"$CONFIG\"", {}, path), R"(srun t "/my \$dir/it's \"c\".json")");
  EXPECT_EQ(line("srun t '$CONFIG'", {}, path), R"(srun t '''/my $dir/it'\''s "c".json''')");
}

TEST(LaunchLineTest, FindsTheConfigurationWithoutVariable) {
  EXPECT_EQ(line("srun t --deepspeed_config old.json -x"),
            "srun t --deepspeed_config /r/c.json -x");
  EXPECT_EQ(line("srun t --deepspeed_config=old.json"), "srun t --deepspeed_config=/r/c.json");
  EXPECT_EQ(line("srun t --deepspeed old.json"), "srun t --deepspeed /r/c.json");
  EXPECT_EQ(line("srun t --deepspeed --x 1"),
            "srun t --deepspeed --x 1 --deepspeed_config /r/c.json");
  EXPECT_EQ(line("srun t"), "srun t --deepspeed_config /r/c.json");
}

TEST(LaunchLineTest, StartsAScriptWithDeepSpeedOnTheGroupsShape) {
  EXPECT_EQ(line("train.py --data /data --deepspeed_config $CONFIG"),
            "deepspeed --num_nodes 2 --num_gpus 4 train.py --data /data --deepspeed_config "
            "/r/c.json");
  EXPECT_EQ(line("A=1 train.py $CONFIG"),
            "A=1 deepspeed --num_nodes 2 --num_gpus 4 train.py /r/c.json");
  EXPECT_EQ(line("/opt/bin/deepspeed --hostfile h train.py $CONFIG"),
            "/opt/bin/deepspeed --num_nodes 2 --num_gpus 4 --hostfile h train.py /r/c.json");
  EXPECT_EQ(line("deepspeed --include a:0 train.py $CONFIG"),
            "deepspeed --include a:0 train.py /r/c.json");
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

TEST(LaunchLineTest, LeavesNoTuningOn) {
  EXPECT_EQ(line("deepspeed --autotuning run --num_nodes 2 --num_gpus 2 t.py $CONFIG"),
            "deepspeed --num_nodes 2 --num_gpus 4 t.py /r/c.json");
  EXPECT_EQ(line("srun t $CONFIG --autotuning=tune"), "srun t /r/c.json");
}

TEST(LaunchLineTest, AppliesMappings) {
  const Mappings micro = {{"train_micro_batch_size_per_gpu", "--bs"}};
  EXPECT_EQ(line("srun t $CONFIG --bs 1 -x", micro), "srun t /r/c.json --bs 4 -x");
  EXPECT_EQ(line("srun t $CONFIG --bs=1", micro), "srun t /r/c.json --bs=4");
  EXPECT_EQ(line("srun t $CONFIG", micro), "srun t /r/c.json --bs 4");
  EXPECT_EQ(line("srun t $CONFIG --bs", micro), "srun t /r/c.json --bs --bs 4");
  EXPECT_EQ(line("srun t $CONFIG", {{" lr ", " --lr\t"}}), "srun t /r/c.json --lr 0.0001");
  EXPECT_EQ(line("srun t $CONFIG", {{"stage", "--z"}}), "srun t /r/c.json --z 2");
  EXPECT_EQ(line("srun t $CONFIG", {{"reduce_bucket_size", "--rbs"}}),
            "srun t /r/c.json --rbs 500000000");
  EXPECT_EQ(line("srun t $CONFIG", {{"gradient_clipping", "--clip"}}), "srun t /r/c.json --clip 0");
  EXPECT_EQ(line("srun t $CONFIG", {{"type", "--o"}}), "srun t /r/c.json --o AdamW");
}

TEST(LaunchLineTest, LeavesTheScriptAloneWhereThereIsNoValue) {
  EXPECT_EQ(line("srun t $CONFIG --gas 2", {{"gradient_accumulation_steps", "--gas"},
                                            {"weight_decay", "--wd"},
                                            {"no_such_key", "--no"},
                                            {"nothing", "--nothing"}}),
            "srun t /r/c.json --gas 2");
  // Depth-first: fp16's switch comes before bf16's, and it is off.
  EXPECT_EQ(line("srun t $CONFIG", {{"enabled", "--on"}}), "srun t /r/c.json");
}

TEST(LaunchLineTest, KeepsTheRestAsItWasWritten) {
  const Mappings micro = {{"train_micro_batch_size_per_gpu", "--bs"}};
  EXPECT_EQ(line("cd '/a b' && srun t \"$HOME\"/x  $CONFIG 2>&1 | tee log", micro),
            "cd '/a b' && srun t \"$HOME\"/x  /r/c.json --bs 4 2>&1 | tee log");
  EXPECT_EQ(line("srun t \\\n  --name 'a;b' $CONFIG; echo done", micro),
            "srun t \\\n  --name 'a;b' /r/c.json --bs 4; echo done");
  EXPECT_EQ(line("cd x\nt.py $CONFIG\n", micro),
            "cd x\ndeepspeed --num_nodes 2 --num_gpus 4 t.py /r/c.json --bs 4");
}

TEST(LaunchLineTest, RefusesALineThatHidesThePlace) {
  for (const char* const command : {"deepspeed train.py 2>&1 | tee log",
                                    "srun t; echo done",
                                    "cd x && srun t",
                                    "srun t &",
                                    "srun t || exit 1",
                                    "srun t # with the small data",
                                    "module load x\nsrun t",
                                    "(cd x; srun t)",
                                    "srun t <<EOF\nx\nEOF",
                                    "bash -c 'srun t'",
                                    "ssh h bash -lc 'srun t'",
                                    "eval \"$TRAIN\"",
                                    "A=1",
                                    "srun t 'x",
                                    "srun t $(cat x",
                                    "srun t >",
                                    "srun t $ARGUMENTS",
                                    "srun t $(cat arguments)",
                                    "srun t --deepspeed $OLD",
                                    "srun t # $CONFIG"}) {
    const std::string violation = launch_line_violation({command});
    EXPECT_NE(violation.find("put $CONFIG where its file goes"), std::string::npos) << command;
  }
  for (const char* const command :
       {"srun t", "srun t --name 'a;b|c' \"#\" a#b", "srun t --date=$(date | tail -1) --n $N",
        "$PYTHON t.py", "srun t $MORE --deepspeed_config old.json", "srun t \\\n  --x 1",
        "deepspeed train.py >log 2>&1", "srun t $HOME/data \"$DATA\"", "bash train.sh -c 1"})
    EXPECT_EQ(launch_line_violation({command}), "") << command;
  EXPECT_THROW(line("deepspeed train.py | tee log"), LogicError);
}

TEST(LaunchLineTest, RefusesMappingsWithoutAPlace) {
  const ArgMappings micro = {{"train_micro_batch_size_per_gpu", " --bs "}};
  for (const char* const command :
       {"C=$CONFIG; srun t --config $C", "export C=$CONFIG; srun t --config $C",
        "cat $CONFIG; srun t $CONFIG", "bash -c 'srun t $CONFIG'"}) {
    EXPECT_NE(launch_line_violation({command, micro}).find("--bs of"), std::string::npos)
        << command;
    EXPECT_EQ(launch_line_violation({command}), "") << command;
  }
  EXPECT_EQ(launch_line_violation({"C=1; srun t $CONFIG --bs 1 | tee log", micro}), "");
}

TEST(LaunchLineTest, LeavesRedirectionsBehindWhatIsAdded) {
  EXPECT_EQ(line("srun t >log 2>&1"), "srun t --deepspeed_config /r/c.json >log 2>&1");
  EXPECT_EQ(line("srun t &> log"), "srun t --deepspeed_config /r/c.json &> log");
  EXPECT_EQ(line("srun t --deepspeed_config old.json>log"),
            "srun t --deepspeed_config /r/c.json>log");
  EXPECT_EQ(line("srun t <in 3>out x"), "srun t <in 3>out x --deepspeed_config /r/c.json");
}

TEST(LaunchLineTest, ReplacesEachConfigurationThatIsNamed) {
  EXPECT_EQ(line("srun t --deepspeed_config a.json --deepspeed_config=b.json"),
            "srun t --deepspeed_config /r/c.json --deepspeed_config=/r/c.json");
  EXPECT_EQ(line("srun t --deepspeed=old.json"), "srun t --deepspeed=/r/c.json");
}

TEST(LaunchLineTest, NamesThePlaceholder) {
  EXPECT_EQ(placeholder_launch_line("/my dir/c.json", {8, 1}),
            "deepspeed --num_nodes 1 --num_gpus 8 your_training_script.py --deepspeed_config "
            "'/my dir/c.json'");
}

/// What a shell makes of a command that only prints its arguments, one a line.
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
