#include <algorithm>
#include <fmt/format.h>
#include <map>
#include <system_error>

#include "data/documents.h"
#include "quaver/error.h"

namespace quaver {
namespace {

namespace fs = std::filesystem;

bool any_match(std::span<const std::string> patterns, std::string_view path) {
  return std::any_of(patterns.begin(), patterns.end(),
                     [&](const auto& pattern) { return matches_glob(pattern, path); });
}

bool is_hidden(const fs::path& path) { return path.filename().string().starts_with('.'); }

// What a folder holds besides files and folders. Each kind is reported once, with the first of its kind.
class PassedOver {
 public:
  void add(const fs::directory_entry& entry) {
    Kind& kind = kinds_[kind_of(entry)];
    if (kind.count++ == 0 || entry.path() < kind.first) kind.first = entry.path();
  }

  void append_notes(std::vector<std::string>& notes) const {
    for (const auto& [what, kind] : kinds_) {
      notes.push_back(fmt::format("passed over: {} {}, the first {}", kind.count, what, kind.first.string()));
    }
  }

 private:
  struct Kind {
    std::uint64_t count = 0;
    fs::path first;
  };

  static std::string_view kind_of(const fs::directory_entry& entry) {
    if (!entry.is_symlink()) return "that are no files (pipes, sockets, devices)";
    std::error_code failure;
    const fs::file_status target = entry.status(failure);
    if (failure == std::errc::too_many_symbolic_link_levels) return "links that lead back to themselves";
    return fs::is_directory(target) ? "links to folders, which are not followed" : "links that lead to no file";
  }

  std::map<std::string_view, Kind> kinds_;
};

void append_folder(const fs::path& folder, const InputSelection& selection, Inputs& inputs) {
  std::vector<InputFile> found;
  PassedOver passed_over;
  const fs::path never = selection.never.empty() ? fs::path() : fs::weakly_canonical(selection.never);
  auto entry = fs::recursive_directory_iterator(folder);
  for (; entry != fs::recursive_directory_iterator(); ++entry) {
    std::error_code failure;  // of a link that leads nowhere
    const fs::file_status status = entry->status(failure);
    const bool is_folder = fs::is_directory(status) && !entry->is_symlink();
    if (is_hidden(entry->path()) || (is_folder && !never.empty() && fs::weakly_canonical(entry->path()) == never)) {
      if (is_folder) entry.disable_recursion_pending();
      continue;
    }
    if (is_folder) continue;
    if (!fs::is_regular_file(status)) {
      passed_over.add(*entry);
      continue;
    }
    const std::string relative = entry->path().lexically_relative(folder).generic_string();
    const bool included = selection.include.empty() || any_match(selection.include, relative);
    if (included && !any_match(selection.exclude, relative)) found.push_back({entry->path(), entry->file_size()});
  }
  if (found.empty()) {
    throw Error(fmt::format("no file in {} is taken by the include and exclude patterns", folder.string()),
                "check the folder and the patterns");
  }
  // By bytes of the path, not by the order of the file system, so that the result is the same everywhere.
  std::sort(found.begin(), found.end(),
            [](const InputFile& a, const InputFile& b) { return a.path.generic_string() < b.path.generic_string(); });
  inputs.files.insert(inputs.files.end(), found.begin(), found.end());
  passed_over.append_notes(inputs.notes);
}

}  // namespace

bool matches_glob(std::string_view pattern, std::string_view path) {
  if (pattern.find('/') == std::string_view::npos) path = path.substr(path.rfind('/') + 1);
  // reached[i]: the pattern so far matches path[0, i). One pass per pattern character: no backtracking to exploit.
  std::vector<char> reached(path.size() + 1, 0);
  reached[0] = 1;
  for (std::size_t p = 0; p < pattern.size(); ++p) {
    const char c = pattern[p];
    if (c == '*') {
      const bool crosses_folders = pattern.substr(p).starts_with("**");
      if (crosses_folders) ++p;
      const bool swallow_slash = crosses_folders && pattern.substr(p + 1).starts_with('/');  // "**/x" matches "x"
      if (swallow_slash) ++p;
      std::vector<char> next = reached;
      for (std::size_t i = 0; i < path.size(); ++i) {
        if (next[i] && (crosses_folders || path[i] != '/')) next[i + 1] = 1;
      }
      if (swallow_slash) {  // stop only at the start of a name
        for (std::size_t i = 1; i <= path.size(); ++i) next[i] = next[i] && (path[i - 1] == '/' || reached[i]);
      }
      reached = std::move(next);
    } else {
      for (std::size_t i = path.size(); i > 0; --i) {
        reached[i] = reached[i - 1] && (c == '?' ? path[i - 1] != '/' : path[i - 1] == c);
      }
      reached[0] = 0;
    }
  }
  return reached[path.size()] != 0;
}

Inputs list_inputs(const InputSelection& selection) {
  if (selection.inputs.empty()) throw Error("no input text", "give files or folders");
  Inputs inputs;
  for (const fs::path& input : selection.inputs) {
    try {
      if (fs::is_directory(input)) {
        append_folder(input, selection, inputs);
      } else if (fs::is_regular_file(input)) {
        inputs.files.push_back({input, fs::file_size(input)});
      } else {
        throw Error(fmt::format("no text at {}", input.string()), "give the path of a file or a folder");
      }
    } catch (const fs::filesystem_error& error) {
      throw Error(fmt::format("cannot search {}: {}", input.string(), error.code().message()),
                  "check the permissions, or exclude the folder");
    }
  }
  return inputs;
}

}  // namespace quaver
