// The doctor's findings as text for people and as JSON for programs.
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "study/doctor.h"

namespace quaver {

namespace {

using Json = nlohmann::ordered_json;

std::string_view name_of(SupportLevel level) {
  switch (level) {
    case SupportLevel::native:
      return "native";
    case SupportLevel::emulated:
      return "emulated";
    case SupportLevel::unavailable:
      break;
  }
  return "unavailable";
}

std::string_view name_of(CudaState state) {
  switch (state) {
    case CudaState::absent:
      return "no module";
    case CudaState::no_driver:
      return "no driver";
    case CudaState::unusable:
      return "unusable";
    case CudaState::no_gpu:
      return "no GPU";
    case CudaState::ready:
      break;
  }
  return "ready";
}

double gib(std::size_t bytes) { return static_cast<double>(bytes) / 0x1p30; }

std::string row(std::string_view name, const std::string& value) { return fmt::format("  {:<14}{}\n", name, value); }

std::string cpu_text(const CpuReport& report) {
  return "CPU\n" + row("model", report.model) + row("cores", std::to_string(report.cores)) +
         row("instructions", fmt::format("{}", fmt::join(report.instructions, " "))) +
         row("OpenBLAS", report.openblas + " kernels") +
         row("memory", fmt::format("{:.1f} GiB, {:.1f} GiB available", gib(static_cast<std::size_t>(report.memory)),
                                   gib(static_cast<std::size_t>(report.memory_available))));
}

std::string reading_text(const GpuReading& reading) {
  std::string text;
  const auto add = [&](const std::string& part) { text += (text.empty() ? "" : ", ") + part; };
  if (reading.watts) add(fmt::format("{:.0f} W", *reading.watts));
  if (reading.sm_mhz) add(fmt::format("{} MHz", *reading.sm_mhz));
  if (reading.celsius) add(fmt::format("{} °C", *reading.celsius));
  if (reading.memory_used) add(fmt::format("{:.1f} GiB used", gib(*reading.memory_used)));
  if (reading.busy_percent) add(fmt::format("{} % busy", *reading.busy_percent));
  return text;
}

std::string gpu_text(const DoctorReport& report) {
  const CudaReport& cuda = report.cuda;
  std::string text = "GPU\n";
  for (const CudaDevice& device : cuda.machine.devices) {
    text += row("device", fmt::format("{}, sm_{}, {} multiprocessors, {:.1f} GiB", device.name, device.architecture,
                                      device.multiprocessors, gib(device.memory)));
  }
  if (cuda.machine.devices.empty()) {
    text += row("device", report.card ? report.card->name + ", which CUDA cannot use here" : "none that can be used");
  }
  if (report.reading) text += row("now", reading_text(*report.reading));
  text += row("driver", report.driver.empty() ? "none" : report.driver);
  text += row("module", cuda.module.empty() ? "quaver_cuda.so not found" : cuda.module.string());
  text += row("state", cuda.problem.empty() ? std::string(name_of(cuda.state))
                                            : fmt::format("{}: {}", name_of(cuda.state), cuda.problem));
  if (!cuda.machine.runtime.empty()) {
    text += row("CUDA", fmt::format("{}, the driver supports {}", cuda.machine.runtime, cuda.machine.driver));
    text += row("cuBLASLt", cuda.machine.cublaslt);
    text += row("cuDNN", cuda.machine.cudnn.empty() ? "none: " + cuda.machine.cudnn_problem : cuda.machine.cudnn);
  }
  return text;
}

std::string recipes_text(const DoctorReport& report) {
  const std::vector<RecipeSupport>& recipes = report.recipes;
  const bool gpu = !report.gpu_engine.empty();
  std::string text = "recipes\n";
  for (const RecipeSupport& recipe : recipes) {
    text += fmt::format("  {:<14}{:<6}{:<13}{}\n", recipe.recipe, "cpu", name_of(recipe.cpu.level), recipe.cpu.how);
    if (gpu) text += fmt::format("  {:<14}{:<6}{:<13}{}\n", "", "gpu", name_of(recipe.gpu.level), recipe.gpu.how);
  }
  return text + (gpu ? "" : fmt::format("  {:<14}{:<6}unavailable  {}\n", "all", "gpu", recipes.front().gpu.how));
}

std::string check_text(const GemmCheck& check) {
  if (!check.failure.empty()) return row("failed", check.engine + ": " + check.failure);
  return row(check.good() ? "passed" : "WRONG",
             fmt::format("{}: error {:.1e} of the sum against {} (at most {:.1e}); {:.3f} ms for {}³, {:.3g} TFLOP/s",
                         check.engine, check.error, check.against, check.bound, check.milliseconds, check.extent,
                         check.tflops));
}

std::string problems_text(const char* title, const std::vector<Problem>& problems) {
  if (problems.empty()) return "";
  std::string text = fmt::format("\n{}\n", title);
  for (const Problem& problem : problems) text += fmt::format("  {}\n    → {}\n", problem.what, problem.remedy);
  return text;
}

template <class Value>
void put(Json& json, const char* key, const std::optional<Value>& value) {
  json[key] = value ? Json(*value) : Json(nullptr);
}

Json support_json(const Support& support) { return {{"level", name_of(support.level)}, {"how", support.how}}; }

Json gpu_json(const DoctorReport& report) {
  const CudaReport& cuda = report.cuda;
  Json devices = Json::array();
  for (const CudaDevice& device : cuda.machine.devices) {
    devices.push_back({{"name", device.name},
                       {"architecture", device.architecture},
                       {"multiprocessors", device.multiprocessors},
                       {"memory_bytes", device.memory},
                       {"pci_bus_id", device.pci_bus_id}});
  }
  Json now = nullptr;
  if (report.reading) {
    now = Json::object();
    put(now, "watts", report.reading->watts);
    put(now, "sm_mhz", report.reading->sm_mhz);
    put(now, "celsius", report.reading->celsius);
    put(now, "memory_used_bytes", report.reading->memory_used);
    put(now, "joules", report.reading->joules);
    put(now, "busy_percent", report.reading->busy_percent);
  }
  return {{"state", name_of(cuda.state)},
          {"problem", cuda.problem},
          {"remedy", cuda.remedy},
          {"driver", report.driver},
          {"module", cuda.module.string()},
          {"cuda", cuda.machine.runtime},
          {"cuda_of_driver", cuda.machine.driver},
          {"cublaslt", cuda.machine.cublaslt},
          {"cudnn", cuda.machine.cudnn},
          {"engine", report.gpu_engine},
          {"devices", devices},
          {"now", now}};
}

Json problems_json(const std::vector<Problem>& problems) {
  Json list = Json::array();
  for (const Problem& problem : problems) list.push_back({{"what", problem.what}, {"remedy", problem.remedy}});
  return list;
}

}  // namespace

std::string doctor_text(const DoctorReport& report) {
  std::string text = fmt::format("quaver {}, {}\n\n", report.version, report.compiler);
  text += cpu_text(report.cpu) + "\n" + gpu_text(report) + "\n";
  text += "cache\n" +
          row("folder", report.cache.problem.empty() ? report.cache.folder + ", writable"
                                                     : report.cache.folder + ": " + report.cache.problem) +
          "\n";
  text += recipes_text(report) + "\nFP8 matrix products\n";
  for (const GemmCheck& check : report.checks) text += check_text(check);
  text += problems_text("optional, not found", report.advice) + problems_text("broken", report.problems);
  return text + (report.healthy() ? "\nall checks passed\n" : "");
}

std::string doctor_json(const DoctorReport& report) {
  Json recipes = Json::array();
  for (const RecipeSupport& recipe : report.recipes) {
    recipes.push_back({{"recipe", recipe.recipe},
                       {"summary", recipe.summary},
                       {"cpu", support_json(recipe.cpu)},
                       {"gpu", support_json(recipe.gpu)}});
  }
  Json checks = Json::array();
  for (const GemmCheck& check : report.checks) {
    checks.push_back({{"engine", check.engine},
                      {"against", check.against},
                      {"good", check.good()},
                      {"error", check.error},
                      {"bound", check.bound},
                      {"different_values", check.different_values},
                      {"extent", check.extent},
                      {"milliseconds", check.milliseconds},
                      {"tflops", check.tflops},
                      {"failure", check.failure}});
  }
  const CpuReport& cpu = report.cpu;
  return Json{{"quaver", report.version},
              {"compiler", report.compiler},
              {"healthy", report.healthy()},
              {"processor",
               {{"model", cpu.model},
                {"cores", cpu.cores},
                {"instructions", cpu.instructions},
                {"openblas", cpu.openblas},
                {"memory_bytes", cpu.memory},
                {"memory_available_bytes", cpu.memory_available}}},
              {"gpu", gpu_json(report)},
              {"cache", {{"folder", report.cache.folder}, {"problem", report.cache.problem}}},
              {"recipes", recipes},
              {"products", checks},
              {"broken", problems_json(report.problems)},
              {"missing", problems_json(report.advice)}}
      .dump(1);
}

}  // namespace quaver
