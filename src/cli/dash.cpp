#include <array>
#include <filesystem>
#include <fmt/format.h>
#include <iostream>
#include <mutex>
#include <spawn.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

#include "cli/interrupt.h"
#include "cli/verbs.h"
#include "serve/dashboard.h"
#include "serve/doorkeeper.h"
#include "serve/store_door.h"

namespace quaver {

namespace {

namespace fs = std::filesystem;

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

void announce(const Dashboard& dashboard, const DashArguments& arguments, const fs::path& store) {
  std::cout << "dashboard of " << store.string() << ": " << dashboard.url() << '\n';
  const bool is_public = !is_loopback(arguments.serve.host);
  if (is_public) {
    std::cout << fmt::format("from other machines: http://{}:{}/?token={}\n", machine_name(), dashboard.port(),
                             dashboard.token());
    std::cerr << "quaver: what the dashboard sends is not encrypted, the token included; on a network you do not "
                 "trust, listen on 127.0.0.1 and use a tunnel\n";
  }
  if (!fs::exists(store)) std::cout << "nothing is recorded there yet; runs appear as they start\n";
  std::cout << "Ctrl-C ends it" << std::endl;
}

}  // namespace

int dash_verb(const DashArguments& arguments) {
  const fs::path store = find_store(arguments.path);
  ServeOptions options = arguments.serve;
  std::mutex output;
  options.warning = [&](const std::string& text) {
    const std::lock_guard lock(output);
    std::cerr << "quaver: " << text << '\n';
  };
  const Interrupt interrupt;
  Dashboard dashboard(store, options);
  announce(dashboard, arguments, store);
  if (arguments.browser == Browser::open) open_in_browser(dashboard.url());
  dashboard.listen(interrupt.flag());
  return 0;
}

}  // namespace quaver
