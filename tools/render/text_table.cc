#include "tools/render/text_table.h"

#include <algorithm>
#include <sstream>

#include "proto/base/check.h"

namespace foreshard {
namespace {

constexpr size_t kGap = 2;
constexpr size_t kNarrowest = 12;  // of a column that gives way

std::string Fit(const std::string& cell, size_t width) {
  if (cell.size() <= width) return cell;
  return cell.substr(0, width - 3) + "...";
}

}  // namespace

void TextTable::AddRow(std::vector<std::string> cells) {
  CHECK_EQ(cells.size(), columns_.size());
  rows_.push_back(std::move(cells));
}

void TextTable::AddSpanningRow(std::vector<std::string> cells) {
  CHECK(!cells.empty() && cells.size() < columns_.size());
  rows_.push_back(std::move(cells));
}

std::vector<size_t> TextTable::Widths(int indent, int width) const {
  std::vector<size_t> widths(columns_.size(), 0);
  for (const auto& row : rows_) {
    const size_t spanning = row.size() < columns_.size() ? 1 : 0;
    for (size_t i = 0; i + spanning < row.size(); ++i) {
      widths[i] = std::max(widths[i], row[i].size());
    }
  }
  size_t total = static_cast<size_t>(indent) + kGap * (columns_.size() - 1);
  for (const size_t w : widths) total += w;
  while (total > static_cast<size_t>(width)) {
    size_t widest = columns_.size();
    for (size_t i = 0; i < columns_.size(); ++i) {
      if (columns_[i] == Align::kRight || widths[i] <= kNarrowest) continue;
      if (widest == columns_.size() || widths[i] > widths[widest]) widest = i;
    }
    if (widest == columns_.size()) break;
    --widths[widest];
    --total;
  }
  return widths;
}

std::string TextTable::Render(int indent, int width) const {
  const std::vector<size_t> widths = Widths(indent, width);
  std::string text;
  for (const auto& row : rows_) {
    std::string line(static_cast<size_t>(indent), ' ');
    for (size_t i = 0; i < row.size(); ++i) {
      if (i > 0) line += std::string(kGap, ' ');
      if (i + 1 == row.size() && row.size() < columns_.size()) {
        line += row[i];
        continue;
      }
      const std::string cell = Fit(row[i], widths[i]);
      const std::string pad(widths[i] - std::min(widths[i], cell.size()), ' ');
      line += columns_[i] == Align::kLeft ? cell + pad : pad + cell;
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  return text;
}

std::string Wrapped(const std::string& text, const std::string& first, int width) {
  const std::string rest(first.size(), ' ');
  std::string lines;
  std::string line = first;
  bool empty = true;
  std::istringstream words(text);
  for (std::string word; words >> word;) {
    if (!empty && line.size() + 1 + word.size() > static_cast<size_t>(width)) {
      lines += line + "\n";
      line = rest;
      empty = true;
    }
    line += (empty ? "" : " ") + word;
    empty = false;
  }
  return lines + line + "\n";
}

}  // namespace foreshard
