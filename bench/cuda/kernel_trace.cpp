// Records which kernels a program ran, when and on which stream. CUDA loads it into any program:
//   CUDA_INJECTION64_PATH=build/kernel_trace.so KERNEL_TRACE=trace-%p.json quaver train …
// The file, one per process (%p: its number), opens in chrome://tracing or Perfetto; scripts/overlap reads it.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cupti.h>
#include <mutex>
#include <string>
#include <unistd.h>

namespace {

constexpr std::size_t buffer_bytes = std::size_t{4} << 20;

struct Trace {
  std::FILE* file = nullptr;
  std::mutex lock;
  bool any = false;
};
Trace trace;

std::string file_name() {
  const char* wanted = std::getenv("KERNEL_TRACE");
  std::string name = wanted != nullptr ? wanted : "kernel-trace-%p.json";
  const auto place = name.find("%p");
  if (place != std::string::npos) name.replace(place, 2, std::to_string(::getpid()));
  return name;
}

void CUPTIAPI give_buffer(std::uint8_t** buffer, std::size_t* bytes, std::size_t* most) {
  *buffer = static_cast<std::uint8_t*>(std::malloc(buffer_bytes));
  *bytes = buffer_bytes;
  *most = 0;
}

// Names of kernels are mangled: letters, digits and underscores.
void CUPTIAPI write_buffer(CUcontext, std::uint32_t, std::uint8_t* buffer, std::size_t, std::size_t valid) {
  const std::scoped_lock guard(trace.lock);
  CUpti_Activity* record = nullptr;
  while (cuptiActivityGetNextRecord(buffer, valid, &record) == CUPTI_SUCCESS) {
    if (record->kind != CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL) continue;
    const auto* kernel = reinterpret_cast<const CUpti_ActivityKernel10*>(record);
    std::fprintf(trace.file, "%s{\"ph\":\"X\",\"pid\":%d,\"tid\":%u,\"ts\":%.3f,\"dur\":%.3f,\"name\":\"%s\"}",
                 trace.any ? ",\n" : "", static_cast<int>(::getpid()), kernel->streamId,
                 static_cast<double>(kernel->start) / 1e3, static_cast<double>(kernel->end - kernel->start) / 1e3,
                 kernel->name);
    trace.any = true;
  }
  std::free(buffer);
}

void finish() {
  cuptiActivityFlushAll(1);
  const std::scoped_lock guard(trace.lock);
  std::fputs("\n]\n", trace.file);
  std::fclose(trace.file);
}

}  // namespace

extern "C" __attribute__((visibility("default"))) int InitializeInjection() {
  trace.file = std::fopen(file_name().c_str(), "w");
  if (trace.file == nullptr) return 0;
  std::fputs("[\n", trace.file);
  const bool recording = cuptiActivityRegisterCallbacks(give_buffer, write_buffer) == CUPTI_SUCCESS &&
                         cuptiActivityEnable(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL) == CUPTI_SUCCESS;
  std::atexit(finish);
  return recording ? 1 : 0;
}
