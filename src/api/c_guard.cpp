#include "api/c_guard.h"

#include <exception>
#include <new>

#include "io/utf8.h"

namespace quaver::c {

namespace {

struct LastError {
  std::string what;
  std::string remedy;
};

LastError& last_error() {
  thread_local LastError last;
  return last;
}

quaver_status note(quaver_status status, const char* what, const std::string& remedy) {
  try {
    last_error() = {what, remedy};
  } catch (const std::bad_alloc&) {
    last_error().what.clear();
    last_error().remedy.clear();
  }
  return status;
}

}  // namespace

quaver_status guarded(const std::function<void()>& work) noexcept {
  try {
    work();
    return QUAVER_OK;
  } catch (const Invalid& error) {
    return note(QUAVER_INVALID, error.what(), error.remedy());
  } catch (const Error& error) {
    return note(QUAVER_FAILED, error.what(), error.remedy());
  } catch (const std::bad_alloc&) {
    return note(QUAVER_OUT_OF_MEMORY, "out of memory", "use smaller matrices or a smaller model");
  } catch (const std::exception& error) {
    return note(QUAVER_FAILED, error.what(), "");
  } catch (...) {
    return note(QUAVER_FAILED, "an error of unknown kind", "");
  }
}

std::string text(const char* value, const char* name) {
  std::string copy = require(value, name);
  if (find_invalid_utf8(copy) != std::string::npos)
    throw Invalid(std::string(name) + " is not UTF-8", "encode text as UTF-8");
  return copy;
}

std::vector<std::string> texts(const char* const* values, std::size_t count, const char* name) {
  std::vector<std::string> copies;
  if (count > 0) require(values, name);
  for (std::size_t i = 0; i < count; ++i) copies.push_back(text(values[i], name));
  return copies;
}

}  // namespace quaver::c

uint32_t quaver_abi_version(void) { return QUAVER_ABI_VERSION; }
const char* quaver_version(void) { return QUAVER_VERSION; }
const char* quaver_last_error(void) { return quaver::c::last_error().what.c_str(); }
const char* quaver_last_remedy(void) { return quaver::c::last_error().remedy.c_str(); }
