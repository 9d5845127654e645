#if __has_include(<cudnn.h>)
#include "engine/cuda/attention/cudnn_graph.h"

#include <cstdlib>
#include <dlfcn.h>
#include <sstream>

#include "quaver/error.h"

namespace quaver::cuda {

namespace {

constexpr std::size_t oldest_version = 90600;  // since then the backward pass clears its own accumulator

std::vector<std::string> candidates() {
  std::vector<std::string> names;
  if (const char* directories = std::getenv("QUAVER_CUDNN_DIR")) {
    std::istringstream list(directories);
    for (std::string directory; std::getline(list, directory, ':');) {
      if (!directory.empty()) names.push_back(directory + "/libcudnn.so.9");
    }
  }
  names.insert(names.end(), {"libcudnn.so.9", "libcudnn.so"});
  return names;
}

void* open_library() {
  std::string why;
  for (const std::string& name : candidates()) {
    if (void* library = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL)) return library;
    if (const char* words = dlerror(); words != nullptr && why.empty()) why = words;
  }
  throw Error("cuDNN was not found: " + why,
              "install cuDNN 9 for this CUDA version, or name its directory in QUAVER_CUDNN_DIR");
}

}  // namespace

template <class Function>
void CudnnLibrary::find(void* library, Function& function, const char* name) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  if (function == nullptr) {
    throw Error(std::string("cuDNN has no function ") + name, "install cuDNN 9.6 or newer");
  }
}

CudnnLibrary::CudnnLibrary() {
  void* library = open_library();
  find(library, create, "cudnnCreate");
  find(library, destroy, "cudnnDestroy");
  find(library, set_stream, "cudnnSetStream");
  find(library, get_version, "cudnnGetVersion");
  find(library, get_error_string, "cudnnGetErrorString");
  find(library, get_last_error_string, "cudnnGetLastErrorString");
  find(library, create_descriptor, "cudnnBackendCreateDescriptor");
  find(library, destroy_descriptor, "cudnnBackendDestroyDescriptor");
  find(library, set_attribute, "cudnnBackendSetAttribute");
  find(library, get_attribute, "cudnnBackendGetAttribute");
  find(library, finalize, "cudnnBackendFinalize");
  find(library, execute, "cudnnBackendExecute");
  const std::size_t number = get_version();
  if (number < oldest_version) throw Error("cuDNN " + version() + " is too old", "install cuDNN 9.6 or newer");
  if (number == 91000 || number == 91001) {
    throw Error("attention is known to fail in cuDNN " + version(), "install cuDNN 9.10.2 or newer");
  }
}

std::string CudnnLibrary::version() const {
  const std::size_t number = get_version();
  return std::to_string(number / 10000) + "." + std::to_string(number / 100 % 100) + "." + std::to_string(number % 100);
}

std::string CudnnLibrary::words(cudnnStatus_t status) const {
  std::array<char, 1024> detail{};
  get_last_error_string(detail.data(), detail.size());
  const std::string name = get_error_string(status);
  return detail[0] == '\0' ? name : name + ", " + detail.data();
}

void CudnnLibrary::check(cudnnStatus_t status, const char* what) const {
  if (status == CUDNN_STATUS_SUCCESS) return;
  throw Error(std::string("cuDNN: ") + what + ": " + words(status),
              "QUAVER_ATTENTION=own computes attention without cuDNN");
}

CudnnDescriptor::CudnnDescriptor(const CudnnLibrary& library, cudnnBackendDescriptorType_t type) : library_(&library) {
  library.check(library.create_descriptor(type, &raw_), "making a descriptor");
}

CudnnDescriptor::~CudnnDescriptor() {
  if (raw_ != nullptr) library_->destroy_descriptor(raw_);
}

void CudnnDescriptor::set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, std::int64_t count,
                          const void* values) {
  library_->check(library_->set_attribute(raw_, name, type, count, values), "setting an attribute");
}

void CudnnDescriptor::set(cudnnBackendAttributeName_t name, cudnnBackendDescriptor_t value) {
  set(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &value);
}

void CudnnDescriptor::finalize() { library_->check(library_->finalize(raw_), "checking a descriptor"); }

CudnnDescriptor& CudnnGraph::make(cudnnBackendDescriptorType_t type) {
  owned_.emplace_back(library_, type);
  return owned_.back();
}

CudnnNode CudnnGraph::make_tensor(std::int64_t id, cudnnDataType_t type, const Extents& extents, const Extents& strides,
                                  Kind kind) {
  constexpr std::int64_t alignment = 16;
  constexpr bool yes = true;
  CudnnDescriptor& tensor = make(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  tensor.set(CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type);
  tensor.set(CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, extents.data());
  tensor.set(CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, strides.data());
  tensor.set(CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &id);
  tensor.set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, &alignment);
  if (kind == Kind::inner) tensor.set(CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, &yes);
  if (kind == Kind::by_value) tensor.set(CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, 1, &yes);
  tensor.finalize();
  return tensor.raw();
}

CudnnNode CudnnGraph::tensor(std::int64_t id, cudnnDataType_t type, const Extents& extents, const Extents& strides) {
  return make_tensor(id, type, extents, strides, Kind::given);
}

CudnnNode CudnnGraph::scalar(std::int64_t id) {
  return make_tensor(id, CUDNN_DATA_FLOAT, {1, 1, 1, 1}, {1, 1, 1, 1}, Kind::by_value);
}

CudnnNode CudnnGraph::inner(const Extents& extents, cudnnDataType_t type) {
  const std::int64_t plane = extents[2] * extents[3];
  return inner(extents, {extents[1] * plane, plane, extents[3], 1}, type);
}

CudnnNode CudnnGraph::inner(const Extents& extents, const Extents& strides, cudnnDataType_t type) {
  return make_tensor(next_id_++, type, extents, strides, Kind::inner);
}

void CudnnGraph::add_operation(CudnnDescriptor& operation) {
  operation.finalize();
  operations_.push_back(operation.raw());
}

CudnnNode CudnnGraph::point(cudnnPointwiseMode_t mode, CudnnNode x, CudnnNode y, CudnnNode out,
                            const Selection& selection) {
  CudnnDescriptor& settings = make(CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
  settings.set(CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &mode);
  settings.set(CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, 1, &selection.precision);
  if (selection.axis >= 0) settings.set(CUDNN_ATTR_POINTWISE_AXIS, CUDNN_TYPE_INT64, 1, &selection.axis);
  settings.finalize();
  const CudnnNode settings_node = settings.raw();
  CudnnDescriptor& operation = make(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
  operation.set(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, settings_node);
  operation.set(CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x);
  if (y != nullptr) operation.set(CUDNN_ATTR_OPERATION_POINTWISE_BDESC, y);
  if (selection.condition != nullptr) operation.set(CUDNN_ATTR_OPERATION_POINTWISE_TDESC, selection.condition);
  operation.set(CUDNN_ATTR_OPERATION_POINTWISE_YDESC, out);
  add_operation(operation);
  return out;
}

CudnnNode CudnnGraph::pointwise(cudnnPointwiseMode_t mode, CudnnNode x, CudnnNode y, CudnnNode out) {
  return point(mode, x, y, out, {});
}

CudnnNode CudnnGraph::pointwise(cudnnPointwiseMode_t mode, CudnnNode x, CudnnNode out) {
  return point(mode, x, nullptr, out, {});
}

CudnnNode CudnnGraph::reduce(cudnnReduceTensorOp_t mode, CudnnNode x, CudnnNode out) {
  constexpr cudnnDataType_t precision = CUDNN_DATA_FLOAT;
  CudnnDescriptor& settings = make(CUDNN_BACKEND_REDUCTION_DESCRIPTOR);
  settings.set(CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, 1, &mode);
  settings.set(CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &precision);
  settings.finalize();
  const CudnnNode settings_node = settings.raw();
  CudnnDescriptor& operation = make(CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR);
  operation.set(CUDNN_ATTR_OPERATION_REDUCTION_DESC, settings_node);
  operation.set(CUDNN_ATTR_OPERATION_REDUCTION_XDESC, x);
  operation.set(CUDNN_ATTR_OPERATION_REDUCTION_YDESC, out);
  add_operation(operation);
  return out;
}

CudnnNode CudnnGraph::matmul(CudnnNode a, CudnnNode b, CudnnNode out) {
  constexpr cudnnDataType_t precision = CUDNN_DATA_FLOAT;
  CudnnDescriptor& settings = make(CUDNN_BACKEND_MATMUL_DESCRIPTOR);
  settings.set(CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &precision);
  settings.finalize();
  const CudnnNode settings_node = settings.raw();
  CudnnDescriptor& operation = make(CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
  operation.set(CUDNN_ATTR_OPERATION_MATMUL_DESC, settings_node);
  operation.set(CUDNN_ATTR_OPERATION_MATMUL_ADESC, a);
  operation.set(CUDNN_ATTR_OPERATION_MATMUL_BDESC, b);
  operation.set(CUDNN_ATTR_OPERATION_MATMUL_CDESC, out);
  add_operation(operation);
  return out;
}

CudnnNode CudnnGraph::reshape(CudnnNode x, CudnnNode out) {
  CudnnDescriptor& operation = make(CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR);
  operation.set(CUDNN_ATTR_OPERATION_RESHAPE_XDESC, x);
  operation.set(CUDNN_ATTR_OPERATION_RESHAPE_YDESC, out);
  add_operation(operation);
  return out;
}

CudnnNode CudnnGraph::mask_future(CudnnNode scores, const Extents& extents, CudnnNode other) {
  const CudnnNode row = point(CUDNN_POINTWISE_GEN_INDEX, scores, nullptr, inner(extents, CUDNN_DATA_INT32),
                              {.condition = nullptr, .axis = 2, .precision = CUDNN_DATA_FLOAT});
  const CudnnNode column = point(CUDNN_POINTWISE_GEN_INDEX, scores, nullptr, inner(extents, CUDNN_DATA_INT32),
                                 {.condition = nullptr, .axis = 3, .precision = CUDNN_DATA_FLOAT});
  const CudnnNode seen = point(CUDNN_POINTWISE_CMP_GE, row, column, inner(extents, CUDNN_DATA_BOOLEAN),
                               {.condition = nullptr, .axis = -1, .precision = CUDNN_DATA_BOOLEAN});
  return point(CUDNN_POINTWISE_BINARY_SELECT, scores, other, inner(extents),
               {.condition = seen, .axis = -1, .precision = CUDNN_DATA_FLOAT});
}

CudnnNode CudnnGraph::chosen_config(CudnnNode graph, const CudnnEngineChoice& choice) {
  CudnnDescriptor engine(library_, CUDNN_BACKEND_ENGINE_DESCRIPTOR);
  engine.set(CUDNN_ATTR_ENGINE_OPERATION_GRAPH, graph);
  engine.set(CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1, &choice.engine);
  engine.finalize();
  std::vector<CudnnNode> knobs;
  for (const auto& [type, value] : choice.knobs) {
    CudnnDescriptor& knob = make(CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR);
    knob.set(CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, CUDNN_TYPE_KNOB_TYPE, 1, &type);
    knob.set(CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, CUDNN_TYPE_INT64, 1, &value);
    knob.finalize();
    knobs.push_back(knob.raw());
  }
  CudnnDescriptor& config = make(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
  config.set(CUDNN_ATTR_ENGINECFG_ENGINE, engine.raw());
  config.set(CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, CUDNN_TYPE_BACKEND_DESCRIPTOR, static_cast<std::int64_t>(knobs.size()),
             knobs.data());
  config.finalize();
  const CudnnNode node = config.raw();
  owned_.push_back(std::move(engine));
  return node;
}

std::vector<CudnnNode> CudnnGraph::listed_configs(CudnnNode graph, cudnnBackendHeurMode_t mode) {
  CudnnDescriptor heuristics(library_, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
  heuristics.set(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph);
  heuristics.set(CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode);
  heuristics.finalize();
  std::int64_t count = 0;
  library_.check(library_.get_attribute(heuristics.raw(), CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                                        0, &count, nullptr),
                 "counting engines");
  std::vector<CudnnNode> configs;
  for (std::int64_t i = 0; i < count; ++i) configs.push_back(make(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR).raw());
  if (count == 0) return configs;
  library_.check(library_.get_attribute(heuristics.raw(), CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                                        count, &count, configs.data()),
                 "listing engines");
  configs.resize(static_cast<std::size_t>(count));
  owned_.push_back(std::move(heuristics));
  return configs;
}

bool CudnnGraph::compile(CudnnNode config) {
  CudnnDescriptor plan(library_, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
  plan.set(CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1, &handle_);
  plan.set(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, config);
  if (const cudnnStatus_t status = library_.finalize(plan.raw()); status != CUDNN_STATUS_SUCCESS) {
    obstacle_ = library_.words(status);
    return false;
  }
  std::int64_t bytes = 0;
  std::int64_t count = 0;
  library_.check(
      library_.get_attribute(plan.raw(), CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1, &count, &bytes),
      "asking for a plan's workspace");
  workspace_bytes_ = static_cast<std::size_t>(bytes);
  plan_.push_back(std::move(plan));
  return true;
}

void CudnnGraph::build(const CudnnEngineChoice& choice) {
  CudnnDescriptor& graph = make(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
  graph.set(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &handle_);
  graph.set(CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, static_cast<std::int64_t>(operations_.size()),
            operations_.data());
  graph.finalize();
  const CudnnNode node = graph.raw();
  obstacle_ = "no engine supports it";
  if (choice.engine >= 0) {
    try {
      if (compile(chosen_config(node, choice))) return;
    } catch (const Error& error) {
      obstacle_ = error.what();  // the heuristics may know another
    }
  }
  for (const cudnnBackendHeurMode_t mode : {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK}) {
    for (const CudnnNode config : listed_configs(node, mode)) {
      if (compile(config)) return;
    }
  }
  throw Error("cuDNN has no plan: " + obstacle_, "QUAVER_ATTENTION=own computes attention without cuDNN");
}

void CudnnGraph::run(const std::vector<std::int64_t>& ids, const std::vector<void*>& addresses, void* workspace) const {
  CudnnDescriptor pack(library_, CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
  const auto count = static_cast<std::int64_t>(ids.size());
  pack.set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, count, ids.data());
  pack.set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, count, addresses.data());
  pack.set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &workspace);
  pack.finalize();
  library_.check(library_.execute(handle_, plan_.front().raw(), pack.raw()), "running attention");
}

}  // namespace quaver::cuda

#endif
