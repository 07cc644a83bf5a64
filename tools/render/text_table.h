// Columns of text, each as wide as its widest cell.
#pragma once

#include <string>
#include <vector>

namespace foreshard {

class TextTable {
 public:
  enum class Align { kLeft, kRight };

  explicit TextTable(std::vector<Align> columns) : columns_(std::move(columns)) {}

  // REQUIRES: as many cells as columns.
  void AddRow(std::vector<std::string> cells);

  // The last cell runs over the columns that are left. REQUIRES: 1 <= cells < columns.
  void AddSpanningRow(std::vector<std::string> cells);

  // One line per row, each after `indent` blanks, columns two blanks apart, no blanks at ends.
  // Left-aligned columns give way when a line would exceed `width`: their cells end in "...".
  std::string Render(int indent, int width) const;

 private:
  std::vector<size_t> Widths(int indent, int width) const;

  std::vector<Align> columns_;
  std::vector<std::vector<std::string>> rows_;
};

// `text` in lines of at most `width` columns, the first after `first`, the rest indented alike.
std::string Wrapped(const std::string& text, const std::string& first, int width);

}  // namespace foreshard
