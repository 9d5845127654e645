// What the fuzzers in tests/fuzz run, and the corpus test with them: hostile bytes through every file reader of the
// data module. An Error is a fine answer; a crash, another exception or a broken promise is a finding.
#pragma once

#include <algorithm>
#include <cstdlib>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "support/chat_tokenizer.h"
#include "support/temporary_folder.h"

#include "data/bpe.h"
#include "data/dataset.h"
#include "data/documents.h"
#include "data/example_source.h"
#include "data/image_file.h"
#include "data/shard.h"
#include "io/utf8.h"
#include "quaver/error.h"

namespace quaver::test {

inline void require(bool promise) {
  if (!promise) std::abort();
}

template <class Action>
void allow_error(const Action& action) {
  try {
    action();
  } catch (const Error& error) {
    require(!std::string_view(error.what()).empty());
  }
}

inline void fuzz_shard(std::string_view bytes) {
  static const TemporaryFolder folder;
  const auto path = folder.write("fuzz.bin", bytes);
  allow_error([&] {
    const Shard shard = Shard::open(path);
    std::vector<std::int32_t> ids(std::min<std::uint64_t>(shard.tokens(), 4096));
    allow_error([&] { shard.read(shard.tokens() - ids.size(), ids, 50257); });
    allow_error([&] { shard.read(shard.tokens(), ids, 50257); });
    shard.content_hash();
    shard.verify();
  });
}

// The first byte chooses the format.
inline void fuzz_image(std::string_view bytes) {
  static const TemporaryFolder folder;
  if (bytes.empty()) return;
  const auto path = folder.write(bytes[0] % 2 == 0 ? "fuzz.png" : "fuzz.ppm", bytes.substr(1));
  allow_error([&] {
    const ImageShape shape = image_shape_of(path);
    require(shape.height > 0 && shape.width > 0 && shape.pixels() <= most_image_values);
    std::vector<std::uint8_t> pixels(static_cast<std::size_t>(shape.height * shape.width * 3));
    read_image(path, {shape.height, shape.width, 3}, pixels);
  });
}

inline void fuzz_tokenizer(std::string_view bytes) {
  allow_error([&] {
    const auto tokenizer = parse_bpe(bytes, "fuzz.json");
    std::string text = "It's 12345 words, don't you\tthink?\n\n  é漢 ";
    for (int byte = 0; byte < 256; ++byte) text += static_cast<char>(byte);
    text += bytes.substr(0, 4096);
    const bool keeps_text = std::ranges::all_of(
        tokenizer->definition().added, [](const AddedToken& token) { return token.role == TokenRole::special; });
    const std::string decoded = tokenizer->decode(tokenizer->encode(text));
    require(decoded == replace_invalid_utf8(text) || !keeps_text ||
            tokenizer->definition().normalization != TextNormalization::none ||
            tokenizer->definition().space_mark != SpaceMark::none);
    tokenizer->decode(tokenizer->encode(text, SpecialTokens::parsed));
    require(parse_bpe(tokenizer->to_json(), "again.json")->hash() == tokenizer->hash());
  });
}

inline void fuzz_documents(std::string_view bytes) {
  const std::string text(bytes);
  for (const MalformedLine malformed : {MalformedLine::stop, MalformedLine::skip}) {
    TextReading reading;
    reading.malformed = malformed;
    std::istringstream lines(text);
    allow_error([&] { read_json_lines(lines, "fuzz.jsonl", reading, [](const Document&) {}); });
  }
  TextReading reading;
  reading.piece_bytes = 1024;
  std::istringstream plain(text);
  std::string joined;
  read_plain_text(plain, "fuzz.txt", reading, [&](const Document& document) { joined += document.text; });
  require(bytes.ends_with(joined) && bytes.size() - joined.size() <= 3);  // all but a byte order mark
  reading.separator = "\n\n";
  std::istringstream separated(text);
  read_plain_text(separated, "fuzz.txt", reading, [&](const Document& document) {
    require(document.text.find(reading.separator) == std::string_view::npos);
  });
}

// What is accepted has a loss, and rows that the model accepts.
inline void fuzz_examples(std::string_view bytes) {
  static const auto tokenizer = chat_tokenizer({"<|im_start|>", "<|im_end|>"});
  allow_error([&] {
    Examples examples;
    examples.append(tokenize_example(bytes, *tokenizer, ChatTemplate::automatic));
    const std::span<const std::int32_t> tokens = examples.at(0);
    require(std::ranges::any_of(tokens.subspan(1), [](std::int32_t token) { return token >= 0; }));
    const ExampleSource source(examples, {.context = 64, .vocab_size = tokenizer->vocab_size()});
    std::vector<std::int32_t> inputs(64);
    std::vector<std::int32_t> targets(64);
    source.fill(0, 1, 64, inputs.data(), targets.data());
    require(std::ranges::all_of(inputs, [](std::int32_t id) { return id >= 0 && id < tokenizer->vocab_size(); }));
    require(std::ranges::all_of(targets, [](std::int32_t id) { return id >= -1 && id < tokenizer->vocab_size(); }));
  });
  // What is asked ends with a question, and is read as ids that the model has.
  allow_error([&] {
    const Prompt prompt = parse_prompt(bytes);
    if (prompt.messages.empty()) return;
    require(prompt.messages.back().speaker != Speaker::assistant);
    const ChatPrompt chat = prompt_of_chat(prompt.messages, *tokenizer, ChatTemplate::automatic);
    require(std::ranges::all_of(chat.ids, [](std::int32_t id) { return id >= 0 && id < tokenizer->vocab_size(); }));
  });
}

inline void fuzz_dataset(std::string_view bytes) {
  static const TemporaryFolder folder;
  if (!std::filesystem::exists(folder / "train-00000.qv")) {
    const auto tokenizer = make_byte_tokenizer();
    ShardWriter writer(folder / "train-00000.qv", ShardFormat::quaver, tokenizer->vocab_size(), tokenizer->hash());
    writer.append(tokenizer->encode("hello"));
    writer.finish();
  }
  folder.write(dataset_file_name, bytes);
  allow_error([&] {
    const Dataset dataset = open_dataset(folder.path());
    for (const auto& path : dataset.train) require(path.parent_path() == folder.path());
  });
}

}  // namespace quaver::test
