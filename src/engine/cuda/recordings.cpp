#include "engine/cuda/recordings.h"

#include <cstdlib>
#include <string_view>

namespace quaver::cuda {

namespace {

bool wanted() {
  const char* choice = std::getenv("QUAVER_GRAPHS");
  return choice == nullptr || std::string_view(choice) != "off";
}

}  // namespace

Recordings::Recordings(Gpu& gpu) : gpu_(gpu), enabled_(wanted()) {}

Recordings::~Recordings() { forget_all(); }

void Recordings::forget_all() {
  for (const auto& [key, recording] : recordings_) {
    if (recording.graph != nullptr) cudaGraphExecDestroy(recording.graph);
  }
  recordings_.clear();
}

void Recordings::repeat(std::uint64_t key, const std::function<void()>& work) {
  if (!enabled_) return work();
  const auto found = recordings_.find(key);
  if (found == recordings_.end()) {
    if (recordings_.size() >= most) forget_all();
    recordings_[key] = {};
    return work();
  }
  Recording& recording = found->second;
  if (recording.graph != nullptr && recording.moves != gpu_.workspace_moves()) {
    cudaGraphExecDestroy(recording.graph);
    recording = {};
  }
  if (recording.graph == nullptr) recording = {record(work), gpu_.workspace_moves()};
  check(cudaGraphLaunch(recording.graph, gpu_.stream()), "launching a recorded micro-step");
}

cudaGraphExec_t Recordings::record(const std::function<void()>& work) {
  check(cudaStreamBeginCapture(gpu_.stream(), cudaStreamCaptureModeThreadLocal), "recording a micro-step");
  gpu_.set_recording(true);
  cudaGraph_t graph = nullptr;
  try {
    work();
  } catch (...) {
    gpu_.set_recording(false);
    cudaStreamEndCapture(gpu_.stream(), &graph);
    cudaGraphDestroy(graph);
    throw;
  }
  gpu_.set_recording(false);
  check(cudaStreamEndCapture(gpu_.stream(), &graph), "recording a micro-step");
  cudaGraphExec_t executable = nullptr;
  const cudaError_t status = cudaGraphInstantiate(&executable, graph, 0);
  cudaGraphDestroy(graph);
  check(status, "preparing a recorded micro-step");
  return executable;
}

}  // namespace quaver::cuda
