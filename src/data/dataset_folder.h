// The folder of a data set while a new one is written into it. What is there stays whole until the new one is: new
// files are staged under names of their own, one rename of dataset.json changes over, and only then the old files go
// and the new ones take their usual names. A process killed at any moment leaves the old data set or the new one.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <string_view>

#include "data/prepare.h"

namespace quaver {

// Error where the folder holds a data set, or shards of an unfinished one.
void refuse_existing_dataset(const std::filesystem::path& folder);

class DatasetFolder {
 public:
  // Makes the folder, locks it, and removes what killed writers left. Error where another process writes to it, and
  // where it holds a data set that may not be overwritten.
  DatasetFolder(const std::filesystem::path& folder, ExistingDataset existing);
  ~DatasetFolder();  // removes the staged files, unless they were committed
  DatasetFolder(const DatasetFolder&) = delete;
  DatasetFolder& operator=(const DatasetFolder&) = delete;

  // Where to write the file that is to be called train-00000.qv, say.
  std::filesystem::path stage(const std::string& name);

  // What dataset.json is to refer to.
  struct Files {
    std::function<std::string(const std::string&)> name_of;  // that a file has, given the one it was to have
    std::set<std::string> replaced;                          // files of the old data set that may still be there
  };
  using Index = std::function<std::string(const Files&)>;  // gives the text of dataset.json

  // Puts the new data set in place of the old. The index is asked for once for the staged names and, where these
  // differ from the usual ones and the file system has hard links, once more.
  void commit(const Index& index);

 private:
  void lock();
  void read_old_index();
  void remove_leftovers() const;
  int free_generation() const;
  void remove_old_files() const;
  void take_usual_names(const Index& index);
  void write_index(const std::string& text) const;
  bool holds_index(const std::string& text) const;

  std::filesystem::path folder_;
  int descriptor_ = -1;  // of the folder, with the lock
  int generation_ = 0;   // of the staged names; 0: the usual ones
  bool index_is_readable_ = true;
  std::set<std::string> referenced_;           // by the dataset.json that is there
  std::set<std::string> replaced_;             // those, and those that it replaced itself
  std::map<std::string, std::string> staged_;  // usual name to the one it has now
  bool committed_ = false;
};

}  // namespace quaver
