#include <cctype>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "dstune/base/text.hpp"
#include "dstune/report/result_files.hpp"
#include "environment_table.hpp"
#include "exit_table.hpp"
#include "manuals.hpp"
#include "option_table.hpp"
#include "roff.hpp"

namespace dstune {
namespace {

/// Words in capitals, and these, stand for something else.
bool is_placeholder(std::string_view word) {
  if (word == "options" || word == "space.json") return true;
  bool has_capital = false;
  for (const char letter : word) {
    if (std::islower(static_cast<unsigned char>(letter)) != 0) return false;
    has_capital = has_capital || std::isupper(static_cast<unsigned char>(letter)) != 0;
  }
  return has_capital;
}

/// A usage or the form of a value: "[=SCRIPT]", "auto|cpu", "FILE...", word by word.
std::string form_text(std::string_view form) {
  constexpr std::string_view signs = "[]|= ";
  std::string text;
  while (!form.empty()) {
    if (signs.find(form.front()) != signs.npos) {
      text += form.front();
      form.remove_prefix(1);
      continue;
    }
    std::string_view word = form.substr(0, form.find_first_of(signs));
    form.remove_prefix(word.size());
    const bool goes_on = word.ends_with("...");
    if (goes_on) word.remove_suffix(3);
    text += is_placeholder(word) ? roff::italic(word) : roff::bold(word);
    if (goes_on) text += " ...";
  }
  return text;
}

std::string option_tag(const OptionRow& option) {
  const std::string name = roff::bold("--" + option.name);
  if (option.form.empty()) return name;
  return name + (is_value_optional(option) ? "" : " ") + form_text(option.form);
}

void add_commands(roff::Page& page) {
  page.section("COMMANDS");
  page.paragraph("The command is the first word. Without one the search runs.");
  for (const CommandRow& row : command_table()) page.item(form_text(row.usage), row.help + ".");
}

/// Every option once, with the first command that takes it; for later ones its name alone.
void add_options(roff::Page& page) {
  page.section("OPTIONS");
  page.paragraph(option_rules);
  std::set<std::string_view> told;
  std::set<Command> done;
  for (const CommandRow& row : command_table()) {
    if (row.command == Command::help || !done.insert(row.command).second) continue;
    page.subsection(row.name.empty() ? "For a job" : fmt::format("For {}", row.name));
    std::vector<std::string> again;
    for (const OptionRow& option : option_table()) {
      if (!takes(row.command, option)) continue;
      if (told.insert(option.name).second)
        page.item(option_tag(option), option.help + ".");
      else
        again.push_back(roff::bold("--" + option.name));
    }
    if (!again.empty()) page.written(fmt::format("As above: {}.", fmt::join(again, ", ")));
  }
}

void add_exit_codes(roff::Page& page) {
  page.section("EXIT STATUS");
  for (const ExitRow& row : exit_table())
    page.item(roff::bold(std::to_string(static_cast<int>(row.code))),
              fmt::format("{}.{}{}", row.words, row.more.empty() ? "" : " ", row.more));
  page.paragraph(exit_note);
}

void add_variables(roff::Page& page) {
  page.section("ENVIRONMENT");
  for (const VariableRow& row : environment_table()) {
    std::vector<std::string> names;
    for (const std::string& name : row.names) names.push_back(roff::bold(name));
    // A tag is a line: many names stand in the text.
    if (names.size() <= 3)
      page.item(fmt::format("{}", fmt::join(names, ", ")), row.help);
    else
      page.item(names.front() + " and others",
                fmt::format("{} All of them: `{}`.", row.help, fmt::join(row.names, "`, `")));
  }
}

void add_files(roff::Page& page) {
  page.section("FILES");
  page.paragraph(
      "Files of the results folder (`--results-dir`, by default autotuning_results). An experiment "
      "has a folder by its name.");
  for (const ResultFile& file : result_files())
    page.item(form_text(file.path.starts_with("NAME/") ? "NAME" : "") +
                  roff::bold(file.path.substr(file.path.starts_with("NAME/") ? 4 : 0)),
              file.help + ".");
  page.paragraph("Experiments are also in autotuning_exps (`--exps-dir`).");
}

void add_examples(roff::Page& page) {
  page.section("EXAMPLES");
  page.paragraph("A laptop says what fits on GPUs that are elsewhere:");
  page.example("dstune-mpi plan --device a100-80gb --gpus-per-node 8 space.json");
  page.paragraph("A job on 4 ranks takes half an hour at most; another shell says where it is:");
  page.example(
      "mpirun -np 4 dstune-mpi --time-limit 30m space.json\n"
      "dstune-mpi status");
  page.paragraph("The same command resumes a job that was stopped. On a cluster with Slurm:");
  page.example(
      "dstune-mpi batch slurm --time-limit 2h space.json > tune.sbatch\n"
      "sbatch tune.sbatch");
  page.paragraph(
      "A check says what a release of DeepSpeed refuses in a config, and what has no effect:");
  page.example("dstune-mpi check --deepspeed-version 0.18.9 ds_config.json");
}

}  // namespace

std::string program_page(const Release& release) {
  roff::Page page("DSTUNE-MPI", 1, release.date, "dstune-mpi " + release.version, "User Commands");
  page.section("NAME");
  page.line("dstune\\-mpi \\- find the fastest DeepSpeed configuration inside one MPI job");
  page.section("SYNOPSIS");
  std::vector<std::string> usages;
  for (const CommandRow& row : command_table()) usages.push_back(form_text(row.usage));
  page.unfilled(usages);
  page.section("DESCRIPTION");
  page.paragraph(
      "dstune-mpi finds the fastest DeepSpeed (ZeRO) configuration of a model on the machine that "
      "it runs on. A space, space.json, is a DeepSpeed config in which any value may be a list of "
      "candidates: dstune-space(5). Each choice is a member of the space.");
  page.paragraph(
      "The memory of each member is planned before anything runs, so what does not fit is never "
      "started. Groups of MPI ranks then run real training steps of the most promising members. "
      "Losers are stopped early, and the best few run again, alone. Rank 0 schedules; nothing is "
      "launched.");
  page.paragraph(
      "Progress and messages go to stderr, results to stdout and to the results folder. What was "
      "measured is kept: the same command resumes, also after a crash.");
  add_commands(page);
  add_options(page);
  add_exit_codes(page);
  add_variables(page);
  add_files(page);
  add_examples(page);
  page.section("SEE ALSO");
  page.written(fmt::format("{}(5), {}(1)", roff::bold("dstune-space"), roff::bold("mpirun")));
  page.paragraph(
      "The manual's other parts are in the folder docs, which an installation has in "
      "share/doc/dstune-mpi. Begin with index.md.");
  return page.text();
}

}  // namespace dstune
