#include "common/job/quantity.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <csignal>
#include <limits>
#include <optional>

#include "common/job/manifest.h"
#include "common/job/text.h"

namespace dtrain::job {

namespace {

__extension__ using Wide = unsigned __int128;

constexpr std::size_t kMantissaDigits = 19;  // below 10^19: fits 64 bits; times 2^60 or 10^18 it still fits 128
constexpr int kHighestExponent = 18;

bool is_digit(char c) { return c >= '0' && c <= '9'; }

// A decimal number at the start of a text, exact: mantissa / 10^fraction_digits.
struct Decimal {
  std::uint64_t mantissa = 0;
  std::uint32_t fraction_digits = 0;
  std::string_view rest;
};

// "12", "1.5", ".5", "5."; nullopt when there is no digit or there are too many.
std::optional<Decimal> read_decimal(std::string_view text) {
  Decimal out;
  std::size_t digits = 0, i = 0;
  bool point = false, any = false;
  for (; i < text.size(); ++i) {
    if (text[i] == '.' && !point) {
      point = true;
      continue;
    }
    if (!is_digit(text[i])) break;
    any = true;
    if (digits > 0 || text[i] != '0') ++digits;
    if (digits > kMantissaDigits || out.fraction_digits == kMantissaDigits) return std::nullopt;
    out.mantissa = out.mantissa * 10 + static_cast<std::uint64_t>(text[i] - '0');
    if (point) ++out.fraction_digits;
  }
  if (!any) return std::nullopt;
  out.rest = text.substr(i);
  return out;
}

Wide power_of_ten(std::uint32_t exponent) {
  Wide value = 1;
  while (exponent-- > 0) value *= 10;
  return value;
}

struct Unit {
  std::string_view name;
  std::uint64_t factor;
};
constexpr std::uint64_t kKilo = 1000;
constexpr std::array<Unit, 14> kMemoryUnits{{{"", 1},
                                             {"Ki", 1ull << 10},
                                             {"Mi", 1ull << 20},
                                             {"Gi", 1ull << 30},
                                             {"Ti", 1ull << 40},
                                             {"Pi", 1ull << 50},
                                             {"Ei", 1ull << 60},
                                             {"k", kKilo},
                                             {"K", kKilo},
                                             {"M", kKilo* kKilo},
                                             {"G", kKilo* kKilo* kKilo},
                                             {"T", kKilo* kKilo* kKilo* kKilo},
                                             {"P", kKilo* kKilo* kKilo* kKilo* kKilo},
                                             {"E", kKilo* kKilo* kKilo* kKilo* kKilo* kKilo}}};

struct TimeUnit {
  std::string_view name;
  Duration length;
};
constexpr std::array<TimeUnit, 5> kTimeUnits{{{"d", std::chrono::hours(24)}, {"h", 1h}, {"m", 1min}, {"s", 1s}, {"ms", 1ms}}};

struct SignalName {
  std::string_view name;  // without SIG
  std::int32_t number;
};
constexpr std::array<SignalName, 31> kSignals{
    {{"HUP", SIGHUP},   {"INT", SIGINT},       {"QUIT", SIGQUIT}, {"ILL", SIGILL},       {"TRAP", SIGTRAP}, {"ABRT", SIGABRT},
     {"BUS", SIGBUS},   {"FPE", SIGFPE},       {"KILL", SIGKILL}, {"USR1", SIGUSR1},     {"SEGV", SIGSEGV}, {"USR2", SIGUSR2},
     {"PIPE", SIGPIPE}, {"ALRM", SIGALRM},     {"TERM", SIGTERM}, {"STKFLT", SIGSTKFLT}, {"CHLD", SIGCHLD}, {"CONT", SIGCONT},
     {"STOP", SIGSTOP}, {"TSTP", SIGTSTP},     {"TTIN", SIGTTIN}, {"TTOU", SIGTTOU},     {"URG", SIGURG},   {"XCPU", SIGXCPU},
     {"XFSZ", SIGXFSZ}, {"VTALRM", SIGVTALRM}, {"PROF", SIGPROF}, {"WINCH", SIGWINCH},   {"IO", SIGIO},     {"PWR", SIGPWR},
     {"SYS", SIGSYS}}};

tl::unexpected<Error> not_a(std::string_view wanted, std::string_view text) {
  return fail(ErrorCode::invalid, "must be " + std::string(wanted) + ", not " + in_quotes(text));
}

constexpr std::string_view kCpuForm = "a number of CPUs such as 2, 1.5 or 500m";
constexpr std::string_view kMemoryForm = "an amount of memory such as 8Gi, 500M or 1e9";
constexpr std::string_view kDurationForm = "a duration such as 100ms, 30s, 10m, 6h or 7d";
constexpr std::string_view kSignalForm = "a signal such as SIGTERM, USR1 or 10";

}  // namespace

Result<std::uint64_t> parse_cpus(std::string_view text) {
  const auto number = read_decimal(text);
  if (!number || (!number->rest.empty() && number->rest != "m")) return not_a(kCpuForm, text);
  const Wide scaled = Wide(number->mantissa) * (number->rest.empty() ? 1000u : 1u);
  const Wide divisor = power_of_ten(number->fraction_digits);
  if (scaled % divisor != 0) return not_a("a number of CPUs in steps of 1m (0.001)", text);
  if (scaled / divisor > kMostCpuMillis) return not_a("at most " + format_cpus(kMostCpuMillis) + " CPUs", text);
  return static_cast<std::uint64_t>(scaled / divisor);
}

Result<std::uint64_t> parse_memory(std::string_view text) {
  const auto number = read_decimal(text);
  if (!number) return not_a(kMemoryForm, text);
  Wide value = number->mantissa;
  std::uint32_t fraction_digits = number->fraction_digits;
  const std::string_view rest = number->rest;
  // "1e3" and "1E3" are exponents; "1E" is an exa.
  if (rest.size() > 1 && (rest[0] == 'e' || rest[0] == 'E') && rest[1] != 'i') {
    std::string_view digits = rest.substr(1);
    const bool negative = digits.front() == '-';
    if (negative || digits.front() == '+') digits.remove_prefix(1);
    const bool valid = !digits.empty() && digits.size() <= 2 && std::all_of(digits.begin(), digits.end(), is_digit);
    int exponent = 0;
    for (const char c : valid ? digits : std::string_view()) exponent = exponent * 10 + (c - '0');
    if (!valid || exponent > kHighestExponent) return not_a(kMemoryForm, text);
    if (negative) fraction_digits += static_cast<std::uint32_t>(exponent);  // at most 19 + 18 digits: 10^37 fits
    else value *= power_of_ten(static_cast<std::uint32_t>(exponent));
  } else {
    const auto unit = std::find_if(kMemoryUnits.begin(), kMemoryUnits.end(), [&](const Unit& u) { return u.name == rest; });
    if (unit == kMemoryUnits.end()) return not_a(kMemoryForm, text);
    value *= unit->factor;
  }
  const Wide divisor = power_of_ten(fraction_digits);
  const Wide bytes = value / divisor + (value % divisor == 0 ? 0 : 1);
  if (bytes > static_cast<Wide>(std::numeric_limits<std::int64_t>::max())) return not_a("less than 8Ei of memory", text);
  return static_cast<std::uint64_t>(bytes);
}

Result<Duration> parse_duration(std::string_view text) {
  if (text == "0") return Duration(0);
  std::uint64_t number = 0;
  std::size_t i = 0;
  for (; i < text.size() && is_digit(text[i]); ++i) {
    if (i == kMantissaDigits) return not_a("at most 3650d", text);
    number = number * 10 + static_cast<std::uint64_t>(text[i] - '0');
  }
  const auto unit = std::find_if(kTimeUnits.begin(), kTimeUnits.end(), [&](const TimeUnit& u) { return u.name == text.substr(i); });
  if (i == 0 || unit == kTimeUnits.end()) return not_a(kDurationForm, text);
  if (number > static_cast<std::uint64_t>(kLongestDuration / unit->length)) return not_a("at most 3650d", text);
  return unit->length * static_cast<std::int64_t>(number);
}

Result<std::int32_t> parse_signal(std::string_view text) {
  if (!text.empty() && text.size() <= 2 && std::all_of(text.begin(), text.end(), is_digit)) {
    std::int32_t number = 0;
    for (const char c : text) number = number * 10 + (c - '0');
    if (number < 1 || number > kHighestSignal) return not_a(kSignalForm, text);
    return number;
  }
  const std::string_view name = text.starts_with("SIG") ? text.substr(3) : text;
  for (const auto& signal : kSignals)
    if (signal.name == name) return signal.number;
  return not_a(kSignalForm, text);
}

std::string format_cpus(std::uint64_t millis) { return millis % 1000 == 0 ? std::to_string(millis / 1000) : std::to_string(millis) + "m"; }

std::string format_memory(std::uint64_t bytes) {
  for (const char* unit : {"Ei", "Pi", "Ti", "Gi", "Mi", "Ki"}) {
    const auto found = std::find_if(kMemoryUnits.begin(), kMemoryUnits.end(), [&](const Unit& u) { return u.name == unit; });
    if (bytes > 0 && bytes % found->factor == 0) return std::to_string(bytes / found->factor) + unit;
  }
  return std::to_string(bytes);
}

std::string format_duration(Duration d) {
  if (d <= Duration::zero()) return "0s";
  for (const auto& unit : kTimeUnits)
    if (d % unit.length == Duration::zero()) return std::to_string(d / unit.length) + std::string(unit.name);
  return std::to_string(d / 1ms) + "ms";
}

std::string format_signal(std::int32_t signal) {
  for (const auto& known : kSignals)
    if (known.number == signal) return "SIG" + std::string(known.name);
  return std::to_string(signal);
}

Result<std::pair<std::uint32_t, std::uint32_t>> parse_range(std::string_view text) {
  const std::size_t dash = text.find('-');
  const auto number = [](std::string_view digits) -> std::optional<std::uint32_t> {
    std::uint32_t value = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    if (error != std::errc() || end != digits.data() + digits.size()) return std::nullopt;
    return value;
  };
  const auto first = number(text.substr(0, dash));
  const auto last = dash == text.npos ? first : number(text.substr(dash + 1));
  if (!first || !last || *first > *last)
    return fail(ErrorCode::invalid, "must be a number such as 3, or a range such as 3-5, not " + in_quotes(std::string(text)));
  return std::pair(*first, *last);
}

std::string format_range(std::uint32_t first, std::uint32_t last) {
  return first == last ? std::to_string(first) : std::to_string(first) + "-" + std::to_string(last);
}

}  // namespace dtrain::job
