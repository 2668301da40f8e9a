// How a rank in a process of its own talks to the hub (hub.cc) that plays NCCL for all: a unix socket for each
// communicator, on which one side asks and the other answers.
#pragma once

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <string>
#include <type_traits>
#include <vector>

// What a process asks. The answer to each begins with one byte, kFine.
enum class Ask : uint8_t { join, adopt, exchange, all_reduce, reduce_scatter, reduce, split, leave };

constexpr uint8_t kFine = 1;

// The hub's socket: DOUBLE_HUB.
inline sockaddr_un address_of(const std::string& path) {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, sizeof address.sun_path - 1);
  return address;
}

// One end of a connection. Every call is false when the other end is gone.
class Wire {
 public:
  explicit Wire(int fd) : fd_(fd) {}
  ~Wire() { ::close(fd_); }
  Wire(const Wire&) = delete;
  Wire& operator=(const Wire&) = delete;

  bool put(const void* data, size_t bytes) {
    for (const char* at = static_cast<const char*>(data); bytes;) {
      const ssize_t done = ::send(fd_, at, bytes, MSG_NOSIGNAL);
      if (done < 0 && errno == EINTR) continue;
      if (done <= 0) return false;
      at += done;
      bytes -= static_cast<size_t>(done);
    }
    return true;
  }
  bool get(void* data, size_t bytes) {
    for (char* at = static_cast<char*>(data); bytes;) {
      const ssize_t done = ::recv(fd_, at, bytes, 0);
      if (done < 0 && errno == EINTR) continue;
      if (done <= 0) return false;
      at += done;
      bytes -= static_cast<size_t>(done);
    }
    return true;
  }
  template <class... Values>
  bool put_all(const Values&... values) {
    static_assert((std::is_trivially_copyable_v<Values> && ...));
    return (put(&values, sizeof values) && ...);
  }
  template <class... Values>
  bool get_all(Values&... values) {
    static_assert((std::is_trivially_copyable_v<Values> && ...));
    return (get(&values, sizeof values) && ...);
  }
  // Lets every call on either end return false.
  void hang_up() { ::shutdown(fd_, SHUT_RDWR); }
  int fd() const { return fd_; }

 private:
  int fd_;
};
