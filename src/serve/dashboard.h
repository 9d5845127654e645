// The dashboard: a web page that shows the runs of a folder while they train, and can change their names, tags and
// notes. Listens on loopback unless told otherwise; on other addresses it requires a token and is read-only.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>

#include "serve/store_pool.h"
#include "serve/transport.h"

namespace quaver {

enum class TokenUse : std::uint8_t { beyond_loopback, always };

// Whether the page may rename, tag, annotate, hide and delete runs.
enum class Changes : std::uint8_t { on_loopback, allowed, refused };

struct ServeOptions {
  std::string host = "127.0.0.1";
  std::uint16_t port = 8265;  // 0: a free one
  TokenUse token = TokenUse::beyond_loopback;
  Changes changes = Changes::on_loopback;
  std::function<void(const std::string&)> warning;  // may be empty; called from several threads
  TransportLimits limits;
};

class Dashboard {
 public:
  // `runs`: a folder of runs, a run or a store, as for StorePool; it need not exist yet. Binds the port; Error where
  // that fails.
  Dashboard(const std::filesystem::path& runs, const ServeOptions& options);
  ~Dashboard();
  Dashboard(const Dashboard&) = delete;
  Dashboard& operator=(const Dashboard&) = delete;

  // Serves until stop(), or until the flag is set.
  void listen(const std::atomic<bool>* stop_flag = nullptr);
  void stop();  // from any thread

  std::uint16_t port() const;
  std::string url() const;           // for a browser, with the token where one is required
  const std::string& token() const;  // empty: none is required
  std::size_t streams() const;
  const StorePool& pool() const;

 private:
  class Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace quaver
