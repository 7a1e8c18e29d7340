// Overview: the page of web/dist with its script and style inside, and the answers to what it will ask, as
// EmbeddedSource of web/src/source.ts reads them: base64 of gzip of an index and the bodies.
#include "viewer/export.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <libdeflate.h>
#include <simdjson.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "core/json_writer.hpp"
#include "format/output_file.hpp"
#include "tenscope/error.hpp"
#include "viewer/assets.hpp"

namespace tenscope::viewer {
namespace {

std::string compressed(std::string_view bytes) {
  constexpr int kLevel = 9;
  const std::unique_ptr<libdeflate_compressor, void (*)(libdeflate_compressor*)> compressor(
      libdeflate_alloc_compressor(kLevel), libdeflate_free_compressor);
  if (!compressor) throw Error(ErrorCode::Io, "cannot export the page: there is no memory to compress it");
  std::string out(libdeflate_gzip_compress_bound(compressor.get(), bytes.size()), '\0');
  out.resize(libdeflate_gzip_compress(compressor.get(), bytes.data(), bytes.size(), out.data(), out.size()));
  return out;
}

std::string base64(std::string_view bytes) {
  constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  text.reserve((bytes.size() + 2) / 3 * 4);
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    std::uint32_t three = 0;
    for (std::size_t k = 0; k < 3; ++k)
      three = three << 8 | (i + k < bytes.size() ? static_cast<unsigned char>(bytes[i + k]) : 0U);
    for (std::size_t k = 0; k < 4; ++k) text += i + k < bytes.size() + 1 ? kDigits[three >> (18 - 6 * k) & 63U] : '=';
  }
  return text;
}

// Answers, by the targets that the page asks for.
class Answers {
 public:
  Answers(Viewer& viewer, std::size_t most_bytes) : viewer_(viewer), most_bytes_(most_bytes) {}

  // Asks `asked` and keeps the answer for `target`. False where there is no room for it.
  bool add(const std::string& target, const std::string& asked) {
    if (index_.find("\"" + target + "\"") != std::string::npos) return true;
    const Answer answer = viewer_.answer(asked);
    const std::size_t size = compressed(answer.body).size();
    if (size_bytes_ + size > most_bytes_) return false;
    size_bytes_ += size;
    if (!index_.empty()) index_ += ",";
    append_json_text(index_, target);
    index_ += answer.status == 200 ? fmt::format(":[{},{}]", bodies_.size(), answer.body.size())
                                   : fmt::format(":[{},{},{}]", bodies_.size(), answer.body.size(), answer.status);
    bodies_ += answer.body;
    return true;
  }
  bool add(const std::string& target) { return add(target, target); }

  void add_text(const std::string& target, std::string_view body) {
    if (!index_.empty()) index_ += ",";
    append_json_text(index_, target);
    index_ += fmt::format(":[{},{}]", bodies_.size(), body.size());
    bodies_ += body;
  }

  std::string text() const {
    const std::string index = "{" + index_ + "}";
    std::string all;
    for (int i = 0; i < 4; ++i) all += static_cast<char>(index.size() >> (8 * i) & 255U);
    return base64(compressed(all + index + bodies_));
  }

 private:
  Viewer& viewer_;
  std::size_t most_bytes_, size_bytes_ = 0;
  std::string index_, bodies_;
};

// As canonical_target of web/src/source.ts has it.
std::string percent_encoded(std::string_view text) {
  std::string result;
  for (const char c : text) {
    const bool is_plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
                          c == '_' || c == '.' || c == '~';
    result += is_plain ? std::string(1, c) : fmt::format("%{:02X}", static_cast<unsigned char>(c));
  }
  return result;
}

struct Look {
  std::uint64_t event = 0;
  bool is_of_b = false;  // it has no partner in the first run
};

// The events that the answer names: each place's own, and the last that agreed before it.
std::vector<Look> looks_of(const std::string& answer) {
  std::vector<Look> looks;
  simdjson::dom::parser parser;
  simdjson::dom::array places;
  if (parser.parse(answer)["places"].get_array().get(places)) return looks;
  const auto add = [&](simdjson::dom::element place) {
    std::uint64_t event = 0;
    if (!place["event_a"].get_uint64().get(event))
      looks.push_back({event, false});
    else if (!place["event_b"].get_uint64().get(event))
      looks.push_back({event, true});
  };
  for (const simdjson::dom::element place : places) {
    add(place);
    simdjson::dom::element last;
    if (!place["last_agreeing"].get(last) && last.is_object()) add(last);
  }
  return looks;
}

// Of a file that is looked at by itself nothing is named: its first tensors.
std::vector<Look> first_of_file(const std::string& session) {
  constexpr std::uint64_t kMost = 16;
  simdjson::dom::parser parser;
  simdjson::dom::element told;
  std::string_view kind;
  std::uint64_t events = 0;
  if (parser.parse(session).get(told) || told["kind"].get_string().get(kind) || kind != "files") return {};
  if (told.at_pointer("/sides/0/events").get_uint64().get(events)) return {};
  std::vector<Look> looks;
  for (std::uint64_t i = 0; i < std::min(events, kMost); ++i) looks.push_back({i, false});
  return looks;
}

// The index that an answer of /api/find has; empty where it found nothing.
std::vector<std::uint64_t> places_of(const std::string& found) {
  simdjson::dom::parser parser;
  simdjson::dom::array index;
  std::vector<std::uint64_t> places;
  if (parser.parse(found)["index"].get_array().get(index)) return places;
  for (const simdjson::dom::element place : index) places.push_back(place.get_uint64().value_unsafe());
  return places;
}

// As the page writes it.
std::string index_of(const std::string& found) { return fmt::format("{}", fmt::join(places_of(found), "%2C")); }

// The slice that has that element, as the page writes it; empty where it is the first slice, which the page shows
// without being asked.
std::string slice_of(const std::string& found) {
  const std::vector<std::uint64_t> places = places_of(found);
  std::string text;
  bool is_first = true;
  for (std::size_t axis = 0; axis < places.size(); ++axis) {
    const bool is_open = axis + 2 >= places.size();
    is_first = is_first && (is_open || places[axis] == 0);
    text += fmt::format("{}{}", axis == 0 ? "" : "%2C", is_open ? "%3A" : std::to_string(places[axis]));
  }
  return is_first ? "" : text;
}

// The same tensor at other steps, as the page asks for it.
bool add_history(simdjson::dom::element event, bool is_of_b, Answers& answers) {
  std::string_view name;
  std::int64_t rank = 0, call = 0;
  simdjson::dom::array calls;
  if (event["name"].get_string().get(name) || event["rank"].get_int64().get(rank) ||
      event["call"].get_int64().get(call) || event["calls"].get_array().get(calls))
    return true;
  return answers.add(fmt::format("/api/events?{}count=1000&name={}&rank={}{}",
                                 calls.size() > 1 ? fmt::format("call={}&", call) : "", percent_encoded(name), rank,
                                 is_of_b ? "&side=b" : ""));
}

// All that the page asks of one tensor. Large ones are reduced more than on the screen. False where there is no room.
bool add_tensor(Viewer& viewer, const Look& look, Answers& answers) {
  constexpr int kPicture = 192;
  const std::string side = look.is_of_b ? "&side=b" : "";
  const std::string own = fmt::format("event={}", look.event);
  bool has_room = answers.add(fmt::format("/api/event?{}{}", own, side)) &&
                  answers.add(fmt::format("/api/event?{}&side={}", own, look.is_of_b ? "b" : "a"));
  simdjson::dom::parser parser;
  simdjson::dom::element event;
  const Answer told = viewer.answer(fmt::format("/api/event?{}{}", own, side));
  if (parser.parse(told.body).get(event)) return has_room;
  std::uint64_t partner = 0;
  const bool has_partner = !event["partner"].get_uint64().get(partner);
  has_room = has_room && add_history(event, look.is_of_b, answers);
  if (has_partner) {
    const std::string other = fmt::format("/api/event?event={}&side={}", partner, look.is_of_b ? "a" : "b");
    has_room = has_room && answers.add(other);
    simdjson::dom::parser other_parser;
    simdjson::dom::element told_of_other;
    if (!other_parser.parse(viewer.answer(other).body).get(told_of_other))
      has_room = has_room && add_history(told_of_other, !look.is_of_b, answers);
  }
  bool has_bytes = false;
  simdjson::dom::array shape;
  if (event["tensor"]["has_bytes"].get_bool().get(has_bytes) || !has_bytes) return has_room;
  if (event["tensor"]["shape"].get_array().get(shape)) return has_room;
  const std::string what = has_partner ? "worst" : "largest";
  const std::string found = viewer.answer(fmt::format("/api/find?{}{}&what={}", own, side, what)).body;
  const std::string other = slice_of(found);
  for (const std::string& slice : {std::string(), other.empty() ? other : fmt::format("&slice={}", other)})
    for (const std::string_view of : {"a", "b", "diff", "rel", "ulp"}) {
      if (of != "a" && !has_partner) break;
      const auto target = [&](int size) {
        return fmt::format("/api/tile?{}&h={}&of={}{}{}&w={}", own, size, of, side, slice, size);
      };
      has_room = has_room && answers.add(target(512), target(kPicture));
    }
  if (const std::string index = index_of(found); !index.empty())
    has_room = has_room && answers.add(fmt::format("/api/element?{}&index={}{}", own, index, side));
  for (const std::string_view jump : {"largest", "worst"})
    if (jump == "largest" || has_partner)
      has_room = has_room && answers.add(fmt::format("/api/find?{}{}&what={}", own, side, jump));
  has_room = has_room && answers.add(fmt::format("/api/histograms?{}{}&steps=64", own, side));
  for (const std::string_view of : {"a", "b"})
    if (of == "a" || has_partner)
      has_room = has_room && answers.add(fmt::format("/api/histogram?{}&of={}{}", own, of, side));
  if (has_partner) has_room = has_room && answers.add(fmt::format("/api/tolerance?{}{}", own, side));
  for (std::size_t axis = 0; axis < shape.size(); ++axis)
    has_room = has_room &&
               answers.add(fmt::format("/api/profile?axis={}&{}&of={}{}", axis, own, has_partner ? "diff" : "a", side));
  return has_room;
}

// A style or a script inside of the page ends where its own text says so.
std::string inside(std::string_view text, std::string_view closing) {
  std::string result(text);
  for (std::size_t at = 0; (at = result.find(closing, at)) != std::string::npos; at += closing.size() + 1)
    result.insert(at + 1, "\\");
  return result;
}

void replace(std::string& page, std::string_view what, const std::string& with) {
  const std::size_t at = page.find(what);
  if (at == std::string::npos) throw Error(ErrorCode::Corrupt, "cannot export the page: it is not as it should be");
  page.replace(at, what.size(), with);
}

}  // namespace

std::string export_page(Viewer& viewer, const ExportOptions& options) {
  viewer.wait();
  Answers answers(viewer, options.most_bytes);
  const std::string answer = viewer.answer("/api/answer").body;
  std::vector<std::string> left_out;
  for (const auto& [target, what] : {std::pair{"/api/session", "the run"},
                                     {"/api/answer", "the answer"},
                                     {"/api/modules", "the modules"},
                                     {"/api/timeline", "the timeline"},
                                     {"/api/names", "the table of names"}})
    if (!answers.add(target)) left_out.emplace_back(what);
  std::vector<Look> looks = looks_of(answer);
  if (looks.empty()) looks = first_of_file(viewer.answer("/api/session").body);
  std::size_t kept = 0;
  while (kept < looks.size() && add_tensor(viewer, looks[kept], answers)) ++kept;
  bool has_lines = true;
  for (const std::string_view stat : {"l2", "error", "abs_max", "mean", "std"})
    has_lines = has_lines && answers.add(fmt::format("/api/series?points=100&stat={}", stat));
  if (!has_lines) left_out.emplace_back("statistics over steps");
  std::string note = kept == 0 ? "" : fmt::format("It holds the elements of {} tensor{}. ", kept, kept == 1 ? "" : "s");
  if (kept < looks.size()) left_out.push_back(fmt::format("{} more that the answer names", looks.size() - kept));
  for (const std::string& what : left_out) note += fmt::format("Left out, for their size: {}. ", what);
  note += "For every other tensor open the recording itself with `tenscope view`.";
  std::string about;
  JsonWriter(about).begin_object().key("note").text(note).end_object();
  answers.add_text("/api/export", about);

  std::string page(page_html());
  replace(page, R"(<link rel="stylesheet" href="viewer.css">)",
          "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; script-src 'unsafe-inline'; "
          "style-src 'unsafe-inline'; img-src data: blob:\"><style>" +
              inside(page_style(), "</style") + "</style>");
  replace(page, R"(<script type="module" src="viewer.js"></script>)", "");
  replace(page, "</body>",
          "<script type=\"text/plain\" id=\"tenscope-answers\">" + answers.text() +
              "</script><script type=\"module\">" + inside(page_script(), "</script") + "</script></body>");
  return page;
}

void write_page(Viewer& viewer, const std::filesystem::path& path) {
  const std::string page = export_page(viewer);
  OutputFile file(path);
  file.write(page);
  file.commit();
}

}  // namespace tenscope::viewer
