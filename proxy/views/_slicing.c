/* The filter kernel: one record batch of magic 2, taken apart for the slots of a view in one pass.
 *
 * The rules are those of twin.py, byte for byte; tests and a fuzzer hold the two equal. Whatever the bytes are, no read
 * leaves them: every length is compared with what is left before it is believed.
 *
 * Two passes over memory: `scan` checks the checksum, walks the records, and notes where each kept record lies and whose
 * it is; then the parts are allocated, each with its exact size; `fill` copies the records and makes the headers. Which
 * record is kept is a coin toss that no branch predictor wins, so both loops do without a branch on it. The second pass
 * trusts the notes of the first and never reads a length again: bytes that change in between give a wrong checksum, no
 * wrong access.
 *
 * Limited API of CPython 3.11. With SLICING_CORE defined it is plain C, for a driver under sanitizers.
 */
#ifndef SLICING_CORE
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#endif

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#if defined(__GNUC__) && defined(__x86_64__) && defined(__LP64__)
#include <immintrin.h>
#define HAS_X86 1
#endif
#if defined(__GNUC__) && defined(__aarch64__) && defined(__ARM_FEATURE_CRC32)
#include <arm_acle.h>
#define HAS_ARM_CRC 1
#endif

#if defined(__GNUC__)
#define LIKELY(x) __builtin_expect(!!(x), 1)
#define PREFETCH(p, distance) __builtin_prefetch((const void *)((uintptr_t)(p) + (distance)))
#define INLINE static inline __attribute__((always_inline))
#else
#define LIKELY(x) (x)
#define PREFETCH(p, distance) ((void)0)
#define INLINE static inline
#endif

enum { HEADER = 61, LOG_OVERHEAD = 12, CRC_AT = 17, CRC_FROM = 21, RECORD_MIN = 7, HEADER_MIN = 2 };
enum { ATTRIBUTES_AT = 21, DELTA_AT = 23, COUNT_AT = 57, COMPRESSION_MASK = 7 };
enum { EVEN = 0, STRIPES = 1, RANGES = 2 };
enum { DROP = 0, KEEP = 1, BY_OFFSET = 2 };
enum { SLOTS_MAX = 1024, STRIPE_OFFSETS = 64 };

/* ---- numbers ---- */

INLINE uint32_t native32(const uint8_t *p) { uint32_t v; memcpy(&v, p, 4); return v; }
INLINE uint64_t native64(const uint8_t *p) { uint64_t v; memcpy(&v, p, 8); return v; }
INLINE uint32_t big32(const uint8_t *p) {
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}
INLINE uint64_t big64(const uint8_t *p) { return (uint64_t)big32(p) << 32 | big32(p + 4); }
INLINE uint32_t little32(const uint8_t *p) {
    return (uint32_t)p[3] << 24 | (uint32_t)p[2] << 16 | (uint32_t)p[1] << 8 | p[0];
}
INLINE void put_big32(uint8_t *p, uint32_t v) {
    p[0] = (uint8_t)(v >> 24); p[1] = (uint8_t)(v >> 16); p[2] = (uint8_t)(v >> 8); p[3] = (uint8_t)v;
}

/* ---- CRC-32C: three streams at a time where the processor has an instruction, else eight tables ---- */

enum { LONG_RUN = 4096, SHORT_RUN = 256 };
enum { FOLDED = 4096, STREAM = FOLDED / 128 * 40, HYBRID_RUN = FOLDED + 3 * STREAM };
static uint32_t crc_table[8][256], over_long[4][256], over_short[4][256], over_stream[4][256];

static uint32_t crc_by_table(uint32_t crc, const uint8_t *p, size_t size) {
    for (; size >= 8; p += 8, size -= 8) {
        uint32_t low = little32(p) ^ crc, high = little32(p + 4);
        crc = crc_table[7][low & 255] ^ crc_table[6][low >> 8 & 255] ^ crc_table[5][low >> 16 & 255]
            ^ crc_table[4][low >> 24] ^ crc_table[3][high & 255] ^ crc_table[2][high >> 8 & 255]
            ^ crc_table[1][high >> 16 & 255] ^ crc_table[0][high >> 24];
    }
    for (; size; p++, size--) crc = crc_table[0][(crc ^ *p) & 255] ^ crc >> 8;
    return crc;
}

/* What a register becomes when so many zero bytes follow; linear in its 32 bits. */
static void make_shift(uint32_t table[4][256], size_t zeros) {
    static const uint8_t nothing[256];
    uint32_t of_bit[32];
    for (int bit = 0; bit < 32; bit++) {
        of_bit[bit] = (uint32_t)1 << bit;
        for (size_t left = zeros; left; left -= left < 256 ? left : 256)
            of_bit[bit] = crc_by_table(of_bit[bit], nothing, left < 256 ? left : 256);
    }
    for (int byte = 0; byte < 4; byte++)
        for (int value = 0; value < 256; value++) {
            table[byte][value] = 0;
            for (int bit = 0; bit < 8; bit++)
                if (value >> bit & 1) table[byte][value] ^= of_bit[byte * 8 + bit];
        }
}

static void make_tables(void) {
    for (int value = 0; value < 256; value++) {
        uint32_t crc = (uint32_t)value;
        for (int bit = 0; bit < 8; bit++) crc = crc >> 1 ^ (crc & 1 ? 0x82F63B78u : 0);
        crc_table[0][value] = crc;
    }
    for (int row = 1; row < 8; row++)
        for (int value = 0; value < 256; value++)
            crc_table[row][value] = crc_table[row - 1][value] >> 8 ^ crc_table[0][crc_table[row - 1][value] & 255];
    make_shift(over_long, LONG_RUN);
    make_shift(over_short, SHORT_RUN);
    make_shift(over_stream, STREAM);
}

#if defined(HAS_X86) || defined(HAS_ARM_CRC)
#ifdef HAS_X86
#define WITH_CRC __attribute__((target("sse4.2")))
#define CRC8(crc, p) _mm_crc32_u64((crc), native64(p))
#define CRC1(crc, p) _mm_crc32_u8((uint32_t)(crc), *(p))
#else
#define WITH_CRC
#define CRC8(crc, p) __crc32cd((uint32_t)(crc), native64(p))
#define CRC1(crc, p) __crc32cb((uint32_t)(crc), *(p))
#endif

INLINE uint64_t shifted(uint32_t table[4][256], uint64_t crc) {
    return table[0][crc & 255] ^ table[1][crc >> 8 & 255] ^ table[2][crc >> 16 & 255] ^ table[3][crc >> 24 & 255];
}

/* One stream waits three cycles for each instruction; three of them keep it busy. What comes next is asked for early:
 * the processor's own look-ahead does not get used to three places that jump. */
#define THREE_STREAMS(run, table, line)                                                             \
    for (; size >= 3 * (run); p += 3 * (run), size -= 3 * (run)) {                                  \
        uint64_t second = 0, third = 0;                                                             \
        for (const uint8_t *end = p + (run), *at = p; at < end; at += (line)) {                     \
            PREFETCH(at, 3 * (run));                                                                \
            PREFETCH(at, 4 * (run));                                                                \
            PREFETCH(at, 5 * (run));                                                                \
            for (int i = 0; i < (line); i += 8) {                                                   \
                crc = CRC8(crc, at + i);                                                            \
                second = CRC8(second, at + i + (run));                                              \
                third = CRC8(third, at + i + 2 * (run));                                            \
            }                                                                                       \
        }                                                                                           \
        crc = shifted(table, shifted(table, crc) ^ second) ^ third;                                 \
    }

WITH_CRC static uint32_t crc_by_instruction(uint32_t start, const uint8_t *p, size_t size) {
    uint64_t crc = start;
    THREE_STREAMS(LONG_RUN, over_long, 64)
    THREE_STREAMS(SHORT_RUN, over_short, 64)
    for (; size >= 8; p += 8, size -= 8) crc = CRC8(crc, p);
    for (; size; p++, size--) crc = CRC1(crc, p);
    return (uint32_t)crc;
}
#endif

#ifdef HAS_X86
/* Half of a run by multiplication without carry, half by the instruction: they are different units of the processor. A
 * multiplication folds 128 bytes onto the 128 that follow (x^1056 and x^992 modulo the polynomial, reflected). */
#define FOLD(x, from)                                                                               \
    x = _mm256_xor_si256(_mm256_xor_si256(_mm256_clmulepi64_epi128(x, by, 0x00), _mm256_clmulepi64_epi128(x, by, 0x11)), \
                         _mm256_loadu_si256((const __m256i *)(from)))

__attribute__((target("avx2,vpclmulqdq,pclmul,sse4.2"), noinline)) static uint32_t crc_of_run(uint32_t start, const uint8_t *p) {
    const __m256i by = _mm256_set_epi64x(0x0D3B6092, 0x6992CEA2, 0x0D3B6092, 0x6992CEA2);
    const uint8_t *first_at = p + FOLDED, *const end = p + FOLDED;
    uint64_t first = 0, second = 0, third = 0;
    uint8_t last[128];
    __m256i a = _mm256_xor_si256(_mm256_loadu_si256((const __m256i *)p), _mm256_setr_epi32((int)start, 0, 0, 0, 0, 0, 0, 0));
    __m256i b = _mm256_loadu_si256((const __m256i *)(p + 32)), c = _mm256_loadu_si256((const __m256i *)(p + 64));
    __m256i d = _mm256_loadu_si256((const __m256i *)(p + 96));
    for (p += 128;; p += 128) {
        PREFETCH(p, HYBRID_RUN);
        PREFETCH(p, HYBRID_RUN + 64);
        PREFETCH(first_at, HYBRID_RUN);
        PREFETCH(first_at, HYBRID_RUN + STREAM);
        PREFETCH(first_at, HYBRID_RUN + 2 * STREAM);
        for (int i = 0; i < 40; i += 8) {
            first = CRC8(first, first_at + i);
            second = CRC8(second, first_at + i + STREAM);
            third = CRC8(third, first_at + i + 2 * STREAM);
        }
        first_at += 40;
        if (p == end) break;
        FOLD(a, p);
        FOLD(b, p + 32);
        FOLD(c, p + 64);
        FOLD(d, p + 96);
    }
    _mm256_storeu_si256((__m256i *)last, a);
    _mm256_storeu_si256((__m256i *)(last + 32), b);
    _mm256_storeu_si256((__m256i *)(last + 64), c);
    _mm256_storeu_si256((__m256i *)(last + 96), d);
    uint64_t crc = 0;
    for (int i = 0; i < 128; i += 8) crc = CRC8(crc, last + i);
    crc = shifted(over_stream, crc) ^ first;
    crc = shifted(over_stream, crc) ^ second;
    return (uint32_t)(shifted(over_stream, crc) ^ third);
}

static uint32_t crc_by_both(uint32_t crc, const uint8_t *p, size_t size) {
    for (; size >= HYBRID_RUN; p += HYBRID_RUN, size -= HYBRID_RUN) crc = crc_of_run(crc, p);
    return crc_by_instruction(crc, p, size);
}
#endif

static uint32_t (*crc_of)(uint32_t, const uint8_t *, size_t) = crc_by_table;

static int by_eights; /* whether the processor hashes eight keys at a time */

static void look_around(void) {
    make_tables();
#if defined(HAS_X86)
    __builtin_cpu_init();
    if (__builtin_cpu_supports("sse4.2")) crc_of = crc_by_instruction;
    by_eights = __builtin_cpu_supports("avx2");
    if (by_eights && crc_of == crc_by_instruction && __builtin_cpu_supports("vpclmulqdq")) crc_of = crc_by_both;
#elif defined(HAS_ARM_CRC)
    crc_of = crc_by_instruction;
#endif
}

static uint32_t crc32c(uint32_t before, const uint8_t *p, size_t size) { return ~crc_of(~before, p, size); }

/* ---- keys ---- */

INLINE uint32_t murmur2(const uint8_t *p, size_t size) {
    const uint32_t m = 0x5BD1E995u;
    uint32_t hash = 0x9747B28Cu ^ (uint32_t)size;
    for (; size >= 16; p += 16, size -= 16) { /* words do not wait for each other, only their sum does */
        uint32_t a = little32(p) * m, b = little32(p + 4) * m, c = little32(p + 8) * m, d = little32(p + 12) * m;
        a = (a ^ a >> 24) * m;
        b = (b ^ b >> 24) * m;
        c = (c ^ c >> 24) * m;
        d = (d ^ d >> 24) * m;
        hash = (((hash * m ^ a) * m ^ b) * m ^ c) * m ^ d;
    }
    for (; size >= 4; p += 4, size -= 4) {
        uint32_t word = little32(p) * m;
        hash = hash * m ^ (word ^ word >> 24) * m;
    }
    if (size) {
        uint32_t rest = p[0];
        if (size > 1) rest |= (uint32_t)p[1] << 8;
        if (size > 2) rest |= (uint32_t)p[2] << 16;
        hash = (hash ^ rest) * m;
    }
    hash = (hash ^ hash >> 13) * m;
    return hash ^ hash >> 15;
}

typedef struct {
    int rule, null_keys;
    uint32_t slots;
    const uint8_t *starts, *targets; /* arrays of uint32, native order, of no alignment */
    size_t ranges;
    const uint8_t *key_index, *key_bytes;
    size_t keys, key_bytes_size;
} Cut;

/* NULL, or what is wrong with a cut. */
static const char *check_cut(const Cut *cut) {
    if (cut->slots < 1 || cut->slots > SLOTS_MAX) return "slots of a cut";
    if (cut->rule != EVEN && cut->rule != STRIPES && cut->rule != RANGES) return "rule of a cut";
    if (cut->rule == RANGES && (cut->ranges == 0 || native32(cut->starts) != 0)) return "ranges of a cut";
    for (size_t i = 0; i < cut->ranges; i++) {
        int32_t target = (int32_t)native32(cut->targets + 4 * i);
        if (target < -1 || target >= (int64_t)cut->slots) return "targets of a cut";
    }
    for (size_t i = 0; i < cut->keys; i++) {
        const uint8_t *entry = cut->key_index + 12 * i;
        if ((uint64_t)native32(entry + 4) + native32(entry + 8) > cut->key_bytes_size) return "keys of a cut";
    }
    return NULL;
}

static int is_single_key(const Cut *cut, uint32_t hash, const uint8_t *key, size_t size) {
    size_t low = 0, high = cut->keys;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (native32(cut->key_index + 12 * middle) < hash) low = middle + 1; else high = middle;
    }
    for (; low < cut->keys && native32(cut->key_index + 12 * low) == hash; low++) {
        const uint8_t *entry = cut->key_index + 12 * low;
        if (native32(entry + 8) == size && memcmp(cut->key_bytes + native32(entry + 4), key, size) == 0) return 1;
    }
    return 0;
}

INLINE uint32_t target_of(const Cut *cut, uint32_t hash) {
    const uint8_t *from = cut->starts;
    for (size_t left = cut->ranges; left > 1;) {
        size_t half = left / 2;
        from = native32(from + 4 * half) <= hash ? from + 4 * half : from;
        left -= half;
    }
    return native32(cut->targets + (from - cut->starts));
}

/* Slot of a record by a cut of ranges; cut->slots where no slot has it. key NULL: it has none. */
INLINE uint32_t slot_in_ranges(const Cut *cut, const uint8_t *key, uint32_t size, uint32_t hash) {
    if (!key && cut->null_keys != BY_OFFSET) return cut->null_keys == KEEP ? 0 : cut->slots;
    if (key && cut->keys && is_single_key(cut, hash, key, size)) return 0;
    uint32_t slot = target_of(cut, hash);
    return slot < cut->slots ? slot : cut->slots;
}

/* ---- records ---- */

typedef struct { uint32_t start, size, part; } Note; /* one kept record, and whose it is */

typedef struct {
    uint64_t size; /* of its records */
    int64_t last;  /* offset of the last one, -1: none */
    uint32_t count;
    uint32_t crc;
    uint8_t *out, *cursor, *summed; /* where it begins, has got to, and is in `crc` up to */
} Part;

typedef struct {
    const uint8_t *batch, *body;
    size_t batch_size, body_size;
    const Cut *cut;
    const uint32_t *part_of; /* slot -> part; parts: nobody asked for it. cut->slots + 1 entries */
    uint32_t parts;
    int64_t from_offset;
    int64_t base_offset;
    int32_t delta_max;
    uint32_t count; /* records, as the header says */
    Part *part;     /* parts + 1: the last gathers what nobody wants */
    Note *notes;    /* count */
    uint32_t kept;
    int is_open;    /* the records stand in the batch as they are */
    uint32_t crc;   /* of the bytes CRC_FROM .. read */
    size_t read;
} Job;

enum { AHEAD = 128 << 10 }; /* less, and the checksum stumbles at every new start; more, and the cache has lost it */

/* Takes the checksum so far that it is ahead of `p`; NULL: of everything. */
static void read_ahead(Job *job, const uint8_t *p) {
    if (!job->is_open) return;
    size_t left = job->batch_size - job->read, now = left;
    if (p) {
        size_t to = (size_t)(p - job->batch) + AHEAD / 2;
        if (to <= job->read) return;
        now = AHEAD < left ? AHEAD : left;
    }
    job->crc = crc32c(job->crc, job->batch + job->read, now);
    job->read += now;
}

/* A signed varint of at most 64 bits; NULL where `end` or its own length is passed. */
static const uint8_t *long_varint(const uint8_t *p, const uint8_t *end, int64_t *value) {
    uint64_t zigzag = 0;
    for (int shift = 0; shift < 70 && p < end; shift += 7) {
        uint64_t byte = *p++;
        if (shift == 63 && (byte & 0x7E)) return NULL;
        zigzag |= (byte & 0x7F) << shift;
        if (byte < 0x80) {
            *value = (int64_t)(zigzag >> 1 ^ (0 - (zigzag & 1)));
            return p;
        }
    }
    return NULL;
}

INLINE const uint8_t *varint(const uint8_t *p, const uint8_t *end, int64_t *value) {
    if (LIKELY(end - p >= 2)) {
        uint32_t first = p[0], second = p[1];
        if (LIKELY(first < 0x80)) {
            *value = (int32_t)(first >> 1) ^ -(int32_t)(first & 1);
            return p + 1;
        }
        if (LIKELY(second < 0x80)) {
            first = (first & 0x7F) | second << 7;
            *value = (int32_t)(first >> 1) ^ -(int32_t)(first & 1);
            return p + 2;
        }
    }
    return long_varint(p, end, value);
}

/* Behind a varint whose value does not matter. Timestamps vary in length from record to record: no branch on it. */
INLINE const uint8_t *skip_varint(const uint8_t *p, const uint8_t *end) {
    int64_t ignored;
#if defined(__GNUC__) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    if (LIKELY(end - p >= 8)) {
        uint64_t stops = ~native64(p) & 0x8080808080808080u;
        if (LIKELY(stops)) return p + (__builtin_ctzll(stops) >> 3) + 1;
    }
#endif
    return long_varint(p, end, &ignored);
}

INLINE const uint8_t *sized(const uint8_t *p, const uint8_t *end, int64_t *size) {
    p = varint(p, end, size);
    if (!p || *size < -1 || *size > end - p) return NULL;
    return p;
}

static int has_headers(const uint8_t *p, const uint8_t *end, int64_t count) {
    int64_t size;
    if (count < 0 || count > (end - p) / HEADER_MIN) return 0;
    for (; count; count--) {
        if (!(p = sized(p, end, &size)) || size < 0) return 0;
        if (!(p = sized(p + size, end, &size))) return 0;
        p += size < 0 ? 0 : size;
    }
    return p == end;
}

/* A few records on their way: the processor gets more done when each loop does one thing. */
enum { STEP = 64 };
typedef struct {
    const uint8_t *key[STEP]; /* NULL: none */
    uint32_t key_size[STEP], start[STEP], size[STEP], hash[STEP], slot[STEP];
    int64_t offset[STEP]; /* first its delta */
} Step;

/* Notes key and offset delta of the record at p as number i. Behind it; NULL: something does not fit. */
static const uint8_t *any_record(Step *step, uint32_t i, const uint8_t *p, const uint8_t *body_end, int64_t delta_max) {
    int64_t size, delta;
    if (!(p = varint(p, body_end, &size)) || size < 1 || size > body_end - p) return NULL;
    const uint8_t *end = p + size;
    if (!(p = skip_varint(p + 1, end)) || !(p = varint(p, end, &delta))) return NULL;
    if (delta < 0 || delta > delta_max || !(p = sized(p, end, &size))) return NULL;
    step->offset[i] = delta;
    step->key[i] = size < 0 ? NULL : p;
    step->key_size[i] = size < 0 ? 0 : (uint32_t)size;
    p += step->key_size[i];
    if (!(p = sized(p, end, &size))) return NULL;
    p += size < 0 ? 0 : size;
    if (!(p = varint(p, end, &size)) || !has_headers(p, end, size)) return NULL;
    return end;
}

/* The same for a record as most are: lengths of one or two bytes, no headers. NULL: it is another, good or bad. At least
 * USUAL_ROOM bytes can be read from p on; nothing is read behind `end` that was not compared with it. */
enum { USUAL_ROOM = 16 };
#if defined(__GNUC__) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
INLINE const uint8_t *usual_record(Step *step, uint32_t i, const uint8_t *p, const uint8_t *body_end, int64_t delta_max) {
    uint32_t number = *p++;
    if (number >= 0x80) number = (number & 0x7F) | (uint32_t)*p++ << 7;
    if ((number & ~0x3FFEu) || number >> 1 > (size_t)(body_end - p)) return NULL;
    const uint8_t *end = p + (number >> 1);
    uint64_t stops = ~native64(p + 1) & 0x8080808080808080u;
    if (!stops) return NULL;
    p += 2 + (__builtin_ctzll(stops) >> 3);
    number = *p++;
    if (number >= 0x80) number = (number & 0x7F) | (uint32_t)*p++ << 7;
    if ((number & ~0x3FFEu) || number >> 1 > delta_max) return NULL;
    step->offset[i] = number >> 1;
    number = *p++;
    if (number > 0x7E || (number & 1)) return NULL;
    step->key[i] = p;
    step->key_size[i] = number >> 1;
    if (end - p < (ptrdiff_t)(number >> 1) + 2) return NULL;
    p += number >> 1;
    number = *p++;
    if (number >= 0x80) number = (number & 0x7F) | (uint32_t)*p++ << 7;
    if ((number & ~0x3FFEu) || end - p != (ptrdiff_t)(number >> 1) + 1 || end[-1] != 0) return NULL;
    return end;
}
#else
INLINE const uint8_t *usual_record(Step *step, uint32_t i, const uint8_t *p, const uint8_t *body_end, int64_t delta_max) {
    (void)step, (void)i, (void)p, (void)body_end, (void)delta_max;
    return NULL;
}
#endif

/* Where `count` records from p on lie, what keys and offsets they have. Behind them; NULL: something does not fit. */
INLINE const uint8_t *walk(const Job *job, Step *step, const uint8_t *p, uint32_t count) {
    const uint8_t *const body = job->body, *const body_end = body + job->body_size;
    const int64_t delta_max = job->delta_max;
    for (uint32_t i = 0; i < count; i++) {
        const uint8_t *end = body_end - p >= USUAL_ROOM ? usual_record(step, i, p, body_end, delta_max) : NULL;
        if (!LIKELY(end) && !(end = any_record(step, i, p, body_end, delta_max))) return NULL;
        step->start[i] = (uint32_t)(p - body);
        step->size[i] = (uint32_t)(end - p);
        PREFETCH(end, 3 * (end - p)); /* a later one begins about here */
        p = end;
    }
    return p;
}

/* A record without a key lies where the 8 bytes of its offset do. */
static uint32_t hash_of_offset(int64_t offset) {
    uint8_t number[8];
    put_big32(number, (uint32_t)((uint64_t)offset >> 32));
    put_big32(number + 4, (uint32_t)offset);
    return murmur2(number, 8);
}

static void hash_one_by_one(Step *step, uint32_t from, uint32_t to) {
    for (uint32_t i = from; i < to; i++)
        step->hash[i] = LIKELY(step->key[i] != NULL) ? murmur2(step->key[i], step->key_size[i]) : hash_of_offset(step->offset[i]);
}

#ifdef HAS_X86
/* Eight keys of one length at a time, where eight neighbours have it. */
__attribute__((target("avx2"))) static void hash_by_eights(Step *step, uint32_t count) {
    const __m256i m = _mm256_set1_epi32(0x5BD1E995);
    uint32_t i = 0;
    for (; i + 8 <= count; i += 8) {
        const uint8_t *const *key = step->key + i;
        const uint32_t size = step->key_size[i];
        const __m256i sizes = _mm256_loadu_si256((const __m256i *)(step->key_size + i));
        const __m256i other = _mm256_xor_si256(sizes, _mm256_set1_epi32((int)size));
        const __m256i missing = _mm256_cmpeq_epi64(_mm256_loadu_si256((const __m256i *)key), _mm256_setzero_si256());
        const __m256i more = _mm256_cmpeq_epi64(_mm256_loadu_si256((const __m256i *)(key + 4)), _mm256_setzero_si256());
        const __m256i odd = _mm256_or_si256(other, _mm256_or_si256(missing, more));
        if (!_mm256_testz_si256(odd, odd) || size % 4) {
            hash_one_by_one(step, i, i + 8);
            continue;
        }
        __m256i hash = _mm256_set1_epi32((int)(0x9747B28Cu ^ size));
        for (uint32_t at = 0; at < size; at += 4) {
            __m256i word = _mm256_setr_epi32(
                (int)native32(key[0] + at), (int)native32(key[1] + at), (int)native32(key[2] + at), (int)native32(key[3] + at),
                (int)native32(key[4] + at), (int)native32(key[5] + at), (int)native32(key[6] + at), (int)native32(key[7] + at));
            word = _mm256_mullo_epi32(word, m);
            word = _mm256_mullo_epi32(_mm256_xor_si256(word, _mm256_srli_epi32(word, 24)), m);
            hash = _mm256_xor_si256(_mm256_mullo_epi32(hash, m), word);
        }
        hash = _mm256_mullo_epi32(_mm256_xor_si256(hash, _mm256_srli_epi32(hash, 13)), m);
        hash = _mm256_xor_si256(hash, _mm256_srli_epi32(hash, 15));
        _mm256_storeu_si256((__m256i *)(step->hash + i), hash);
    }
    hash_one_by_one(step, i, count);
}
#endif

/* Which slot has each record. */
INLINE void place(const Job *job, int rule, Step *step, uint32_t count) {
    const Cut *const cut = job->cut;
    const uint64_t slots = cut->slots;
    for (uint32_t i = 0; i < count; i++) step->offset[i] += job->base_offset;
    if (rule == STRIPES) {
        for (uint32_t i = 0; i < count; i++)
            step->slot[i] = (uint32_t)((uint64_t)step->offset[i] / STRIPE_OFFSETS % slots);
        return;
    }
#ifdef HAS_X86
    if (by_eights) hash_by_eights(step, count); else hash_one_by_one(step, 0, count);
#else
    hash_one_by_one(step, 0, count);
#endif
    for (uint32_t i = 0; i < count; i++)
        step->slot[i] = rule == EVEN ? (uint32_t)(step->hash[i] * slots >> 32)
            : slot_in_ranges(cut, step->key[i], step->key_size[i], step->hash[i]);
}

/* Notes what is kept, and adds it to its part. */
INLINE void note(Job *job, const Step *step, uint32_t count) {
    const uint32_t none = job->parts, *const part_of = job->part_of;
    const int64_t from_offset = job->from_offset;
    Part *const parts = job->part;
    Note *to = job->notes + job->kept;
    for (uint32_t i = 0; i < count; i++) {
        const int64_t offset = step->offset[i];
        const uint32_t size = step->size[i];
        uint32_t mine = part_of[step->slot[i]];
        mine = offset >= from_offset ? mine : none;
        to->start = step->start[i];
        to->size = size;
        to->part = mine;
        to += mine != none;
        Part *part = parts + mine;
        part->size += size;
        part->count++;
        part->last = offset > part->last ? offset : part->last;
    }
    job->kept = (uint32_t)(to - job->notes);
}

/* All records; 0: something does not fit. The checksum runs a little ahead, so that the walk finds them in the cache. */
INLINE int walk_all(Job *job, int rule) {
    const uint8_t *p = job->body, *body_end = p + job->body_size;
    Step step;
    for (uint32_t left = job->count, now; left; left -= now) {
        now = left < STEP ? left : STEP;
        read_ahead(job, p);
        if (!(p = walk(job, &step, p, now))) return 0;
        place(job, rule, &step, now);
        note(job, &step, now);
    }
    return p == body_end;
}

/* NULL, or what is wrong with the header of a batch; fills in what it says. */
static const char *read_header(Job *job) {
    const uint8_t *batch = job->batch;
    if (job->batch_size < HEADER) return "a record batch shorter than its header";
    if (batch[16] != 2) return "a record batch of another magic";
    if ((int64_t)(int32_t)big32(batch + 8) + LOG_OVERHEAD != (int64_t)job->batch_size) return "a record batch of another size";
    int64_t base = (int64_t)big64(batch);
    int32_t delta = (int32_t)big32(batch + DELTA_AT), count = (int32_t)big32(batch + COUNT_AT);
    if (base < 0 || delta < 0 || count < 0 || base > INT64_MAX - delta) return "offsets or count of a record batch";
    if (!job->body) {
        job->body = batch + HEADER;
        job->body_size = job->batch_size - HEADER;
        job->is_open = 1;
        job->read = CRC_FROM;
    }
    if (job->body_size > UINT32_MAX) return "a record batch too large";
    if ((uint64_t)count * RECORD_MIN > job->body_size) return "more records than fit into their bytes";
    job->base_offset = base;
    job->delta_max = delta;
    job->count = (uint32_t)count;
    return NULL;
}

/* NULL, or what is wrong with the batch. `notes` must have room for `count` records. Opened records (`body` is not of
 * the batch) were checked before they were opened. */
static const char *scan(Job *job) {
    int done;
    switch (job->cut->rule) { /* a loop of its own for each */
    case EVEN: done = walk_all(job, EVEN); break;
    case STRIPES: done = walk_all(job, STRIPES); break;
    default: done = walk_all(job, RANGES);
    }
    read_ahead(job, NULL);
    if (job->is_open && job->crc != big32(job->batch + CRC_AT)) return "the checksum of a record batch is wrong";
    return done ? NULL : "a record that does not fit into its batch";
}

/* Copies one record; up to 31 bytes behind it are written too where `spare` says there is room on both sides. */
INLINE void copy(uint8_t *to, const uint8_t *from, size_t size, int spare) {
    if (LIKELY(spare && size <= 512)) {
        size_t done = 0;
        do {
            memcpy(to + done, from + done, 32);
            done += 32;
        } while (done < size);
    } else {
        memcpy(to, from, size);
    }
}

enum { SUM_STEP = 2 * HYBRID_RUN, PREFETCH_MAX = 2048 };

/* Takes the checksum of a part as far as it is written: while it is in the cache. */
static void sum_up(Part *part) {
    part->crc = crc32c(part->crc, part->summed, (size_t)(part->cursor - part->summed));
    part->summed = part->cursor;
}

/* Writes every part, each at its `out` of HEADER + size bytes. Where one part has all records, there is nothing to do. */
static void fill(Job *job) {
    const uint8_t *body_end = job->body + job->body_size;
    if (!job->kept || !job->part[job->notes[0].part].out) return;
    for (uint32_t i = 0; i < job->parts; i++) {
        Part *part = &job->part[i];
        if (!part->out) continue;
        memcpy(part->out, job->batch, HEADER);
        put_big32(part->out + 8, (uint32_t)(HEADER - LOG_OVERHEAD + part->size));
        part->out[ATTRIBUTES_AT + 1] &= (uint8_t)~COMPRESSION_MASK;
        put_big32(part->out + COUNT_AT, part->count);
        part->cursor = part->out + HEADER;
        part->summed = part->out + CRC_FROM;
        part->crc = 0;
    }
    for (uint32_t i = 0; i < job->kept; i++) {
        const Note note = job->notes[i], next = job->notes[i + 2 < job->kept ? i + 2 : i];
        for (uint32_t line = 0; line < next.size && line < PREFETCH_MAX; line += 64) PREFETCH(job->body + next.start, line);
        Part *part = &job->part[note.part];
        const uint8_t *from = job->body + note.start;
        uint8_t *to = part->cursor, *part_end = part->out + HEADER + part->size;
        copy(to, from, note.size, part_end - to >= (ptrdiff_t)note.size + 32 && body_end - from >= (ptrdiff_t)note.size + 32);
        part->cursor = to + note.size;
        if (part->cursor - part->summed >= SUM_STEP) sum_up(part);
    }
    for (uint32_t i = 0; i < job->parts; i++) {
        Part *part = &job->part[i];
        if (!part->out) continue;
        sum_up(part);
        put_big32(part->out + CRC_AT, part->crc);
    }
}

/* ---- Python ---- */
#ifndef SLICING_CORE

enum { VERSION = 1, RELEASE_FROM = 32 << 10, SPARE_MAX = 1 << 20 };

/* Room for notes, kept from call to call; taken and given back under the GIL. */
static void *spare;
static size_t spare_size;

static void *take_spare(size_t size, size_t *got) {
    void *room = spare;
    if (room && spare_size >= size) {
        *got = spare_size;
        spare = NULL;
        return room;
    }
    *got = size < 4096 ? 4096 : size;
    return malloc(*got);
}

static void give_spare(void *room, size_t size) {
    if (size > SPARE_MAX || (spare && spare_size >= size)) {
        free(room);
        return;
    }
    free(spare);
    spare = room;
    spare_size = size;
}

static PyObject *part_result(const Part *part, PyObject *content) { /* steals content */
    PyObject *result = content ? PyTuple_New(3) : NULL;
    if (!result) {
        Py_XDECREF(content);
        return NULL;
    }
    PyObject *last = PyLong_FromLongLong(part->last), *count = PyLong_FromUnsignedLong(part->count);
    if (!last || !count) {
        Py_XDECREF(last);
        Py_XDECREF(count);
        Py_DECREF(content);
        Py_DECREF(result);
        return NULL;
    }
    PyTuple_SetItem(result, 0, content);
    PyTuple_SetItem(result, 1, last);
    PyTuple_SetItem(result, 2, count);
    return result;
}

/* A list with the results of all parts; where records have to be copied, `out` points into a new bytes object. */
static PyObject *allocate(Job *job, PyObject *source) {
    PyObject *results = PyList_New(job->parts), *empty = NULL;
    if (!results) return NULL;
    for (uint32_t i = 0; i < job->parts; i++) {
        Part *part = &job->part[i];
        PyObject *result;
        if (part->count == 0 && empty) {
            result = Py_NewRef(empty);
        } else if (part->count == 0) {
            result = empty = part_result(part, Py_NewRef(Py_None));
        } else if (part->count == job->count) {
            result = part_result(part, Py_NewRef(source));
        } else {
            PyObject *content = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)(HEADER + part->size));
            part->out = content ? (uint8_t *)PyBytes_AsString(content) : NULL;
            result = part_result(part, content);
        }
        if (!result) {
            Py_DECREF(results);
            return NULL;
        }
        PyList_SetItem(results, i, result);
    }
    return results;
}

static PyObject *run(Job *job, PyObject *source) {
    size_t parts_size = (job->parts + 1) * sizeof(Part), room_size;
    const char *wrong = read_header(job);
    if (wrong) return PyErr_Format(PyExc_ValueError, "%s", wrong);
    uint8_t *room = take_spare(parts_size + ((size_t)job->count + 1) * sizeof(Note), &room_size);
    if (!room) return PyErr_NoMemory();
    job->part = (Part *)room;
    job->notes = (Note *)(room + parts_size);
    memset(job->part, 0, parts_size);
    for (uint32_t i = 0; i <= job->parts; i++) job->part[i].last = -1;

    PyThreadState *state = NULL;
    int release = job->batch_size + job->body_size >= RELEASE_FROM; /* below, waiting for the GIL costs more */
    if (release) state = PyEval_SaveThread();
    wrong = scan(job);
    if (release) PyEval_RestoreThread(state);

    PyObject *results = wrong ? PyErr_Format(PyExc_ValueError, "%s", wrong) : allocate(job, source);
    if (results) {
        if (release) state = PyEval_SaveThread();
        fill(job);
        if (release) PyEval_RestoreThread(state);
    }
    give_spare(room, room_size);
    return results;
}

static PyObject *wanted_parts(Job *job, const Py_buffer *wanted, PyObject *source) {
    uint32_t part_of[SLOTS_MAX + 1];
    uint32_t slots = job->cut->slots, parts = (uint32_t)(wanted->len / 4);
    if (wanted->len / 4 > slots) return PyErr_Format(PyExc_ValueError, "a slot is wanted twice");
    for (uint32_t slot = 0; slot <= slots; slot++) part_of[slot] = parts;
    for (uint32_t i = 0; i < parts; i++) {
        uint32_t slot = native32((const uint8_t *)wanted->buf + 4 * i);
        if (slot >= slots || part_of[slot] != parts) return PyErr_Format(PyExc_ValueError, "no such slot, or wanted twice");
        part_of[slot] = i;
    }
    job->parts = parts;
    job->part_of = part_of;
    return run(job, source);
}

enum { BATCH, BODY, STARTS, TARGETS, KEY_INDEX, KEY_BYTES, WANTED, BUFFERS };

static PyObject *split_buffers(PyObject *const *args, Py_buffer *of, int has_body) {
    Cut cut = {.rule = (int)PyLong_AsLong(args[2]), .slots = (uint32_t)PyLong_AsUnsignedLong(args[3])};
    cut.null_keys = (int)PyLong_AsLong(args[6]);
    cut.starts = of[STARTS].buf;
    cut.targets = of[TARGETS].buf;
    cut.ranges = (size_t)of[STARTS].len / 4;
    cut.key_index = of[KEY_INDEX].buf;
    cut.keys = (size_t)of[KEY_INDEX].len / 12;
    cut.key_bytes = of[KEY_BYTES].buf;
    cut.key_bytes_size = (size_t)of[KEY_BYTES].len;
    int64_t from_offset = PyLong_AsLongLong(args[10]);
    if (PyErr_Occurred()) return NULL;
    const char *wrong = of[TARGETS].len != of[STARTS].len ? "ranges without targets" : check_cut(&cut);
    if (wrong) return PyErr_Format(PyExc_ValueError, "%s", wrong);
    Job job = {.batch = of[BATCH].buf, .batch_size = (size_t)of[BATCH].len, .cut = &cut, .from_offset = from_offset};
    if (has_body) {
        job.body = of[BODY].buf;
        job.body_size = (size_t)of[BODY].len;
    }
    return wanted_parts(&job, &of[WANTED], args[0]);
}

PyDoc_STRVAR(split_doc, "split(batch, body, rule, slots, starts, targets, null_keys, key_index, key_bytes, wanted, "
                        "from_offset) -> list of (batch, last_kept, records); raises ValueError");

static PyObject *split(PyObject *module, PyObject *const *args, Py_ssize_t count) {
    (void)module;
    static const int argument_of[BUFFERS] = {0, 1, 4, 5, 7, 8, 9};
    Py_buffer of[BUFFERS];
    int taken = 0;
    PyObject *result = NULL;
    if (count != 11) return PyErr_Format(PyExc_TypeError, "split takes 11 arguments, not %zd", count);
    int has_body = !Py_IsNone(args[1]);
    for (; taken < BUFFERS; taken++) {
        PyObject *exporter = args[argument_of[taken]];
        if (taken == BODY && !has_body) exporter = args[0];
        if (PyObject_GetBuffer(exporter, &of[taken], PyBUF_SIMPLE) < 0) goto done;
    }
    result = split_buffers(args, of, has_body);
done:
    while (taken > 0) PyBuffer_Release(&of[--taken]);
    return result;
}

PyDoc_STRVAR(crc32c_doc, "crc32c(data) -> int");

static PyObject *crc32c_of(PyObject *module, PyObject *data) {
    (void)module;
    Py_buffer of;
    PyThreadState *state = NULL;
    if (PyObject_GetBuffer(data, &of, PyBUF_SIMPLE) < 0) return NULL;
    if (of.len >= RELEASE_FROM) state = PyEval_SaveThread();
    uint32_t crc = crc32c(0, of.buf, (size_t)of.len);
    if (state) PyEval_RestoreThread(state);
    PyBuffer_Release(&of);
    return PyLong_FromUnsignedLong(crc);
}

PyDoc_STRVAR(murmur2_doc, "murmur2(key) -> int");

static PyObject *murmur2_of(PyObject *module, PyObject *data) {
    (void)module;
    Py_buffer of;
    if (PyObject_GetBuffer(data, &of, PyBUF_SIMPLE) < 0) return NULL;
    uint32_t hash = murmur2(of.buf, (size_t)of.len);
    PyBuffer_Release(&of);
    return PyLong_FromUnsignedLong(hash);
}

static int prepare(PyObject *module) {
    look_around();
    return PyModule_AddIntConstant(module, "VERSION", VERSION) < 0
        || PyModule_AddStringConstant(module, "CHECKSUM", crc_of == crc_by_table ? "table" : "hardware") < 0 ? -1 : 0;
}

static PyMethodDef functions[] = {
    {"split", (PyCFunction)(void (*)(void))split, METH_FASTCALL, split_doc},
    {"crc32c", crc32c_of, METH_O, crc32c_doc},
    {"murmur2", murmur2_of, METH_O, murmur2_doc},
    {NULL, NULL, 0, NULL},
};

static PyModuleDef_Slot slots[] = {{Py_mod_exec, (void *)prepare}, {0, NULL}};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "proxy.views._slicing",
    .m_doc = "The filter kernel of views.",
    .m_methods = functions,
    .m_slots = slots,
};

PyMODINIT_FUNC PyInit__slicing(void) { return PyModuleDef_Init(&definition); }
#endif
