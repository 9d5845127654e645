// A wrapper of cuDNN's backend API for attention: libcudnn, loaded at run time and never linked; a graph of operations;
// and the execution plan it is compiled to.
#pragma once

#include <array>
#include <cstdint>
#include <cudnn.h>
#include <string>
#include <utility>
#include <vector>

namespace quaver::cuda {

// The functions of libcudnn.so.9, found in the directories of QUAVER_CUDNN_DIR (separated by colons) or where the
// system looks. Stays loaded.
class CudnnLibrary {
 public:
  CudnnLibrary();  // throws Error where there is none, or one that is known not to work

  decltype(&::cudnnCreate) create = nullptr;
  decltype(&::cudnnDestroy) destroy = nullptr;
  decltype(&::cudnnSetStream) set_stream = nullptr;
  decltype(&::cudnnGetVersion) get_version = nullptr;
  decltype(&::cudnnGetErrorString) get_error_string = nullptr;
  decltype(&::cudnnGetLastErrorString) get_last_error_string = nullptr;
  decltype(&::cudnnBackendCreateDescriptor) create_descriptor = nullptr;
  decltype(&::cudnnBackendDestroyDescriptor) destroy_descriptor = nullptr;
  decltype(&::cudnnBackendSetAttribute) set_attribute = nullptr;
  decltype(&::cudnnBackendGetAttribute) get_attribute = nullptr;
  decltype(&::cudnnBackendFinalize) finalize = nullptr;
  decltype(&::cudnnBackendExecute) execute = nullptr;

  std::string version() const;  // "9.19.0"
  std::string words(cudnnStatus_t status) const;
  void check(cudnnStatus_t status, const char* what) const;

 private:
  template <class Function>
  void find(void* library, Function& function, const char* name);
};

// A descriptor that is destroyed with its owner.
class CudnnDescriptor {
 public:
  CudnnDescriptor(const CudnnLibrary& library, cudnnBackendDescriptorType_t type);
  ~CudnnDescriptor();
  CudnnDescriptor(CudnnDescriptor&& other) noexcept
      : library_(other.library_), raw_(std::exchange(other.raw_, nullptr)) {}
  CudnnDescriptor(const CudnnDescriptor&) = delete;
  CudnnDescriptor& operator=(const CudnnDescriptor&) = delete;

  cudnnBackendDescriptor_t raw() const { return raw_; }
  void set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, std::int64_t count, const void* values);
  void set(cudnnBackendAttributeName_t name, cudnnBackendDescriptor_t value);
  void finalize();

 private:
  const CudnnLibrary* library_;
  cudnnBackendDescriptor_t raw_ = nullptr;
};

using CudnnNode = cudnnBackendDescriptor_t;  // a tensor of a graph, owned by it
using Extents = std::array<std::int64_t, 4>;

// An engine to try before those that cuDNN's heuristics propose, and its settings.
struct CudnnEngineChoice {
  std::int64_t engine = -1;  // negative: none
  std::vector<std::pair<cudnnBackendKnobType_t, std::int64_t>> knobs;
};

class CudnnGraph {
 public:
  CudnnGraph(const CudnnLibrary& library, cudnnHandle_t handle) : library_(library), handle_(handle) {}

  // Tensors. Those with an id are given an address when the plan runs; a scalar's is in host memory.
  CudnnNode tensor(std::int64_t id, cudnnDataType_t type, const Extents& extents, const Extents& strides);
  CudnnNode scalar(std::int64_t id);
  CudnnNode inner(const Extents& extents, cudnnDataType_t type = CUDNN_DATA_FLOAT);
  CudnnNode inner(const Extents& extents, const Extents& strides, cudnnDataType_t type);

  // Operations: each returns the tensor it writes.
  CudnnNode pointwise(cudnnPointwiseMode_t mode, CudnnNode x, CudnnNode y, CudnnNode out);
  CudnnNode pointwise(cudnnPointwiseMode_t mode, CudnnNode x, CudnnNode out);
  CudnnNode reduce(cudnnReduceTensorOp_t mode, CudnnNode x, CudnnNode out);
  CudnnNode matmul(CudnnNode a, CudnnNode b, CudnnNode out);
  CudnnNode reshape(CudnnNode x, CudnnNode out);
  CudnnNode mask_future(CudnnNode scores, const Extents& extents, CudnnNode other);  // row ≥ column ? scores : other

  // Compiles: the choice first, then what the heuristics list, best first. Throws Error where nothing compiles.
  void build(const CudnnEngineChoice& choice = {});
  std::size_t workspace_bytes() const { return workspace_bytes_; }
  void run(const std::vector<std::int64_t>& ids, const std::vector<void*>& addresses, void* workspace) const;

 private:
  enum class Kind : std::uint8_t { given, inner, by_value };
  struct Selection {
    CudnnNode condition = nullptr;
    std::int64_t axis = -1;
    cudnnDataType_t precision = CUDNN_DATA_FLOAT;
  };
  CudnnNode make_tensor(std::int64_t id, cudnnDataType_t type, const Extents& extents, const Extents& strides,
                        Kind kind);
  CudnnNode point(cudnnPointwiseMode_t mode, CudnnNode x, CudnnNode y, CudnnNode out, const Selection& selection);
  CudnnDescriptor& make(cudnnBackendDescriptorType_t type);
  void add_operation(CudnnDescriptor& operation);
  CudnnNode chosen_config(CudnnNode graph, const CudnnEngineChoice& choice);
  std::vector<CudnnNode> listed_configs(CudnnNode graph, cudnnBackendHeurMode_t mode);
  bool compile(CudnnNode config);

  const CudnnLibrary& library_;
  cudnnHandle_t handle_;
  std::int64_t next_id_ = 1000;
  std::vector<CudnnDescriptor> owned_;
  std::vector<cudnnBackendDescriptor_t> operations_;
  std::vector<CudnnDescriptor> plan_;  // one, once compiled
  std::size_t workspace_bytes_ = 0;
  std::string obstacle_;
};

}  // namespace quaver::cuda
