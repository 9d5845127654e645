#include <algorithm>
#include <array>
#include <filesystem>
#include <fmt/format.h>
#include <iostream>
#include <mutex>
#include <spawn.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

#include "cli/interrupt.h"
#include "cli/verbs.h"
#include "serve/dashboard.h"
#include "serve/request_guard.h"
#include "serve/store_pool.h"

namespace quaver {

namespace {

namespace fs = std::filesystem;

constexpr rlim_t most_open_files = 8192;

std::string machine_name() {
  std::array<char, 256> name{};
  return gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "this-machine";
}

// The desktop's own opener, given the address as one word: no shell reads it.
void open_in_browser(std::string url) {
  std::string program = "xdg-open";
  std::array<char*, 3> words{program.data(), url.data(), nullptr};
  pid_t process = -1;
  if (posix_spawnp(&process, program.c_str(), nullptr, nullptr, words.data(), environ) != 0) {
    std::cerr << "quaver: xdg-open is missing; open the address yourself\n";
    return;
  }
  std::thread([process] { waitpid(process, nullptr, 0); }).detach();  // some openers last as long as the browser
}

// Each store that is open takes some, and so does each browser.
void raise_open_file_limit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= most_open_files) return;
  limit.rlim_cur = std::min<rlim_t>(limit.rlim_max, most_open_files);
  setrlimit(RLIMIT_NOFILE, &limit);
}

void announce_stores(const StorePool& pool) {
  std::size_t there = 0;
  for (const ServedStore& store : pool.all()) there += fs::exists(store.handle->path()) ? 1 : 0;
  if (there > 1) std::cout << fmt::format("{} stores, in it and below it\n", there);
  for (const std::string& problem : pool.problems()) std::cerr << "quaver: " << problem << '\n';
  if (there > 0) return;
  const std::string file = pool.all().front().handle->path().string();
  const std::string below = pool.depth() == 0 ? "" : fmt::format(", nor any up to {} folders below it", pool.depth());
  std::cout << fmt::format("nothing is recorded there yet: no {}{}; runs appear as they start\n", file, below);
}

void announce(const Dashboard& dashboard, const DashArguments& arguments) {
  std::cout << "dashboard of " << arguments.path << ": " << dashboard.url() << '\n';
  const bool is_public = !is_loopback(arguments.serve.host);
  if (is_public) {
    std::cout << fmt::format("from other machines: http://{}:{}/?token={}\n", machine_name(), dashboard.port(),
                             dashboard.token());
    std::cerr << "quaver: what the dashboard sends is not encrypted, the token included; on a network you do not "
                 "trust, listen on 127.0.0.1 and use a tunnel\n";
  }
  announce_stores(dashboard.pool());
  std::cout << "Ctrl-C ends it" << std::endl;
}

}  // namespace

int dash_verb(const DashArguments& arguments) {
  raise_open_file_limit();
  ServeOptions options = arguments.serve;
  std::mutex output;
  options.warning = [&](const std::string& text) {
    const std::lock_guard lock(output);
    std::cerr << "quaver: " << text << '\n';
  };
  const Interrupt interrupt;
  Dashboard dashboard(arguments.path, options);
  announce(dashboard, arguments);
  if (arguments.browser == Browser::open) open_in_browser(dashboard.url());
  dashboard.listen(interrupt.flag());
  return 0;
}

}  // namespace quaver
