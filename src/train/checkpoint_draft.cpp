#include "train/checkpoint_draft.h"

#include "train/checkpoint_store.h"

namespace quaver {

CheckpointDraft::CheckpointDraft(std::filesystem::path folder, const CheckpointContent& content)
    : folder_(std::move(folder)),
      files_{{{checkpoint_model_file, &content.model,
               safetensors_layout(folder_ / checkpoint_model_file, content.model, content.metadata)},
              {checkpoint_optimizer_file, &content.optimizer,
               safetensors_layout(folder_ / checkpoint_optimizer_file, content.optimizer)}}} {}

void CheckpointDraft::create() const {
  for (const File& file : files_) {
    SharedFile::create(folder_ / file.name, file.layout.size);
    SharedFile(folder_ / file.name).write_at(0, std::as_bytes(std::span(file.layout.head)));
  }
}

CheckpointDraft::Checksums CheckpointDraft::write() const {
  Checksums checksums;
  for (const File& file : files_) {
    SharedFile shared(folder_ / file.name);
    for (std::size_t i = 0; i < file.tensors->size(); ++i) {
      const std::span<const std::byte> data = (*file.tensors)[i].data;
      shared.write_at(file.layout.offsets[i], data);
      checksums.push_back(data.empty() ? 0 : crc32c(data));
    }
    shared.sync();
  }
  return checksums;
}

std::map<std::string, FileDigest> CheckpointDraft::digests(const Checksums& all) const {
  std::map<std::string, FileDigest> digests;
  std::size_t first = 0;
  for (const File& file : files_) {
    FileDigest digest{file.layout.size, crc32c(std::as_bytes(std::span(file.layout.head)))};
    for (const std::size_t i : file.layout.order) {
      digest.crc32c = crc32c_joined(digest.crc32c, all[first + i], tensor_bytes((*file.tensors)[i]));
    }
    digests[file.name] = digest;
    first += file.tensors->size();
  }
  return digests;
}

}  // namespace quaver
