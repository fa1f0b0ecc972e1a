// ZeroMQ for the programs that people and mpirun start a hundred times a day: loaded by its first call, which only a client of another
// machine's agent makes, and not as each program starts. With the twelve libraries that it needs, it took 0.8 of the 3.6 ms of a start.
//
// These are ZeroMQ's own functions, as its header declares them, so their callers need not know. Where one is called that is missing here,
// the linker takes the library itself again: tests/tidy/test_release_programs.py notices.
#include <dlfcn.h>
#include <zmq.h>

#include <stdexcept>
#include <string>

namespace {

constexpr const char* kLibrary = "libzmq.so.5";

[[noreturn]] void missing() {
  throw std::runtime_error(std::string(::dlerror()) + "; install libzmq5, through which agents of other machines are reached");
}

void* load() {
  void* const library = ::dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) missing();
  return library;
}

// Throws what main() reports, if the library cannot be loaded: in zmq_ctx_new, the first call, before anything is held.
template <class Function>
Function* found(const char* name) {
  static void* const library = load();
  void* const function = ::dlsym(library, name);
  if (function == nullptr) missing();
  return reinterpret_cast<Function*>(function);
}

}  // namespace

#define FORWARD(result, name, parameters, arguments)            \
  result name parameters {                                      \
    static auto* const function = found<decltype(name)>(#name); \
    return function arguments;                                  \
  }

extern "C" {
FORWARD(int, zmq_errno, (), ())
FORWARD(const char*, zmq_strerror, (int number), (number))
FORWARD(void*, zmq_ctx_new, (), ())
FORWARD(int, zmq_ctx_set, (void* context, int option, int value), (context, option, value))
FORWARD(int, zmq_ctx_term, (void* context), (context))
FORWARD(int, zmq_msg_init, (zmq_msg_t * message), (message))
FORWARD(int, zmq_msg_close, (zmq_msg_t * message), (message))
FORWARD(void*, zmq_msg_data, (zmq_msg_t * message), (message))
FORWARD(size_t, zmq_msg_size, (const zmq_msg_t* message), (message))
FORWARD(int, zmq_msg_more, (const zmq_msg_t* message), (message))
FORWARD(const char*, zmq_msg_gets, (const zmq_msg_t* message, const char* property), (message, property))
FORWARD(int, zmq_msg_recv, (zmq_msg_t * message, void* socket, int flags), (message, socket, flags))
FORWARD(void*, zmq_socket, (void* context, int type), (context, type))
FORWARD(int, zmq_socket_monitor, (void* socket, const char* address, int events), (socket, address, events))
FORWARD(int, zmq_getsockopt, (void* socket, int option, void* value, size_t* size), (socket, option, value, size))
FORWARD(int, zmq_setsockopt, (void* socket, int option, const void* value, size_t size), (socket, option, value, size))
FORWARD(int, zmq_connect, (void* socket, const char* address), (socket, address))
FORWARD(int, zmq_send, (void* socket, const void* bytes, size_t size, int flags), (socket, bytes, size, flags))
FORWARD(int, zmq_close, (void* socket), (socket))
}
