#include "agent/proc/device_gate.h"

#include <fcntl.h>
#include <linux/bpf.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "agent/base/small_file.h"
#include "agent/base/unique_fd.h"

namespace dtrain::proc {
namespace {

// Device numbers, from Documentation/admin-guide/devices.txt of the kernel.
constexpr std::int32_t kMemory = 1, kTerminals = 5, kFirstPty = 136, kLastPty = 143;
constexpr std::int32_t kMemoryDevices[] = {3, 5, 7, 8, 9};  // null, zero, full, random, urandom
constexpr std::int32_t kTerminalDevices[] = {0, 2};         // tty, ptmx
constexpr std::int32_t kTypeBits = 0xffff;                  // of access_type: what kind of device; above: what for

// A program that returns 1 to let a device be opened. Written by hand: a compiler and a loader would be more than
// these twenty instructions.
std::vector<bpf_insn> gate() {
  enum : std::uint8_t { answer = BPF_REG_0, context = BPF_REG_1, type = BPF_REG_2, major = BPF_REG_3, minor = BPF_REG_4 };
  std::vector<bpf_insn> code;
  std::vector<std::size_t> to_yes, to_no;  // jumps whose targets are known at the end
  const auto add = [&](int what, std::uint8_t to, std::uint8_t from, std::size_t offset, std::int32_t value) {
    bpf_insn step{};
    step.code = static_cast<std::uint8_t>(what);
    step.dst_reg = to & 0xf;
    step.src_reg = from & 0xf;
    step.off = static_cast<std::int16_t>(offset);
    step.imm = value;
    code.push_back(step);
  };
  const auto jump = [&](int when, std::uint8_t what, std::int32_t value, std::vector<std::size_t>& where) {
    where.push_back(code.size());
    add(BPF_JMP | when | BPF_K, what, 0, 0, value);
  };
  add(BPF_LDX | BPF_MEM | BPF_W, type, context, offsetof(bpf_cgroup_dev_ctx, access_type), 0);
  add(BPF_LDX | BPF_MEM | BPF_W, major, context, offsetof(bpf_cgroup_dev_ctx, major), 0);
  add(BPF_LDX | BPF_MEM | BPF_W, minor, context, offsetof(bpf_cgroup_dev_ctx, minor), 0);
  add(BPF_ALU64 | BPF_AND | BPF_K, type, 0, 0, kTypeBits);
  jump(BPF_JNE, type, BPF_DEVCG_DEV_CHAR, to_no);
  add(BPF_JMP | BPF_JNE | BPF_K, major, 0, std::size(kMemoryDevices) + 1, kMemory);
  for (const std::int32_t device : kMemoryDevices) jump(BPF_JEQ, minor, device, to_yes);
  jump(BPF_JA, 0, 0, to_no);
  add(BPF_JMP | BPF_JNE | BPF_K, major, 0, std::size(kTerminalDevices) + 1, kTerminals);
  for (const std::int32_t device : kTerminalDevices) jump(BPF_JEQ, minor, device, to_yes);
  jump(BPF_JA, 0, 0, to_no);
  jump(BPF_JLT, major, kFirstPty, to_no);
  jump(BPF_JGT, major, kLastPty, to_no);
  const std::size_t yes = code.size();
  add(BPF_ALU64 | BPF_MOV | BPF_K, answer, 0, 0, 1);
  add(BPF_JMP | BPF_EXIT, 0, 0, 0, 0);
  const std::size_t no = code.size();
  add(BPF_ALU64 | BPF_MOV | BPF_K, answer, 0, 0, 0);
  add(BPF_JMP | BPF_EXIT, 0, 0, 0, 0);
  for (const std::size_t at : to_yes) code[at].off = static_cast<std::int16_t>(yes - at - 1);
  for (const std::size_t at : to_no) code[at].off = static_cast<std::int16_t>(no - at - 1);
  return code;
}

int bpf(bpf_cmd command, bpf_attr& attributes) { return static_cast<int>(::syscall(SYS_bpf, command, &attributes, sizeof attributes)); }

}  // namespace

Status close_devices(const std::string& cgroup) {
  const auto failed = [&] {
    return fail(ErrorCode::unavailable, "could not close devices to processes in " + cgroup + ": " + cause_of(errno),
                "let the agent use bpf(2): CAP_SYS_ADMIN, CAP_BPF");
  };
  const UniqueFd group(::open(cgroup.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!group) return failed();
  const std::vector<bpf_insn> code = gate();
  const char licence[] = "Apache-2.0";
  bpf_attr load{};
  load.prog_type = BPF_PROG_TYPE_CGROUP_DEVICE;
  load.insn_cnt = static_cast<std::uint32_t>(code.size());
  load.insns = reinterpret_cast<std::uint64_t>(code.data());
  load.license = reinterpret_cast<std::uint64_t>(licence);
  const UniqueFd program(bpf(BPF_PROG_LOAD, load));
  if (!program) return failed();
  bpf_attr attach{};
  attach.target_fd = static_cast<std::uint32_t>(group.get());
  attach.attach_bpf_fd = static_cast<std::uint32_t>(program.get());
  attach.attach_type = BPF_CGROUP_DEVICE;
  // Without flags: replaces the program that an earlier life attached. Programs that systemd attached above stay in force.
  if (bpf(BPF_PROG_ATTACH, attach) != 0) return failed();
  return {};
}

}  // namespace dtrain::proc
