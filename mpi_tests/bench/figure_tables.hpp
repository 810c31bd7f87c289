#pragma once
/// Tables that a bench prints, for people or for scripts/figures.py. Local.

#include <cstddef>
#include <string>
#include <vector>

namespace dstune::bench {

/// A cell: a text, a number as it is to be read, or nothing.
class Figure {
 public:
  Figure() = default;
  Figure(std::string text) : text_(std::move(text)) {}
  Figure(const char* text) : text_(text) {}
  Figure(std::size_t count) : text_(std::to_string(count)), is_number_(true) {}
  Figure(int count) : text_(std::to_string(count)), is_number_(true) {}
  Figure(double value, int decimals);

  [[nodiscard]] std::string markdown() const;
  [[nodiscard]] std::string json() const;

 private:
  std::string text_;
  bool is_number_ = false;
};

/// Prints each row at once in Markdown, or all tables in one JSON document by end().
class FigureTables {
 public:
  explicit FigureTables(bool is_json) : is_json_(is_json) {}

  /// `title` stands above the Markdown table; empty: nothing does.
  void begin(const std::string& name, const std::string& title,
             const std::vector<std::string>& columns);
  void row(const std::vector<Figure>& cells);
  void end();

 private:
  struct Table {
    std::string name;
    std::vector<std::string> columns;
    std::vector<std::vector<Figure>> rows;
  };
  bool is_json_;
  std::vector<Table> tables_;
};

}  // namespace dstune::bench
