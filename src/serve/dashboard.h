// The dashboard: a page in the browser that shows the runs of one store while they train. Listens on this machine
// alone unless told otherwise, and then asks for a token.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>

#include "serve/transport.h"

namespace quaver {

enum class TokenUse : std::uint8_t { beyond_this_machine, always };

struct ServeOptions {
  std::string host = "127.0.0.1";
  std::uint16_t port = 8265;  // 0: a free one
  TokenUse token = TokenUse::beyond_this_machine;
  std::function<void(const std::string&)> warning;  // may be empty; called from several threads
  TransportLimits limits;
};

class Dashboard {
 public:
  // The store need not exist yet. Takes the port; Error where that fails.
  Dashboard(const std::filesystem::path& store, const ServeOptions& options);
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

 private:
  class Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace quaver
