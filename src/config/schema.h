// Every key of the configuration, once: its dotted name, type, limits, meaning, and where it lives in Config.
// Reading files and flags, writing config.toml, the reference page and --help are all driven by this table, so a key
// that is not here does not exist.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "config/config.h"

namespace quaver {

// recipe: the name of one that is built in or that the config defines.
enum class ValueType : std::uint8_t {
  boolean,
  integer,
  number,
  text,
  choice,
  recipe,
  number_table,
  text_table,
  recipe_table
};

using NumberTable = std::map<std::string, double>;     // pattern → number
using TextTable = std::map<std::string, std::string>;  // pattern → text

// A setting's value, whatever its type; a choice is held by its name.
using Value = std::variant<bool, std::int64_t, double, std::string, NumberTable, TextTable, RecipeTable>;

// Both ends belong to the range.
struct IntegerRange {
  std::int64_t low = std::numeric_limits<std::int64_t>::min();
  std::int64_t high = std::numeric_limits<std::int64_t>::max();
};

enum class RangeEnd : std::uint8_t { closed, open };

struct NumberRange {
  double low = -std::numeric_limits<double>::max();
  double high = std::numeric_limits<double>::max();
  RangeEnd low_end = RangeEnd::closed;
  RangeEnd high_end = RangeEnd::closed;
};

struct Key {
  std::string name;  // "optim.learning_rate"; only `preset` and `recipes` have no section
  ValueType type = ValueType::text;
  std::string doc;  // one sentence
  // Of a choice, as users type them. Of a recipe, or of a table from patterns to recipes: those that are built in.
  std::vector<std::string> choices;
  IntegerRange integers;
  NumberRange numbers;  // of a number, or of a table's numbers
  std::function<Value(const Config&)> get;
  std::function<void(Config&, const Value&)> set;  // of a value that conform() returned

  std::string_view section() const;  // "optim"
  std::string_view leaf() const;     // "learning_rate"
  bool is_table() const { return type >= ValueType::number_table; }
  bool names_recipes() const { return type == ValueType::recipe || (is_table() && !choices.empty()); }
};

// In the order in which they are documented and dumped: by section.
const std::vector<Key>& schema();

// nullptr when there is no such key.
const Key* find_key(std::string_view name);

// The sections, in the order of schema(): "model", "data", …
const std::vector<std::string>& section_names();

Value default_of(const Key& key);

Value empty_table(const Key& key);

// The key's choices; an empty one is shown as "".
std::string joined_choices(const Key& key, std::string_view separator);

// What the key accepts, to follow "expected": "a number above 0", "one of gpt, llama".
std::string describe_type(const Key& key);

// The value as the key holds it: integers widen to numbers, nothing is truncated. Throws Error, naming `where` (a place
// in a file, or a flag), the key, what was expected and what was found.
Value conform(const Key& key, const Value& given, const std::string& where);

// The same for one entry of a table.
Value conform_entry(const Key& key, const std::string& pattern, const Value& given, const std::string& where);

// The Error that conform() throws, for values that no Value can hold (dates, arrays).
[[noreturn]] void reject(const Key& key, const std::string& found, const std::string& where);

// Equal in every key.
bool operator==(const Config& a, const Config& b);

}  // namespace quaver
