/* Makes calls of chosen processes fail, for those that were started with LD_PRELOAD=<this>.

   The file that NEMO_RUN_FAULTS names is the plan, mapped by all processes and by the test, which may change
   it at any time: how often calls of which processes fail, by how much the clock is off, and, counted here,
   what has happened. Only files below `home` are concerned. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { NONE, LAUNCHER, CONDUCTOR, SUPERVISOR, ROLES };
enum { COUNT_EIO, COUNT_ENOSPC, COUNT_EMFILE, COUNT_ESTALE, COUNT_SLOW, COUNTS };

struct plan {
  uint32_t per_million[ROLES];
  int64_t clock_step_s;
  uint64_t counts[COUNTS];
  char home[1024];
  uint32_t only;
};

static struct plan *plan;
static int role;
static __thread uint64_t state;

__attribute__((constructor)) static void begin(void) {
  char text[8192] = "";
  const char *path = getenv("NEMO_RUN_FAULTS");
  int fd = syscall(SYS_openat, AT_FDCWD, "/proc/self/cmdline", O_RDONLY | O_CLOEXEC);
  ssize_t size = fd < 0 ? 0 : syscall(SYS_read, fd, text, sizeof text - 1);
  if (fd >= 0) syscall(SYS_close, fd);
  for (ssize_t at = 0; at < size; at++)
    if (!text[at]) text[at] = ' ';
  if (strstr(text, "conductor.detached")) role = CONDUCTOR;
  else if (strstr(text, "import supervisor")) role = SUPERVISOR;
  else if (strstr(text, "launch.py")) role = LAUNCHER;
  if (!path || !role) return;
  fd = syscall(SYS_openat, AT_FDCWD, path, O_RDWR | O_CLOEXEC);
  if (fd < 0) return;
  void *found = mmap(NULL, sizeof *plan, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  syscall(SYS_close, fd);
  if (found != MAP_FAILED) plan = found;
}

static uint64_t draw(void) {
  if (!state) {
    struct timespec now;
    syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &now);
    state = (((uint64_t)now.tv_nsec * 2654435761u) ^ ((uint64_t)syscall(SYS_gettid) << 32)) | 1;
  }
  state ^= state << 13, state ^= state >> 7, state ^= state << 17;
  return state;
}

/* Whether a path, or what a descriptor is open on, is below the home: whether it begins so. */
static int concerned(int fd, const char *path) {
  char link[64], place[4096];
  size_t length = strlen(plan->home);
  if (path && path[0] == '/') return !strncmp(path, plan->home, length);
  if (fd == AT_FDCWD) return 0;
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  ssize_t size = syscall(SYS_readlinkat, AT_FDCWD, link, place, 2047);
  if (size <= 0) return 0;
  snprintf(place + size, sizeof place - size, "%s%s", path ? "/" : "", path ? path : "");
  return !strncmp(place, plan->home, length);
}

static int count(int which) {
  static const int numbers[] = {EIO, ENOSPC, EMFILE, ESTALE};
  __atomic_add_fetch(&plan->counts[which], 1, __ATOMIC_RELAXED);
  return which == COUNT_SLOW ? 0 : numbers[which];
}

static const int OPENING[] = {COUNT_EIO, COUNT_EMFILE, COUNT_ESTALE, COUNT_SLOW};
static const int READING[] = {COUNT_EIO, COUNT_ESTALE, COUNT_SLOW};
static const int WRITING[] = {COUNT_EIO, COUNT_ENOSPC, COUNT_SLOW};
static const int SYNCING[] = {COUNT_EIO, COUNT_ENOSPC, COUNT_ESTALE};

/* Return the error that this call meets, or 0; `choices` are those that it can meet. */
static int fault(int fd, const char *path, const int *choices, int n) {
  if (plan && plan->only == 1 && choices != SYNCING) return 0;
  if (plan && plan->only == 2 && choices != OPENING) return 0;
  if (!plan || !plan->per_million[role] || draw() % 1000000 >= plan->per_million[role]) return 0;
  int before = errno, number = 0;
  if (concerned(fd, path)) {
    int which = plan->only == 2 ? COUNT_EMFILE : choices[draw() % n];
    if (which == COUNT_SLOW) {
      struct timespec pause = {0, (long)(draw() % 150) * 1000000};
      syscall(SYS_nanosleep, &pause, NULL);
    }
    number = count(which);
  }
  errno = number ? number : before;
  return number;
}

#define MEETS(fd, path, choices) fault(fd, path, choices, sizeof choices / sizeof *choices)
#define FIND(name) if (!next) next = dlsym(RTLD_NEXT, #name)

#define OPEN(name)                                                          \
  int name(const char *path, int flags, ...) {                              \
    static int (*next)(const char *, int, ...);                             \
    va_list more;                                                           \
    va_start(more, flags);                                                  \
    int mode = va_arg(more, int);                                           \
    va_end(more);                                                           \
    FIND(name);                                                             \
    return MEETS(AT_FDCWD, path, OPENING) ? -1 : next(path, flags, mode); \
  }
#define OPENAT(name)                                                        \
  int name(int fd, const char *path, int flags, ...) {                      \
    static int (*next)(int, const char *, int, ...);                        \
    va_list more;                                                           \
    va_start(more, flags);                                                  \
    int mode = va_arg(more, int);                                           \
    va_end(more);                                                           \
    FIND(name);                                                             \
    return MEETS(fd, path, OPENING) ? -1 : next(fd, path, flags, mode); \
  }
OPEN(open)
OPEN(open64)
OPENAT(openat)
OPENAT(openat64)

ssize_t read(int fd, void *data, size_t size) {
  static ssize_t (*next)(int, void *, size_t);
  FIND(read);
  return MEETS(fd, NULL, READING) ? -1 : next(fd, data, size);
}
ssize_t write(int fd, const void *data, size_t size) {
  static ssize_t (*next)(int, const void *, size_t);
  FIND(write);
  return MEETS(fd, NULL, WRITING) ? -1 : next(fd, data, size);
}
int rename(const char *from, const char *to) {
  static int (*next)(const char *, const char *);
  FIND(rename);
  return MEETS(AT_FDCWD, to, WRITING) ? -1 : next(from, to);
}
int renameat(int fd, const char *from, int there, const char *to) {
  static int (*next)(int, const char *, int, const char *);
  FIND(renameat);
  return MEETS(there, to, WRITING) ? -1 : next(fd, from, there, to);
}
int mkdir(const char *path, mode_t mode) {
  static int (*next)(const char *, mode_t);
  FIND(mkdir);
  return MEETS(AT_FDCWD, path, WRITING) ? -1 : next(path, mode);
}
int fsync(int fd) {
  static int (*next)(int);
  FIND(fsync);
  return MEETS(fd, NULL, SYNCING) ? -1 : next(fd);
}
int stat64(const char *path, struct stat64 *found) {
  static int (*next)(const char *, struct stat64 *);
  FIND(stat64);
  return MEETS(AT_FDCWD, path, READING) ? -1 : next(path, found);
}
int clock_gettime(clockid_t clock, struct timespec *now) {
  static int (*next)(clockid_t, struct timespec *);
  FIND(clock_gettime);
  int code = next(clock, now);
  if (!code && clock == CLOCK_REALTIME && plan) now->tv_sec += plan->clock_step_s;
  return code;
}
