// Properties, each against a slower and simpler twin, or against itself the other way round.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <functional>
#include <set>

#include "common/job/job_yaml.h"
#include "common/job/quantity.h"
#include "common/job/start_order.h"
#include "common/job/templates.h"
#include "common/job/text.h"
#include "common/wire/codec.h"
#include "tests/unit/job/generators.h"
#include "tests/unit/job/support.h"

namespace dtrain::job {
namespace {

using testing::awkward_text;
using testing::valid_spec;
using testing::view_of;

RC_GTEST_PROP(JobProperty, AValidSpecIsReadBackFromItsYaml, ()) {
  const JobSpec spec = *valid_spec();
  for (const auto& error : validate(spec)) RC_FAIL(error.text());
  const std::string yaml = to_yaml(spec);
  const ParsedJob back = parse_manifest(yaml, {});
  for (const auto& error : back.errors) RC_FAIL(error.text() + "\n" + yaml);
  RC_ASSERT(wire::encode(back.spec) == wire::encode(spec));
}

RC_GTEST_PROP(JobProperty, WhatItsShortYamlLeavesOutIsTheDefault, ()) {
  const JobSpec spec = *valid_spec();
  const std::string yaml = to_short_yaml(spec);
  const ParsedJob back = parse_manifest(yaml, {});
  for (const auto& error : back.errors) RC_FAIL(error.text() + "\n" + yaml);
  RC_ASSERT(wire::encode(back.spec) == wire::encode(spec));
}

TEST(ShortYaml, HasWhatSomebodyWouldWrite) {
  const std::string written = R"(apiVersion: dtrain/v1
kind: Job
metadata:
  name: "digits"
spec:
  framework: tensorflow
  roles:
    "ps":
      replicas: 2
      command: ["python3", "train.py"]
    "worker":
      replicas: 4
      command: ["python3", "train.py"]
      resources:
        gpus: 1
  checkpoint:
    dir: "/data/ckpt"
  policy:
    backoffLimit: 3
)";
  const ParsedJob job = parse_manifest(written, {});
  ASSERT_TRUE(job.errors.empty());
  EXPECT_EQ(to_short_yaml(job.spec), written);
}

// Levenshtein with swaps of neighbours, straight from its definition.
std::size_t distance(std::string_view a, std::string_view b) {
  if (a.empty() || b.empty()) return a.size() + b.size();
  const auto lower = [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; };
  const auto last = [&](std::string_view s, std::size_t back) { return lower(s[s.size() - back]); };
  const auto cut = [](std::string_view s, std::size_t n) { return s.substr(0, s.size() - n); };
  std::size_t best = distance(cut(a, 1), cut(b, 1)) + (last(a, 1) == last(b, 1) ? 0 : 1);
  best = std::min({best, distance(cut(a, 1), b) + 1, distance(a, cut(b, 1)) + 1});
  if (a.size() > 1 && b.size() > 1 && last(a, 1) == last(b, 2) && last(a, 2) == last(b, 1))
    best = std::min(best, distance(cut(a, 2), cut(b, 2)) + 1);
  return best;
}

rc::Gen<std::string> short_word() {
  return rc::gen::map(rc::gen::container<std::vector<char>>(rc::gen::element('a', 'b', 'A', 'c')), [](std::vector<char> letters) {
    if (letters.size() > 5) letters.resize(5);  // the twin is exponential
    return std::string(letters.begin(), letters.end());
  });
}

RC_GTEST_PROP(JobProperty, NearestIsTheFirstOfTheNearest, ()) {
  const std::string word = *short_word();
  const auto known = *rc::gen::container<std::vector<std::string>>(short_word());
  std::string expected;
  std::size_t best = 100;
  for (const auto& candidate : known) {
    const std::size_t longer = std::max(word.size(), candidate.size());
    const std::size_t d = distance(word, candidate);
    if (word.empty() || candidate.empty() || d > std::max<std::size_t>(1, longer / 3) || d >= longer || d >= best) continue;
    best = d;
    expected = candidate;
  }
  RC_ASSERT(nearest(word, known) == expected);
}

RC_GTEST_PROP(JobProperty, EscapedTextRendersToItself, ()) {
  const std::string text = *awkward_text();
  const JobSpec spec = testing::parse_good(testing::job_text("    worker: {replicas: 2, command: [a]}"));
  TaskView view;
  view.task = {"worker", 0};
  const auto rendered = render_template(escape_templates(text), spec, view_of(spec), view);
  RC_ASSERT(rendered.has_value());
  RC_ASSERT(*rendered == text);
}

// The grammar again, by search from the left over all known prefixes.
std::string naive_render(const std::string& text, const std::function<std::string(const std::string&)>& value) {
  const std::vector<std::string> prefixes{"hosts:", "host:", "count:", "port:", "job.", "task.", "work.", "package.", "checkpoint."};
  std::string out;
  for (std::size_t i = 0; i < text.size();) {
    const auto name_from = [&](std::size_t at) -> std::string {
      for (const auto& prefix : prefixes) {
        if (text.compare(at, prefix.size(), prefix) != 0) continue;
        std::string name;
        for (std::size_t j = at; j < text.size() && std::string("{} \t\r\n\"'").find(text[j]) == std::string::npos; ++j) name += text[j];
        if (at + name.size() < text.size() && text[at + name.size()] == '}') return name;
      }
      return "";
    };
    const std::string doubled = text.compare(i, 2, "{{") == 0 ? name_from(i + 2) : "";
    const std::string single = text[i] == '{' ? name_from(i + 1) : "";
    if (!doubled.empty() && text.compare(i + 2 + doubled.size(), 2, "}}") == 0) {
      out += "{" + doubled + "}";
      i += doubled.size() + 4;
    } else if (!single.empty()) {
      out += value(single);
      i += single.size() + 2;
    } else {
      out += text[i++];
    }
  }
  return out;
}

RC_GTEST_PROP(JobProperty, RenderingIsAsTheGrammarSays, ()) {
  const auto parts = *rc::gen::container<std::vector<std::string>>(
      rc::gen::element<std::string>("{", "}", "{{", "}}", "{task.index}", "{task.name}", "{count:worker}", "{{task.index}}", "task.index",
                                    "a", " ", "$", "{x}", "\"", "{work.dir}"));
  std::string text;
  for (const auto& part : parts) text += part;
  const JobSpec spec = testing::parse_good(testing::job_text("    worker: {replicas: 2, command: [a]}"));
  TaskView view;
  view.task = {"worker", 1};
  view.work_dir = "/w";
  const std::map<std::string, std::string> values{
      {"task.index", "1"}, {"task.name", "worker-1"}, {"count:worker", "2"}, {"work.dir", "/w"}};
  const auto rendered = render_template(text, spec, view_of(spec), view);
  bool unknown = false;
  const std::string expected = naive_render(text, [&](const std::string& name) {
    unknown = unknown || !values.contains(name);
    return unknown ? "" : values.at(name);
  });
  RC_ASSERT(rendered.has_value() != unknown);
  RC_ASSERT(unknown != unknown_templates(text, spec).empty());
  if (!unknown) RC_ASSERT(*rendered == expected);
}

RC_GTEST_PROP(JobProperty, QuantitiesReadBackWhatTheyWrite, ()) {
  const auto millis = *rc::gen::inRange<std::uint64_t>(0, kMostCpuMillis + 1);
  RC_ASSERT(parse_cpus(format_cpus(millis)).value() == millis);
  const auto bytes = *rc::gen::inRange<std::uint64_t>(0, 1ull << 62) >> *rc::gen::inRange(0, 62);
  RC_ASSERT(parse_memory(format_memory(bytes)).value() == bytes);
  const Duration span = std::chrono::milliseconds(*rc::gen::inRange<std::int64_t>(0, kLongestDuration / 1ms + 1));
  RC_ASSERT(parse_duration(format_duration(span)).value() == span);
  const auto signal = *rc::gen::inRange<std::int32_t>(1, kHighestSignal + 1);
  RC_ASSERT(parse_signal(format_signal(signal)).value() == signal);
}

RC_GTEST_PROP(JobProperty, MemoryIsTheExactProductRoundedUp, ()) {
  const auto whole = *rc::gen::inRange<std::uint64_t>(0, 1000);
  const auto thousandths = *rc::gen::inRange<std::uint64_t>(0, 1000);
  const std::vector<std::pair<std::string, std::uint64_t>> units{
      {"", 1},     {"Ki", 1ull << 10}, {"Mi", 1ull << 20},  {"Gi", 1ull << 30}, {"Ti", 1ull << 40}, {"k", 1000},
      {"K", 1000}, {"M", 1000'000},    {"G", 1000'000'000}, {"e3", 1000},       {"E6", 1000'000},   {"e+9", 1000'000'000}};
  const auto& [suffix, factor] = units[*rc::gen::inRange<std::size_t>(0, units.size())];
  std::string digits = std::to_string(1000 + thousandths).substr(1);
  const std::uint64_t product = (whole * 1000 + thousandths) * factor;  // below 2^60
  RC_ASSERT(parse_memory(std::to_string(whole) + "." + digits + suffix).value() == product / 1000 + (product % 1000 ? 1 : 0));
}

// Depth-first search for any path from a role back to itself.
bool has_cycle(const JobSpec& spec) {
  for (const auto& start : spec.roles) {
    std::set<std::string> seen;
    std::vector<std::string> open{start.first};
    while (!open.empty()) {
      const std::string role = open.back();
      open.pop_back();
      for (const auto& entry : spec.roles.at(role).start_after) {
        if (!spec.roles.contains(entry.first) || entry.first == role) continue;
        if (entry.first == start.first) return true;
        if (seen.insert(entry.first).second) open.push_back(entry.first);
      }
    }
  }
  return false;
}

RC_GTEST_PROP(JobProperty, EveryCircleOfRolesIsFound, ()) {
  JobSpec spec;
  const std::vector<std::string> names{"a", "b", "c", "d", "e"};
  for (const auto& name : names)
    for (const auto& other : *rc::gen::container<std::vector<std::string>>(rc::gen::element<std::string>("a", "b", "c", "d", "e", "z")))
      if (spec.roles[name].start_after.size() < 2) spec.roles[name].start_after[other] = StartAfter::running;
  const auto cycle = find_start_cycle(spec);
  RC_ASSERT(cycle.empty() != has_cycle(spec));
  if (cycle.empty()) return;
  RC_ASSERT(cycle.front() == cycle.back());
  for (std::size_t i = 0; i + 1 < cycle.size(); ++i) RC_ASSERT(spec.roles.at(cycle[i]).start_after.contains(cycle[i + 1]));
}

RC_GTEST_PROP(JobProperty, AnyBytesAreAnswered, (const std::string& bytes)) {
  const ParsedJob job = parse_manifest(bytes, {});
  RC_ASSERT(!job.errors.empty());
}

RC_GTEST_PROP(JobProperty, QuotedTextIsAlwaysUtf8AndShort, (const std::string& bytes)) {
  RC_ASSERT(is_utf8(in_quotes(bytes)));
  RC_ASSERT(in_quotes(bytes).size() <= kQuotedBytes + 8);
}

// What a client sends was never seen by the parser: any values at all are judged, never a crash.
RC_GTEST_PROP(JobProperty, AnySpecIsJudged, ()) {
  JobSpec spec = *valid_spec();
  const std::string junk = *rc::gen::arbitrary<std::string>();
  const auto number = *rc::gen::arbitrary<std::int64_t>();
  switch (*rc::gen::inRange(0, 9)) {
    case 0: spec.name = junk; break;
    case 1: spec.roles[junk].replicas = static_cast<std::uint32_t>(number); break;
    case 2: spec.policy.stop_grace_period = Duration(number); break;
    case 3: spec.env[junk] = junk; break;
    case 4: spec.roles["worker"].start_after[junk] = StartAfter::ready; break;
    case 5: spec.policy.restart_backoff.first = Duration(number); break;
    case 6: spec.roles["worker"].stop_signal = static_cast<std::int32_t>(number); break;
    case 7: spec.work_dir = junk; break;
    case 8: spec.roles["worker"].command = {junk, "{hosts:" + junk + "}"}; break;
  }
  for (const auto& error : validate(spec)) RC_ASSERT(is_utf8(error.message));
}

}  // namespace
}  // namespace dtrain::job
