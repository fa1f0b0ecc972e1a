#include "agent/proc/system_bus.h"

#include <dlfcn.h>
#include <poll.h>
#include <systemd/sd-bus.h>

#include <algorithm>
#include <cerrno>
#include <list>

#include "agent/base/boot_clock.h"
#include "agent/base/small_file.h"

namespace dtrain::proc {

namespace {

constexpr const char* kLibrary = "libsystemd.so.0";
constexpr const char* kPrivateAddress = "unix:path=/run/systemd/private";  // for root, where no D-Bus runs
constexpr const char* kManager[] = {"org.freedesktop.systemd1", "/org/freedesktop/systemd1", "org.freedesktop.systemd1.Manager"};

constexpr int kMessagesPerTurn = 64;  // the library keeps the rest, and its deadline accounts for them

// The used part of the library. Its functions are called through these pointers, as its header declares them.
class Library {
 public:
  Library() : handle_(::dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL)) {
    if (handle_ == nullptr) {
      const char* cause = ::dlerror();
      missing_ = cause == nullptr ? kLibrary : cause;
      return;
    }
    find("sd_bus_open_system", open_system);
    find("sd_bus_new", make);
    find("sd_bus_set_address", set_address);
    find("sd_bus_start", start);
    find("sd_bus_close_unref", close_unref);
    find("sd_bus_get_fd", get_fd);
    find("sd_bus_get_events", get_events);
    find("sd_bus_get_timeout", get_timeout);
    find("sd_bus_process", process);
    find("sd_bus_send", send);
    find("sd_bus_call_async", call_async);
    find("sd_bus_message_new_method_call", new_call);
    find("sd_bus_message_set_expect_reply", set_expect_reply);
    find("sd_bus_message_append", append);
    find("sd_bus_message_append_array", append_array);
    find("sd_bus_message_open_container", open_container);
    find("sd_bus_message_close_container", close_container);
    find("sd_bus_message_get_error", get_error);
    find("sd_bus_message_unref", unref);
  }
  const std::string& missing() const { return missing_; }  // "": nothing

  decltype(&::sd_bus_open_system) open_system = nullptr;
  decltype(&::sd_bus_new) make = nullptr;
  decltype(&::sd_bus_set_address) set_address = nullptr;
  decltype(&::sd_bus_start) start = nullptr;
  decltype(&::sd_bus_close_unref) close_unref = nullptr;
  decltype(&::sd_bus_get_fd) get_fd = nullptr;
  decltype(&::sd_bus_get_events) get_events = nullptr;
  decltype(&::sd_bus_get_timeout) get_timeout = nullptr;
  decltype(&::sd_bus_process) process = nullptr;
  decltype(&::sd_bus_send) send = nullptr;
  decltype(&::sd_bus_call_async) call_async = nullptr;
  decltype(&::sd_bus_message_new_method_call) new_call = nullptr;
  decltype(&::sd_bus_message_set_expect_reply) set_expect_reply = nullptr;
  decltype(&::sd_bus_message_append) append = nullptr;
  decltype(&::sd_bus_message_append_array) append_array = nullptr;
  decltype(&::sd_bus_message_open_container) open_container = nullptr;
  decltype(&::sd_bus_message_close_container) close_container = nullptr;
  decltype(&::sd_bus_message_get_error) get_error = nullptr;
  decltype(&::sd_bus_message_unref) unref = nullptr;

 private:
  template <class Function>
  void find(const char* name, Function& function) {
    function = reinterpret_cast<Function>(::dlsym(handle_, name));
    if (function == nullptr && missing_.empty()) missing_ = std::string(kLibrary) + " has no " + name;
  }
  void* handle_;  // kept for the rest of the process's life
  std::string missing_;
};

// A call that is being assembled. The first failing step is remembered, and the rest does nothing.
class Call {
 public:
  Call(const Library& library, sd_bus* bus, const char* method) : lib_(library) {
    result_ = lib_.new_call(bus, &message_, kManager[0], kManager[1], kManager[2], method);
  }
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;
  ~Call() { lib_.unref(message_); }

  template <class... T>
  Call& add(const char* types, T... values) {
    return step([&] { return lib_.append(message_, types, values...); });
  }
  template <class F>
  Call& in(char type, const char* contents, F fill) {
    step([&] { return lib_.open_container(message_, type, contents); });
    fill();
    return step([&] { return lib_.close_container(message_); });
  }
  Call& bytes(const void* data, std::size_t size) {
    return step([&] { return lib_.append_array(message_, 'y', data, size); });
  }
  Call& strings(const std::vector<std::string>& texts) {
    return in('a', "s", [&] {
      for (const std::string& text : texts) add("s", text.c_str());
    });
  }
  Call& property(const std::string& name, const char* type, const std::function<void()>& value) {
    return in('r', "sv", [&] {
      add("s", name.c_str());
      in('v', type, value);
    });
  }
  sd_bus_message* message() const { return message_; }
  int result() const { return result_; }

 private:
  template <class F>
  Call& step(F f) {
    if (result_ >= 0) result_ = f();
    return *this;
  }
  const Library& lib_;
  sd_bus_message* message_ = nullptr;
  int result_;
};

// One overload for each kind of PropertyValue.
struct Writer {
  Call& call;
  const std::string& name;
  void operator()(bool value) const {
    call.property(name, "b", [&] { call.add("b", int{value}); });
  }
  void operator()(std::int32_t value) const {
    call.property(name, "i", [&] { call.add("i", value); });
  }
  void operator()(std::uint64_t value) const {
    call.property(name, "t", [&] { call.add("t", value); });
  }
  void operator()(const std::string& value) const {
    call.property(name, "s", [&] { call.add("s", value.c_str()); });
  }
  void operator()(const std::vector<std::string>& value) const {
    call.property(name, "as", [&] { call.strings(value); });
  }
  void operator()(const Bytes& value) const {
    call.property(name, "ay", [&] { call.bytes(value.data(), value.size()); });
  }
  void operator()(const Command& value) const {
    call.property(name, "a(sasb)", [&] {
      call.in('a', "(sasb)", [&] {
        call.in('r', "sasb", [&] {
          call.add("s", value.path.c_str());
          call.strings(value.argv);
          call.add("b", 0);
        });
      });
    });
  }
  void operator()(const DeviceRules& value) const {
    call.property(name, "a(ss)", [&] {
      call.in('a', "(ss)", [&] {
        for (const auto& [node, access] : value.rules) call.add("(ss)", node.c_str(), access.c_str());
      });
    });
  }
  void operator()(const CallFilter& value) const {
    call.property(name, "(bas)", [&] {
      call.in('r', "bas", [&] {
        call.add("b", int{value.allow});
        call.strings(value.names);
      });
    });
  }
  void operator()(const JournalFields& value) const {
    call.property(name, "aay", [&] {
      call.in('a', "ay", [&] {
        for (const std::string& field : value.fields) call.bytes(field.data(), field.size());
      });
    });
  }
};

class SdBus final : public SystemBus {
 public:
  SdBus(std::unique_ptr<Library> library, Epoll& poller, std::uint64_t tag) : lib_(std::move(library)), poller_(poller), tag_(tag) {}
  ~SdBus() override { disconnect(); }

  void start(const std::string& unit, const std::vector<UnitProperty>& properties, int input, Answer answer) override;
  void stop(const std::string& unit) override;
  void dispatch() override;
  Instant deadline() const override;

 private:
  struct Pending {
    Answer answer;
    bool answered = false;
    Outcome outcome = Outcome::unknown;
    std::string cause;
    const Library* library = nullptr;
  };

  static int on_answer(sd_bus_message* message, void* pending, sd_bus_error*);
  int connect();
  void disconnect();
  void lost(int error);
  void used();
  void watch();
  bool tell();

  std::unique_ptr<Library> lib_;
  Epoll& poller_;
  const std::uint64_t tag_;
  sd_bus* bus_ = nullptr;
  std::list<Pending> pending_;  // whose addresses the library keeps
  Instant idle_since_ = kNever;
};

int SdBus::connect() {
  if (bus_ != nullptr) return 0;
  int result = lib_->open_system(&bus_);
  const int cause = result;
  if (result < 0) {
    bus_ = nullptr;
    result = lib_->make(&bus_);
    if (result >= 0) result = lib_->set_address(bus_, kPrivateAddress);
    if (result >= 0) result = lib_->start(bus_);
  }
  if (result >= 0) {
    used();
    return 0;
  }
  disconnect();
  return cause;
}

void SdBus::disconnect() {
  if (bus_ != nullptr) lib_->close_unref(bus_);  // its descriptor leaves the poller by itself
  bus_ = nullptr;
  idle_since_ = kNever;
}

void SdBus::used() {
  idle_since_ = boot_now();
  watch();
}

// What the library wants to wait for may change with each use.
void SdBus::watch() {
  const int fd = lib_->get_fd(bus_), events = lib_->get_events(bus_);
  if (fd >= 0 && events >= 0) poller_.set(fd, tag_, EPOLLIN | ((events & POLLOUT) != 0 ? EPOLLOUT : 0u));
}

void SdBus::start(const std::string& unit, const std::vector<UnitProperty>& properties, int input, Answer answer) {
  if (const int result = connect(); result < 0) {
    answer(Outcome::unknown, "could not connect to systemd: " + cause_of(-result));
    return;
  }
  Call call(*lib_, bus_, "StartTransientUnit");
  call.add("ss", unit.c_str(), "fail").in('a', "(sv)", [&] {
    for (const UnitProperty& property : properties) std::visit(Writer{call, property.name}, property.value);
    call.property("StandardInputFileDescriptor", "h", [&] { call.add("h", input); });
  });
  call.in('a', "(sa(sv))", [] {});  // no further units
  Pending& pending = pending_.emplace_back();
  pending.library = lib_.get();
  int result = call.result();
  if (result >= 0) result = lib_->call_async(bus_, nullptr, call.message(), &SdBus::on_answer, &pending, 0);
  if (result >= 0) {
    pending.answer = std::move(answer);
    return used();
  }
  pending_.pop_back();
  answer(call.result() < 0 ? Outcome::refused : Outcome::unknown, "could not ask systemd: " + cause_of(-result));
  if (result == -ENOTCONN || result == -ECONNRESET) lost(result);
}

void SdBus::stop(const std::string& unit) {
  if (connect() < 0) return;
  Call call(*lib_, bus_, "StopUnit");
  call.add("ss", unit.c_str(), "replace");
  if (call.result() >= 0) lib_->set_expect_reply(call.message(), 0);
  if (call.result() >= 0) (void)lib_->send(bus_, call.message(), nullptr);
  used();
}

int SdBus::on_answer(sd_bus_message* message, void* context, sd_bus_error*) {
  Pending& pending = *static_cast<Pending*>(context);
  pending.answered = true;
  const sd_bus_error* error = pending.library->get_error(message);
  if (error == nullptr) {
    pending.outcome = Outcome::begun;
    return 0;
  }
  const std::string name = error->name == nullptr ? "" : error->name;
  if (name == "org.freedesktop.systemd1.UnitExists") {  // of an earlier question whose answer was lost
    pending.outcome = Outcome::begun;
    return 0;
  }
  // Nobody answers any more, or systemd is off the bus for a moment, while it or the bus restarts.
  bool unanswered = name.rfind("org.freedesktop.DBus.Error.Spawn.", 0) == 0;
  for (const char* word : {SD_BUS_ERROR_NO_REPLY, SD_BUS_ERROR_TIMEOUT, SD_BUS_ERROR_DISCONNECTED, SD_BUS_ERROR_SERVICE_UNKNOWN,
                           SD_BUS_ERROR_NAME_HAS_NO_OWNER})
    unanswered = unanswered || name == word;
  pending.outcome = unanswered ? Outcome::unknown : Outcome::refused;
  pending.cause = error->message != nullptr && error->message[0] != '\0' ? error->message : name;
  return 0;
}

// Outside of the library, which must not be called from its callbacks. Returns true if somebody was informed.
bool SdBus::tell() {
  bool any = false;
  for (auto i = pending_.begin(); i != pending_.end();) {
    if (!i->answered) {
      ++i;
      continue;
    }
    const Pending done = std::move(*i);
    i = pending_.erase(i);
    done.answer(done.outcome, done.cause);
    any = true;
  }
  return any;
}

void SdBus::lost(int error) {
  disconnect();
  for (Pending& pending : pending_) {
    if (pending.answered) continue;
    pending.answered = true;
    pending.cause = "the connection to systemd was lost: " + cause_of(-error);
  }
  tell();
}

void SdBus::dispatch() {
  if (bus_ == nullptr) return;
  int result = 1;
  for (int i = 0; i < kMessagesPerTurn && result > 0; ++i) result = lib_->process(bus_, nullptr);
  if (result < 0) return lost(result);
  // Only answers to this process's questions count: on its private socket systemd sends everything to everybody.
  if (tell()) idle_since_ = boot_now();
  if (bus_ == nullptr) return;
  watch();
  if (pending_.empty() && boot_now() >= idle_since_ + kBusIdle) disconnect();
}

// The library uses CLOCK_MONOTONIC, which does not run while the host sleeps: the remaining time counts.
Instant SdBus::deadline() const {
  if (bus_ == nullptr) return kNever;
  Instant due = pending_.empty() ? idle_since_ + kBusIdle : kNever;
  std::uint64_t microseconds = 0;
  if (lib_->get_timeout(bus_, &microseconds) < 0 || microseconds == UINT64_MAX) return due;
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  const auto at = std::chrono::microseconds(microseconds);
  const auto since = std::chrono::seconds(now.tv_sec) + std::chrono::nanoseconds(now.tv_nsec);
  return std::min(due, boot_now() + std::max(Duration{0}, Duration(at - since)));
}

}  // namespace

Result<std::unique_ptr<SystemBus>> SystemBus::open(Epoll& poller, std::uint64_t tag) {
  auto library = std::make_unique<Library>();
  if (!library->missing().empty())
    return fail(ErrorCode::unavailable, "could not launch tasks through systemd: " + library->missing(),
                "install libsystemd0, or use tasks.launch: direct");
  return std::unique_ptr<SystemBus>(std::make_unique<SdBus>(std::move(library), poller, tag));
}

}  // namespace dtrain::proc
