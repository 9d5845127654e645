// How keys.cpp adds the keys of a section: each is tied to a member of the section's struct.
#pragma once

#include <algorithm>
#include <concepts>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "config/schema.h"
#include "quaver/error.h"

namespace quaver {

template <class Enum>
using Choices = std::vector<std::pair<std::string, Enum>>;

// Adds the keys of one section of Config, each tied to a member of its struct.
template <class Section>
class SectionKeys {
 public:
  SectionKeys(std::vector<Key>& keys, std::string name, Section Config::*section)
      : keys_(keys), name_(std::move(name)), section_(section) {}

  void boolean(const std::string& leaf, bool Section::*member, std::string doc) {
    add(leaf, ValueType::boolean, member, std::move(doc));
  }

  // The name of a recipe; `built_in` are those that every config knows.
  void recipe(const std::string& leaf, std::string Section::*member, const std::vector<std::string>& built_in,
              std::string doc) {
    add(leaf, ValueType::recipe, member, std::move(doc)).choices = built_in;
  }

  // Patterns and their recipes.
  void recipe_of(const std::string& leaf, TextTable Section::*member, const std::vector<std::string>& built_in,
                 std::string doc) {
    add(leaf, ValueType::text_table, member, std::move(doc)).choices = built_in;
  }

  void text(const std::string& leaf, std::string Section::*member, std::string doc) {
    add(leaf, ValueType::text, member, std::move(doc));
  }

  void number(const std::string& leaf, double Section::*member, NumberRange range, std::string doc) {
    add(leaf, ValueType::number, member, std::move(doc)).numbers = range;
  }

  void number_table(const std::string& leaf, NumberTable Section::*member, NumberRange range, std::string doc) {
    add(leaf, ValueType::number_table, member, std::move(doc)).numbers = range;
  }

  template <std::integral Integer>
  void integer(const std::string& leaf, Integer Section::*member, IntegerRange range, std::string doc) {
    Key& key = add_named(leaf, ValueType::integer, std::move(doc));
    key.integers = range;
    key.get = [section = section_, member, name = key.name](const Config& config) {
      const Integer value = (config.*section).*member;
      if (!std::in_range<std::int64_t>(value)) {
        throw Error(name + ": " + std::to_string(value) + " is beyond 2^63 - 1", "choose a smaller value");
      }
      return Value(static_cast<std::int64_t>(value));
    };
    key.set = [section = section_, member](Config& config, const Value& value) {
      (config.*section).*member = static_cast<Integer>(std::get<std::int64_t>(value));
    };
  }

  template <class Enum>
  void choice(const std::string& leaf, Enum Section::*member, const std::type_identity_t<Choices<Enum>>& choices,
              std::string doc) {
    using Pair = typename Choices<Enum>::value_type;
    Key& key = add_named(leaf, ValueType::choice, std::move(doc));
    for (const auto& [name, value] : choices) key.choices.push_back(name);
    key.get = [section = section_, member, choices, name = key.name](const Config& config) {
      const auto held = std::ranges::find(choices, (config.*section).*member, &Pair::second);
      if (held == choices.end()) throw Error(name + " holds a value that has no name", "set it to one of its choices");
      return Value(held->first);
    };
    key.set = [section = section_, member, choices](Config& config, const Value& value) {
      (config.*section).*member = std::ranges::find(choices, std::get<std::string>(value), &Pair::first)->second;
    };
  }

 private:
  Key& add_named(const std::string& leaf, ValueType type, std::string doc) {
    Key& key = keys_.emplace_back();
    key.name = name_ + "." + leaf;
    key.type = type;
    key.doc = std::move(doc);
    return key;
  }

  // A member that Value can hold as it is.
  template <class Member>
  Key& add(const std::string& leaf, ValueType type, Member Section::*member, std::string doc) {
    Key& key = add_named(leaf, type, std::move(doc));
    key.get = [section = section_, member](const Config& config) { return Value((config.*section).*member); };
    key.set = [section = section_, member](Config& config, const Value& value) {
      (config.*section).*member = std::get<Member>(value);
    };
    return key;
  }

  std::vector<Key>& keys_;
  std::string name_;
  Section Config::*section_;
};

}  // namespace quaver
