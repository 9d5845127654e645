#include "interop/weight_files.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include "quaver/error.h"

namespace quaver {

namespace fs = std::filesystem;

StagedFolder::StagedFolder(const fs::path& target) : target_(fs::absolute(target).lexically_normal()) {
  if (!target_.has_filename()) target_ = target_.parent_path();
  std::error_code ignored;
  if (fs::exists(target_, ignored) && !(fs::is_directory(target_, ignored) && fs::is_empty(target_, ignored))) {
    throw Error(target_.string() + " is already there", "choose a new folder, or remove it");
  }
  staged_ = target_.parent_path() / fmt::format(".{}.{}", target_.filename().string(), ::getpid());
  make_folder(staged_);
}

StagedFolder::~StagedFolder() {
  std::error_code ignored;
  if (!staged_.empty()) fs::remove_all(staged_, ignored);
}

fs::path StagedFolder::operator/(const std::string& name) {
  names_.push_back(name);
  return staged_ / name;
}

void StagedFolder::copy(const fs::path& file) {
  write_file_atomically(*this / file.filename().string(), MappedFile::open(file).text());
}

std::vector<fs::path> StagedFolder::commit() {
  sync_directory(staged_);
  std::error_code error;
  fs::rename(staged_, target_, error);  // replaces an empty folder
  if (error) throw system_error("cannot put in place", target_, error.value());
  staged_.clear();
  sync_directory(target_.parent_path());
  std::vector<fs::path> files;
  for (const std::string& name : names_) files.push_back(target_ / name);
  return files;
}

WeightFiles::WeightFiles(StagedFolder& folder, const std::vector<File>& files) : folder_(folder) {
  for (const File& file : files) {
    std::vector<TensorEntry> entries;
    for (const TensorSpec& tensor : file.tensors) entries.push_back({tensor.name, tensor.dtype, tensor.shape, {}});
    const fs::path path = folder / file.name;
    const SafetensorsLayout layout = safetensors_layout(path, entries);
    SharedFile::create(path, layout.size);
    files_.emplace_back(path).write_at(0, std::as_bytes(std::span(layout.head)));
    for (std::size_t i = 0; i < entries.size(); ++i) {
      places_.emplace(entries[i].name, Place{names_.size(), layout.offsets[i]});
    }
    names_.push_back(file.name);
    bytes_ += layout.size - layout.head.size();
  }
}

void WeightFiles::write(const std::string& tensor, std::uint64_t offset, std::span<const std::byte> bytes) {
  const Place& place = places_.at(tensor);
  files_[place.file].write_at(place.offset + offset, bytes);
}

void WeightFiles::finish(Index wanted) {
  for (SharedFile& file : files_) file.sync();
  if (wanted == Index::none) return;
  if (files_.size() == 1 && names_.front() == "model.safetensors") return;
  nlohmann::json index;
  for (const auto& [tensor, place] : places_) index["weight_map"][tensor] = names_[place.file];
  index["metadata"]["total_size"] = bytes_;
  write_file_atomically(folder_ / "model.safetensors.index.json", index.dump(2) + "\n");
}

}  // namespace quaver
