// The dashboard: a page in the browser that shows the runs of a folder while they train, and lets their names, tags
// and notes be changed. Listens on this machine alone unless told otherwise; then it asks for a token and changes
// nothing.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>

#include "serve/stores.h"
#include "serve/transport.h"

namespace quaver {

enum class TokenUse : std::uint8_t { beyond_this_machine, always };

// Whether the page may rename, tag, annotate, hide and delete runs.
enum class Changes : std::uint8_t { on_this_machine, allowed, refused };  // the first: where only this machine asks

struct ServeOptions {
  std::string host = "127.0.0.1";
  std::uint16_t port = 8265;  // 0: a free one
  TokenUse token = TokenUse::beyond_this_machine;
  Changes changes = Changes::on_this_machine;
  std::function<void(const std::string&)> warning;  // may be empty; called from several threads
  TransportLimits limits;
};

class Dashboard {
 public:
  // `runs`: a folder of runs, a run or a store, as Stores takes it; it need not exist yet. Takes the port; Error where
  // that fails.
  Dashboard(const std::filesystem::path& runs, const ServeOptions& options);
  ~Dashboard();
  Dashboard(const Dashboard&) = delete;
  Dashboard& operator=(const Dashboard&) = delete;

  // Answers until stop(), or until the flag is set.
  void listen(const std::atomic<bool>* stop_flag = nullptr);
  void stop();  // from any thread

  std::uint16_t port() const;
  std::string url() const;           // for a browser, with the token where one is needed
  const std::string& token() const;  // empty: none is needed
  std::size_t streams() const;
  const Stores& stores() const;

 private:
  class Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace quaver
