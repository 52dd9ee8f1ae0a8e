/* prozess's shim, for LD_PRELOAD: moves the wall clock of one process, and writes down what it has made the disk keep.

   PROZESS_CLOCK  a file of 56 bytes or more, mapped shared: int64 which of two slots holds, then two slots of three int64:
                  nanoseconds added to the wall clock, parts per million that it gains, and the CLOCK_MONOTONIC (ns) from
                  which on it gains. Whoever writes the other slot and then `which` moves the clock at once. The monotonic
                  clock, sleeps and waits are untouched: C11's waits, which go by the wall clock (cnd_timedwait, librdkafka's),
                  are given the true time that is meant.
   PROZESS_SYNCS  a file to which one record is appended per file that was synced (kind 0) or cut (kind 1): five int64,
                  kind, device, inode, birth time (ns), bytes. The size is taken before the sync: what is written meanwhile
                  is not promised.

   Without either it does nothing. No libc is used, so one build serves glibc and musl:
   cc -O2 -shared -fPIC -nostdlib -fno-stack-protector -o shim.so shim.c */
#include <stdint.h>

struct timespec_ { long s, n; };
struct timeval_ { long s, u; };
struct statx_time { int64_t s; uint32_t n; int32_t pad; };
struct statx_ {
  uint32_t mask, block; uint64_t attributes; uint32_t links, uid, gid; uint16_t mode, pad; uint64_t inode, size, blocks;
  uint64_t attributes_mask; struct statx_time a, birth, c, m; uint32_t rmajor, rminor, major, minor; uint64_t more[14];
};
struct slot { int64_t offset_ns, ppm, since_ns; };
struct clock { int64_t which; struct slot slots[2]; };
struct record { int64_t kind, device, inode, birth_ns, bytes; };

extern char **environ __attribute__((weak));
extern int *__errno_location(void) __attribute__((weak));
extern int pthread_cond_clockwait(void *, void *, int, const struct timespec_ *) __attribute__((weak));
extern int pthread_cond_timedwait(void *, void *, const struct timespec_ *) __attribute__((weak));

#if defined(__x86_64__)
enum { CLOCK = 228, OPENAT = 257, MMAP = 9, CLOSE = 3, WRITE = 1, FSYNC = 74, FDATASYNC = 75, FTRUNCATE = 77, STATX = 332 };
static long call(long n, long a, long b, long c, long d, long e, long f) {
  long r;
  register long r10 __asm__("r10") = d, r8 __asm__("r8") = e, r9 __asm__("r9") = f;
  __asm__ volatile("syscall" : "=a"(r) : "a"(n), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9) : "rcx", "r11", "memory");
  return r;
}
#elif defined(__aarch64__)
enum { CLOCK = 113, OPENAT = 56, MMAP = 222, CLOSE = 57, WRITE = 64, FSYNC = 82, FDATASYNC = 83, FTRUNCATE = 46, STATX = 291 };
static long call(long n, long a, long b, long c, long d, long e, long f) {
  register long x8 __asm__("x8") = n, x0 __asm__("x0") = a, x1 __asm__("x1") = b, x2 __asm__("x2") = c;
  register long x3 __asm__("x3") = d, x4 __asm__("x4") = e, x5 __asm__("x5") = f;
  __asm__ volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5) : "memory");
  return x0;
}
#else
#error "written for x86-64 and aarch64"
#endif

static const struct clock still;
static const volatile struct clock *moved = &still;
static long syncs = -1;

static const char *value(const char *variable, const char *key) {
  while (*key && *variable == *key) variable++, key++;
  return *key ? 0 : variable;
}

__attribute__((constructor)) static void begin(void) {
  const char *found;
  if (!&environ || !environ) return;
  for (char **e = environ; *e; e++) {
    if ((found = value(*e, "PROZESS_CLOCK="))) {
      long file = call(OPENAT, -100, (long)found, 02000000, 0, 0, 0);
      if (file < 0) continue;
      long at = call(MMAP, 0, 4096, 1 /* read */, 1 /* shared */, file, 0);
      call(CLOSE, file, 0, 0, 0, 0, 0);
      if (at > 0) moved = (const volatile struct clock *)at;
    } else if ((found = value(*e, "PROZESS_SYNCS="))) {
      syncs = call(OPENAT, -100, (long)found, 02002101 /* write, create, append, close on exec */, 0644, 0, 0);
    }
  }
}

static long answer(long r) {
  if (r >= 0) return r;
  if (&__errno_location) *__errno_location() = (int)-r;
  return -1;
}

/* --- the wall clock --- */

static int64_t off_by(void) {
  const volatile struct slot *slot = &moved->slots[moved->which & 1];
  int64_t offset_ns = slot->offset_ns, ppm = slot->ppm;
  if (ppm) {
    struct timespec_ now;
    call(CLOCK, 1 /* monotonic */, (long)&now, 0, 0, 0, 0);
    offset_ns += (now.s * 1000000000LL + now.n - slot->since_ns) / 1000 * ppm / 1000;
  }
  return offset_ns;
}

static void shift_by(struct timespec_ *t, int64_t by) {
  if (!by) return;
  int64_t n = t->n + by % 1000000000;
  t->s += by / 1000000000;
  if (n < 0) n += 1000000000, t->s--;
  else if (n >= 1000000000) n -= 1000000000, t->s++;
  t->n = n;
}

static void shift(struct timespec_ *t) { shift_by(t, off_by()); }

/* A cnd_t is a pthread_cond_t of the wall clock, in glibc and musl; before glibc 2.30 there is no clockwait, and of timedwait an
   older version that knows other structures: there, clocks of clients are not moved (clusters/shim.py). */
int cnd_timedwait(void *condition, void *mutex, const struct timespec_ *until) {
  struct timespec_ real = *until;
  shift_by(&real, -off_by());
  int r = &pthread_cond_clockwait ? pthread_cond_clockwait(condition, mutex, 0, &real)
                                  : pthread_cond_timedwait(condition, mutex, &real);
  return r == 0 ? 0 : r == 110 /* ETIMEDOUT */ ? 4 /* thrd_timedout */ : 2 /* thrd_error */;
}

int clock_gettime(int id, struct timespec_ *t) {
  long r = call(CLOCK, id, (long)t, 0, 0, 0, 0);
  if (!r && (id == 0 || id == 5)) shift(t); /* REALTIME, REALTIME_COARSE */
  return (int)answer(r);
}

int gettimeofday(struct timeval_ *v, void *zone) {
  struct timespec_ t;
  (void)zone;
  call(CLOCK, 0, (long)&t, 0, 0, 0, 0);
  shift(&t);
  v->s = t.s;
  v->u = t.n / 1000;
  return 0;
}

long time(long *seconds) {
  struct timespec_ t;
  call(CLOCK, 0, (long)&t, 0, 0, 0, 0);
  shift(&t);
  if (seconds) *seconds = t.s;
  return t.s;
}

/* --- what the disk was made to keep --- */

static int look(int file, struct record *found) {
  struct statx_ seen;
  if (syncs < 0 || call(STATX, file, (long)"", 0x1000 /* the file itself */, 0xfff, (long)&seen, 0)) return 0;
  if ((seen.mode & 0170000) != 0100000) return 0;
  found->device = ((int64_t)seen.major << 32) | seen.minor;
  found->inode = (int64_t)seen.inode;
  found->birth_ns = seen.birth.s * 1000000000LL + seen.birth.n;
  found->bytes = (int64_t)seen.size;
  return 1;
}

static int sync_by(long how, int file) {
  struct record seen;
  int known = look(file, &seen);
  long r = call(how, file, 0, 0, 0, 0, 0);
  if (known && !r) {
    seen.kind = 0;
    call(WRITE, syncs, (long)&seen, sizeof seen, 0, 0, 0);
  }
  return (int)answer(r);
}

int fsync(int file) { return sync_by(FSYNC, file); }
int fdatasync(int file) { return sync_by(FDATASYNC, file); }

static int cut(int file, long bytes) {
  struct record seen;
  int known = look(file, &seen);
  long r = call(FTRUNCATE, file, bytes, 0, 0, 0, 0);
  if (known && !r) {
    seen.kind = 1;
    seen.bytes = bytes;
    call(WRITE, syncs, (long)&seen, sizeof seen, 0, 0, 0);
  }
  return (int)answer(r);
}

int ftruncate(int file, long bytes) { return cut(file, bytes); }
int ftruncate64(int file, long bytes) { return cut(file, bytes); }
