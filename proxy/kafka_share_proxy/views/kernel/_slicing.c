/* The filter kernel: split one record batch of magic 2 into the slots of a view.
 *
 * The rules are those of slicing_in_python.py, byte for byte; tests and a fuzzer compare the two. For any bytes, no read
 * leaves them: every length is compared with the remaining bytes before it is used.
 *
 * Two passes over memory: `scan` walks the records, and notes position and part of each kept record; then the parts are
 * allocated, each with its exact size; `fill` reads everything once, verifies the checksum, copies the kept records, and
 * writes the headers. The batch is known to be valid only then, and no part is returned before. Which records are kept is
 * random, and no branch predictor can guess it: neither loop branches on it. The second pass trusts the notes of the first
 * and never reads a length again: if the bytes change in between, records or checksum are wrong, but no access is out of
 * bounds.
 *
 * Limited API of CPython 3.11. With SLICING_CORE defined it is plain C, for a driver under sanitizers.
 */
#ifndef SLICING_CORE
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#endif

#include "../../wire/records/checksum.h"
#include "../../wire/records/murmur2.h"

enum { HEADER = 61, LOG_OVERHEAD = 12, CRC_AT = 17, CRC_FROM = 21, RECORD_MIN = 7 };
enum { ATTRIBUTES_AT = 21, DELTA_AT = 23, COUNT_AT = 57, COMPRESSION_MASK = 7 };
enum { EVEN = 0, STRIPES = 1, RANGES = 2 };
enum { DROP = 0, KEEP = 1, BY_OFFSET = 2 };
enum { SLOTS_MAX = 1024, STRIPE_OFFSETS = 64 };

/* ---- numbers ---- */

INLINE void put_big32(uint8_t *p, uint32_t v) {
    p[0] = (uint8_t)(v >> 24); p[1] = (uint8_t)(v >> 16); p[2] = (uint8_t)(v >> 8); p[3] = (uint8_t)v;
}

/* ---- keys ---- */

typedef struct {
    int rule, null_keys;
    uint32_t slots;
    const uint8_t *starts, *targets; /* arrays of uint32, native order, of no alignment */
    size_t ranges;
    const uint8_t *key_index, *key_bytes;
    size_t keys, key_bytes_size;
} Cut;

/* Return NULL, or what is wrong with a cut. */
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
    for (size_t count = cut->ranges; count > 1;) {
        size_t half = count / 2;
        from = native32(from + 4 * half) <= hash ? from + 4 * half : from;
        count -= half;
    }
    return native32(cut->targets + (from - cut->starts));
}

/* Return the slot of a record by a cut of ranges; cut->slots: in no slot. key NULL: the record has no key. */
INLINE uint32_t slot_in_ranges(const Cut *cut, const uint8_t *key, uint32_t size, uint32_t hash) {
    if (!key && cut->null_keys != BY_OFFSET) return cut->null_keys == KEEP ? 0 : cut->slots;
    if (key && cut->keys && is_single_key(cut, hash, key, size)) return 0;
    uint32_t slot = target_of(cut, hash);
    return slot < cut->slots ? slot : cut->slots;
}

/* ---- records ---- */

typedef struct { uint32_t start, size; } Extent;
typedef struct { Extent record; uint32_t part; } Note; /* one kept record, and its part */

typedef struct {
    uint64_t tally; /* during `scan`: its records times 2^32, plus their bytes */
    int64_t last;   /* offset of the last record, -1: none; during `scan` relative to the base offset */
    uint64_t size;  /* bytes of its records */
    uint32_t count;
    uint32_t crc;
    uint8_t *out, *cursor, *summed, *end; /* begin, write position, position up to which `crc` is computed, end */
} Part;

typedef struct {
    const uint8_t *batch, *body;
    size_t batch_size, body_size;
    const Cut *cut;
    const uint32_t *part_of; /* slot -> part; parts: not requested. cut->slots + 1 entries */
    uint32_t parts;
    int64_t from_offset;
    uint32_t from_delta; /* the same, relative to the base offset */
    int64_t base_offset;
    int32_t delta_max;
    uint32_t count; /* records, as the header says */
    Part *part;     /* parts + 1: the last one counts dropped records */
    Note *notes;    /* count */
    uint32_t kept;
    int is_open;    /* true if the records are uncompressed in the batch */
    uint32_t crc;   /* of the bytes CRC_FROM .. read, if it is open */
    size_t read;
} Job;

/* Records that are processed together: the processor is faster if each loop does one thing. */
enum { STEP = 64 };
typedef struct {
    const uint8_t *key[STEP]; /* NULL: none */
    uint32_t key_size[STEP], delta[STEP], hash[STEP], slot[STEP];
    uint32_t start[STEP + 1]; /* one more than records: start of the next record */
} Step;

/* Read key and offset delta of the record at p as number i. Return its end; NULL: it is invalid. */
static const uint8_t *read_any_record(Step *step, uint32_t i, const uint8_t *p, const uint8_t *body_end, int64_t delta_max) {
    int64_t size, delta;
    if (!(p = varint(p, body_end, &size)) || size < 1 || size > body_end - p) return NULL;
    const uint8_t *end = p + size;
    if (!(p = skip_varint(p + 1, end)) || !(p = varint(p, end, &delta))) return NULL;
    if (delta < 0 || delta > delta_max || !(p = sized(p, end, &size))) return NULL;
    step->delta[i] = (uint32_t)delta;
    step->key[i] = size < 0 ? NULL : p;
    step->key_size[i] = size < 0 ? 0 : (uint32_t)size;
    p += step->key_size[i];
    if (!(p = sized(p, end, &size))) return NULL;
    p += size < 0 ? 0 : size;
    if (!(p = varint(p, end, &size)) || after_headers(p, end, size) != end) return NULL;
    return end;
}

/* The same for a usual record: lengths of one or two bytes, no headers. NULL: another record, valid or not. The offset delta
 * is not checked. USUAL_ROOM bytes can be read from p on, wherever the record ends: the numbers before the key, a key whose
 * length is one byte, and the length of the value. */
#if defined(__GNUC__) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
enum { USUAL_ROOM = 2 + 1 + 8 + 2 + 1 + 127 + 2, BUT_TWO_BYTES = ~0x3FFE, BUT_SMALL = 0x81 };

INLINE const uint8_t *short_number(const uint8_t *p, uint32_t *number) {
    uint32_t first = p[0];
    if (first < 0x80) {
        *number = first;
        return p + 1;
    }
    *number = (first & 0x7F) | (uint32_t)p[1] << 7;
    return p + 2;
}

/* The same without a branch: values of about 64 bytes have lengths of one or two bytes at random. */
INLINE const uint8_t *varying_number(const uint8_t *p, uint32_t *number) {
    const uint32_t is_long = p[0] >> 7;
    *number = (p[0] & 0x7F) | ((uint32_t)p[1] << 7 & (0 - is_long));
    return p + 1 + is_long;
}

INLINE const uint8_t *read_usual_record(Step *step, uint32_t i, const uint8_t *p, const uint8_t *body_end) {
    uint32_t size, delta, value_size;
    p = short_number(p, &size);
    if (size >> 1 > (size_t)(body_end - p)) return NULL;
    const uint8_t *end = p + (size >> 1);
    uint64_t stops = ~native64(p + 1) & 0x8080808080808080u;
    if (!stops) return NULL;
    p = short_number(p + 2 + (__builtin_ctzll(stops) >> 3), &delta);
    uint32_t key_size = *p++;
    step->delta[i] = delta >> 1;
    step->key[i] = p;
    step->key_size[i] = key_size >> 1;
    p = varying_number(p + (key_size >> 1), &value_size);
    uint32_t unusual = ((size | delta | value_size) & BUT_TWO_BYTES) | (key_size & BUT_SMALL) | end[-1];
    return unusual || end - p != (ptrdiff_t)(value_size >> 1) + 1 ? NULL : end;
}

/* Lengths of the numbers of a usual record: mostly the same as in the record before it. */
typedef struct {
    uint64_t stops, is;        /* bits of its first eight bytes that end numbers, and their values; is = 1: none */
    uint64_t size, delta, key; /* bits of these numbers */
    uint32_t size_bytes, key_at, delta_shift; /* the last two: positions in bytes and in bits */
    uint32_t misses, attempts;                /* until no shape is learned again; until no repetition is looked for again */
    uint32_t previous_size;                   /* bytes of the record before */
} Shape;

INLINE int has_shape(const Shape *shape, const uint8_t *p) { return (native64(p) & shape->stops) == shape->is; }

/* Get the shape of a record that read_usual_record() has read. */
static __attribute__((noinline)) void learn_shape(Shape *shape, const uint8_t *p) {
    uint32_t at[5], number = 0; /* ends of the numbers: size, attributes (any byte), timestamp, offset delta, key size */
    for (uint32_t i = 0; number < 5; i++)
        if (p[i] < 0x80 || number == 1) at[number++] = i + 1;
    shape->misses--;
    shape->stops = 0;
    shape->is = 1;
    if (at[4] > 8) return;
    const uint64_t all = ~(uint64_t)0 >> (64 - 8 * at[4]);
    shape->stops = 0x8080808080808080u & all & ~((uint64_t)0x80 << 8 * at[0]);
    shape->is = native64(p) & shape->stops;
    shape->size = 0x7F7Fu & (((uint64_t)1 << 8 * at[0]) - 1);
    shape->delta = 0x7F7F7F7F7F7F7F7Fu & (all >> 8) & ~(((uint64_t)1 << 8 * at[2]) - 1);
    shape->key = (uint64_t)0x7F << 8 * at[3];
    shape->size_bytes = at[0];
    shape->key_at = at[4];
    shape->delta_shift = 8 * at[2];
}

#ifdef HAS_X86
/* Return the bits of a mask, close together (an intrinsic would not be inlined here). */
INLINE uint64_t extract_bits(uint64_t bits, uint64_t mask) {
    uint64_t extracted;
    __asm__("pextq %2, %1, %0" : "=r"(extracted) : "r"(bits), "r"(mask));
    return extracted;
}
#else
#define extract_bits(bits, mask) ((void)(bits), (void)(mask), 0)
#endif

/* Read up to `most` records from p on, as number i and the next ones, while all their lengths are those of the usual record
 * before p, of `size` bytes: to compare three places of each is enough then. Return their number. */
INLINE uint32_t read_repetition(const Shape *shape, int by_shape, Step *step, uint32_t i, const uint8_t *p, size_t size,
                                uint32_t most) {
    const uint8_t *const model = p - size;
    if (!has_shape(shape, model)) return 0;
    const uint32_t key_size = step->key_size[i - 1], shift = shape->delta_shift;
    const size_t value_at = shape->key_at + key_size, later = 5 * size;
    const uint64_t sign = (uint64_t)1 << shift, front_bits = shape->stops | shape->size | shape->key | sign;
    const uint64_t front = native64(model), delta_bits = shape->delta & ~sign;
    const uint32_t back = native16(model + value_at), back_bits = back & 0x80 ? 0xFFFF : 0xFF;
    const uint32_t upper_bits = (uint32_t)(shape->delta >> shift >> 2) & 0x1FC0;
    uint32_t *const delta = step->delta + i, count = 0;
    for (const uint8_t *at = p; count < most; count++, at += size) {
        const uint64_t its_front = native64(at);
        const uint32_t other_back = (native16(at + value_at) ^ back) & back_bits;
        if (((its_front ^ front) & front_bits) | other_back | at[size - 1]) break;
        delta[count] = by_shape ? (uint32_t)extract_bits(its_front, delta_bits)
            : ((uint32_t)(its_front >> shift >> 1) & 0x3F) | ((uint32_t)(its_front >> shift >> 2) & upper_bits);
        PREFETCH(at, later);
    }
    uint32_t *const start = step->start + i, *const key_sizes = step->key_size + i, next = start[-1];
    for (uint32_t j = 0; j < count; j++) {
        start[j] = next += (uint32_t)size;
        key_sizes[j] = key_size;
    }
    const uint8_t *key = p + shape->key_at;
    for (uint32_t j = 0; j < count; j++, key += size) step->key[i + j] = key;
    return count;
}

/* Its loop needs most registers; inlined, it would read them from memory. Vectors must be as wide as where they are read:
 * the processor does not forward a read from two writes. */
#define REPETITION(name, target, by_shape)                                                          \
    static __attribute__((noinline)) target uint32_t name(const Shape *shape, Step *step, uint32_t i, const uint8_t *p,  \
                                                          size_t size, uint32_t most) {             \
        return read_repetition(shape, by_shape, step, i, p, size, most);                            \
    }
REPETITION(repetition_plain, , 0)
#ifdef HAS_X86
REPETITION(repetition_wide, WIDE, 0)
REPETITION(repetition_by_shape, FOLDING, 1)
#else
#define repetition_wide repetition_plain
#define repetition_by_shape repetition_plain
#endif
#else
enum { USUAL_ROOM = 1 };
typedef struct { uint64_t is; uint32_t misses, attempts, previous_size; } Shape;
INLINE const uint8_t *read_usual_record(Step *step, uint32_t i, const uint8_t *p, const uint8_t *body_end) {
    (void)step, (void)i, (void)p, (void)body_end;
    return NULL;
}
#define has_shape(shape, p) 1
#define learn_shape(shape, p) ((void)0)
#define repetition_plain(shape, step, i, p, size, most) 0
#define repetition_wide repetition_plain
#define repetition_by_shape repetition_plain
#endif

#ifdef HAS_X86
/* As read_usual_record(), for a record of that shape. NULL: it has another shape, or is invalid. */
INLINE const uint8_t *read_shaped_record(const Shape *shape, Step *step, uint32_t i, const uint8_t *p, const uint8_t *body_end) {
    const uint64_t front = native64(p);
    if (!has_shape(shape, p)) return NULL;
    const uint32_t size = (uint32_t)extract_bits(front, shape->size), delta = (uint32_t)extract_bits(front, shape->delta);
    const uint32_t key_size = (uint32_t)extract_bits(front, shape->key);
    const uint8_t *const record = p + shape->size_bytes, *const end = record + (size >> 1);
    if (size >> 1 > (size_t)(body_end - record)) return NULL;
    p += shape->key_at;
    step->delta[i] = delta >> 1;
    step->key[i] = p;
    step->key_size[i] = key_size >> 1;
    uint32_t value_size;
    p = varying_number(p + (key_size >> 1), &value_size);
    const uint32_t unusual = ((size | delta | key_size) & 1) | (value_size & BUT_TWO_BYTES) | end[-1];
    return unusual || end - p != (ptrdiff_t)(value_size >> 1) + 1 ? NULL : end;
}
#else
#define read_shaped_record(shape, step, i, p, body_end) NULL
#endif

enum { REPETITION_MIN = 8 }; /* fewer records: looking for it did not pay */

/* Read what repeats the lengths of the usual record before p, of `size` bytes, up to `most` records. Return their number. */
INLINE uint32_t repetition(Shape *shape, Step *step, uint32_t i, int by_eights, int by_shape, const uint8_t *p, uint32_t size,
                           uint32_t most) {
    const uint32_t found = by_shape ? repetition_by_shape(shape, step, i, p, size, most)
        : by_eights ? repetition_wide(shape, step, i, p, size, most) : repetition_plain(shape, step, i, p, size, most);
    shape->attempts -= found < REPETITION_MIN && found < most;
    return found;
}

/* Read positions, keys and offsets of `count` records from p on. Return their end; NULL: one is invalid. */
INLINE const uint8_t *walk(const Job *job, Step *step, Shape *shape, int by_eights, int by_shape, const uint8_t *p,
                           uint32_t count) {
    const uint8_t *const body = job->body, *const body_end = body + job->body_size;
    const int64_t delta_max = job->delta_max;
    for (uint32_t i = 0; i < count;) {
        const uint8_t *end = NULL;
        if (LIKELY(body_end - p >= USUAL_ROOM) && !(by_shape && (end = read_shaped_record(shape, step, i, p, body_end)))
            && (end = read_usual_record(step, i, p, body_end)) && shape->misses && !has_shape(shape, p))
            learn_shape(shape, p);
        const int is_usual = end != NULL;
        if (!LIKELY(end) && !(end = read_any_record(step, i, p, body_end, delta_max))) return NULL;
        step->start[i++] = (uint32_t)(p - body);
        PREFETCH(end, 4 * (end - p)); /* a later record begins about here */
        const uint32_t size = (uint32_t)(end - p), is_same_size = size == shape->previous_size;
        shape->previous_size = size;
        p = end;
        if (is_same_size && is_usual && size >= 8 && shape->attempts) {
            const uint32_t fit = (uint32_t)(body_end - p) / size, wanted = count - i;
            const uint32_t found = repetition(shape, step, i, by_eights, by_shape, p, size, fit < wanted ? fit : wanted);
            p += (size_t)found * size;
            i += found;
        }
    }
    step->start[count] = (uint32_t)(p - body);
    return p;
}

/* True if all offset deltas are within the batch; `rising` stays true if none is below the one before it. */
INLINE int are_within(const Job *job, const Step *step, uint32_t count, uint32_t previous, int *rising) {
    uint32_t highest = step->delta[0], falls = step->delta[0] < previous;
    for (uint32_t i = 1; i < count; i++) {
        highest = step->delta[i] > highest ? step->delta[i] : highest;
        falls |= step->delta[i] < step->delta[i - 1];
    }
    *rising = *rising && !falls;
    return highest <= (uint32_t)job->delta_max;
}

/* A record without a key is placed by the 8 bytes of its offset. */
static uint32_t hash_of_offset(int64_t offset) {
    uint8_t number[8];
    put_big32(number, (uint32_t)((uint64_t)offset >> 32));
    put_big32(number + 4, (uint32_t)offset);
    return murmur2(number, 8);
}

static void hash_one_by_one(const Job *job, Step *step, uint32_t from, uint32_t to) {
    for (uint32_t i = from; i < to; i++)
        step->hash[i] = LIKELY(step->key[i] != NULL) ? murmur2(step->key[i], step->key_size[i])
            : hash_of_offset(job->base_offset + step->delta[i]);
}

#ifdef HAS_X86
#define TWO(low, high)                                                                              \
    _mm256_inserti128_si256(_mm256_castsi128_si256(_mm_loadu_si128((const __m128i *)(low))),        \
                            _mm_loadu_si128((const __m128i *)(high)), 1)
#define TIMES(x) _mm256_mullo_epi32(x, _mm256_set1_epi32(0x5BD1E995))
#define WITH_SHIFTED(x, bits) _mm256_xor_si256(x, _mm256_srli_epi32(x, bits))

/* Hash eight keys of one size; each can be read in pieces of 16 bytes. */
WIDE INLINE __m256i hash_of_eight(const uint8_t *const *key, uint32_t size) {
    __m256i hash = _mm256_set1_epi32((int)(0x9747B28Cu ^ size));
    for (uint32_t at = 0; at < size; at += 16) { /* four words of each become four times a word of all */
        const __m256i a = TWO(key[0] + at, key[4] + at), b = TWO(key[1] + at, key[5] + at);
        const __m256i c = TWO(key[2] + at, key[6] + at), d = TWO(key[3] + at, key[7] + at);
        const __m256i ab = _mm256_unpacklo_epi32(a, b), cd = _mm256_unpacklo_epi32(c, d);
        const __m256i high_ab = _mm256_unpackhi_epi32(a, b), high_cd = _mm256_unpackhi_epi32(c, d);
        const __m256i word[4] = {
            _mm256_unpacklo_epi64(ab, cd), _mm256_unpackhi_epi64(ab, cd),
            _mm256_unpacklo_epi64(high_ab, high_cd), _mm256_unpackhi_epi64(high_ab, high_cd),
        };
        const uint32_t remaining = size - at;
#pragma GCC unroll 4
        for (uint32_t i = 0; i < 4; i++) {
            if (remaining >= 4 * i + 4) {
                const __m256i mixed = TIMES(word[i]);
                hash = _mm256_xor_si256(TIMES(hash), TIMES(WITH_SHIFTED(mixed, 24)));
            } else if (remaining > 4 * i) {
                const __m256i mask = _mm256_set1_epi32((int)(((uint32_t)1 << remaining % 4 * 8) - 1));
                hash = TIMES(_mm256_xor_si256(hash, _mm256_and_si256(word[i], mask)));
            }
        }
    }
    hash = TIMES(WITH_SHIFTED(hash, 13));
    return WITH_SHIFTED(hash, 15);
}

/* Hash eight keys at a time if eight neighbours have one length. */
WIDE static void hash_by_eights(const Job *job, Step *step, uint32_t count) {
    const uint8_t *const body_end = job->body + job->body_size;
    uint32_t i = 0;
    for (; i + 8 <= count; i += 8) {
        const uint8_t *const *key = step->key + i;
        const uint32_t size = step->key_size[i];
        const __m256i sizes = _mm256_loadu_si256((const __m256i *)(step->key_size + i));
        const __m256i other_size = _mm256_xor_si256(sizes, _mm256_set1_epi32((int)size));
        const __m256i missing_low = _mm256_cmpeq_epi64(_mm256_loadu_si256((const __m256i *)key), _mm256_setzero_si256());
        const __m256i missing_high = _mm256_cmpeq_epi64(_mm256_loadu_si256((const __m256i *)(key + 4)), _mm256_setzero_si256());
        const __m256i odd = _mm256_or_si256(other_size, _mm256_or_si256(missing_low, missing_high));
        if (LIKELY(_mm256_testz_si256(odd, odd)) && (uint64_t)(body_end - key[7]) >= (uint64_t)size + 15)
            _mm256_storeu_si256((__m256i *)(step->hash + i), hash_of_eight(key, size));
        else
            hash_one_by_one(job, step, i, i + 8);
    }
    hash_one_by_one(job, step, i, count);
}
#else
#define hash_by_eights(job, step, count) hash_one_by_one(job, step, 0, count)
#endif

/* Assign a slot to each record. */
INLINE void assign_slots(const Job *job, int rule, Step *step, uint32_t count) {
    const Cut *const cut = job->cut;
    const uint64_t slots = cut->slots, base_offset = (uint64_t)job->base_offset;
    for (uint32_t i = 0; i < count; i++)
        step->slot[i] = rule == EVEN ? (uint32_t)(step->hash[i] * slots >> 32)
            : rule == STRIPES ? (uint32_t)((base_offset + step->delta[i]) / STRIPE_OFFSETS % slots)
            : slot_in_ranges(cut, step->key[i], step->key_size[i], step->hash[i]);
}

/* Note the kept records, and add them to their parts. */
INLINE void note(Job *job, const Step *step, uint32_t count, int rising) {
    const uint32_t dropped = job->parts, *const part_of = job->part_of, from_delta = job->from_delta;
    Part *const parts = job->part;
    Note *to = job->notes + job->kept;
    for (uint32_t i = 0; i < count; i++) {
        const uint32_t start = step->start[i], size = step->start[i + 1] - start, delta = step->delta[i];
        uint32_t part_index = part_of[step->slot[i]];
        part_index = delta >= from_delta ? part_index : dropped;
        to->record.start = start;
        to->record.size = size;
        to->part = part_index;
        to += (part_index - dropped) >> 31; /* compilers make a branch of `part_index != dropped` */
        Part *part = parts + part_index;
        part->tally += ((uint64_t)1 << 32) + size;
        part->last = rising || delta > part->last ? delta : part->last;
    }
    job->kept = (uint32_t)(to - job->notes);
}

/* The same for a single part, which gets one slot. Only the position of the next note depends on the record before. */
INLINE void note_one_part(Job *job, uint32_t slot, const Step *step, uint32_t count) {
    const uint32_t from_delta = job->from_delta;
    Extent record[STEP];
    uint32_t is_kept[STEP], bytes = 0, highest = 0; /* bytes: below 2^32, as those of the batch */
    for (uint32_t i = 0; i < count; i++) {
        const uint32_t start = step->start[i], size = step->start[i + 1] - start;
        record[i].start = start;
        record[i].size = size;
        is_kept[i] = (uint32_t)(step->slot[i] == slot) & (uint32_t)(step->delta[i] >= from_delta);
        const uint32_t mask = 0 - is_kept[i], last = (step->delta[i] + 1) & mask;
        bytes += size & mask;
        highest = last > highest ? last : highest;
    }
    Note *const notes = job->notes + job->kept, *to = notes;
    for (uint32_t i = 0; i < count; i++) {
        to->record = record[i];
        to->part = 0;
        to += is_kept[i];
    }
    Part *const part = job->part;
    part->tally += ((uint64_t)(to - notes) << 32) + bytes;
    part->last = (int64_t)highest - 1 > part->last ? (int64_t)highest - 1 : part->last;
    job->kept = (uint32_t)(to - job->notes);
}

/* Walk all records; 0: one is invalid. */
INLINE int walk_all(Job *job, int rule, int by_eights, int by_shape) {
    const uint8_t *p = job->body, *body_end = p + job->body_size;
    uint32_t previous_delta = 0, only_slot = 0;
    int rising = 1;
    while (job->parts == 1 && job->part_of[only_slot]) only_slot++;
    Step step;
    Shape shape = {.is = 1, .misses = 16 + job->count / 16, .attempts = 16 + job->count / 64};
    for (uint32_t remaining = job->count, count; remaining; remaining -= count) {
        count = remaining < STEP ? remaining : STEP;
        if (!(p = walk(job, &step, &shape, by_eights, by_shape, p, count))) return 0;
        if (!are_within(job, &step, count, previous_delta, &rising)) return 0;
        previous_delta = step.delta[count - 1];
        if (rule != STRIPES && by_eights) hash_by_eights(job, &step, count);
        if (rule != STRIPES && !by_eights) hash_one_by_one(job, &step, 0, count);
        assign_slots(job, rule, &step, count);
        if (job->parts == 1) note_one_part(job, only_slot, &step, count);
        else if (rising) note(job, &step, count, 1);
        else note(job, &step, count, 0);
    }
    return p == body_end;
}

INLINE int walk_by_rule(Job *job, int by_eights, int by_shape) { /* a separate loop for each rule */
    switch (job->cut->rule) {
    case EVEN: return walk_all(job, EVEN, by_eights, by_shape);
    case STRIPES: return walk_all(job, STRIPES, by_eights, by_shape);
    default: return walk_all(job, RANGES, by_eights, by_shape);
    }
}

static int walk_plain(Job *job) { return walk_by_rule(job, 0, 0); }
#ifdef HAS_X86
WIDE static int walk_wide(Job *job) { return walk_by_rule(job, 1, 0); }
FOLDING static int walk_by_shape(Job *job) { return walk_by_rule(job, 1, 1); }
#else
#define walk_wide walk_plain
#define walk_by_shape walk_plain
#endif

/* Read the header of a batch into the job. Return NULL, or what is wrong with it. */
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
    job->from_delta = job->from_offset <= base ? 0
        : job->from_offset - base > delta ? (uint32_t)delta + 1 : (uint32_t)(job->from_offset - base);
    job->count = (uint32_t)count;
    return NULL;
}

/* Return NULL, or what is wrong with the records. `notes` must have room for `count` records. */
static const char *scan(Job *job) {
    if (!(has_wide_products ? walk_by_shape(job) : is_wide ? walk_wide(job) : walk_plain(job))) return "a record that does not fit into its batch";
    for (uint32_t i = 0; i <= job->parts; i++) {
        Part *part = &job->part[i];
        part->size = (uint32_t)part->tally;
        part->count = (uint32_t)(part->tally >> 32);
        if (part->count) part->last += job->base_offset;
    }
    return NULL;
}

/* ---- parts ---- */

/* Steps of checksums: smaller ones are slowed by each start, and larger ones read bytes that have left the cache. */
enum { SUM_STEP = PIECE_MAX, SUM_EACH = 16 << 10 };
enum { STRETCH = 64, COPY_SPARE = 128, COPY_MAX = 512 };
#if defined(__GNUC__)
typedef uint8_t Block __attribute__((vector_size(32), aligned(1), may_alias));
#else
typedef struct { uint8_t bytes[32]; } Block;
#endif

/* Copy one record. With `spare`, up to COPY_SPARE bytes after it may be read and written too. */
INLINE void copy(uint8_t *to, const uint8_t *from, size_t size, int spare) {
    if (LIKELY(spare && size <= COPY_SPARE)) {
        for (int i = 0; i < COPY_SPARE; i += 32) *(Block *)(to + i) = *(const Block *)(from + i);
    } else if (LIKELY(spare && size <= COPY_MAX)) {
        size_t done = 0;
        do {
            *(Block *)(to + done) = *(const Block *)(from + done);
            done += 32;
        } while (done < size);
    } else {
        memcpy(to, from, size);
    }
}

/* Append one record to its part. The checksum is updated later. */
INLINE void append(Part *part, const uint8_t *from, size_t size, int spare) {
    uint8_t *to = part->cursor;
    part->cursor = to + size;
    copy(to, from, size, spare && part->end - part->cursor >= COPY_SPARE);
}

/* Append records to a single part. */
INLINE void append_all(Part *part, const uint8_t *body, const Note *note, const Note *end, int spare) {
    uint8_t *to = part->cursor, *const spare_end = part->end - (part->size < COPY_SPARE ? part->size : COPY_SPARE);
    for (; note < end; note++) {
        uint8_t *const next = to + note->record.size;
        copy(to, body + note->record.start, note->record.size, spare && next <= spare_end);
        to = next;
    }
    part->cursor = to;
}

/* Update the checksum of a part up to its write position, while the bytes are in the cache. */
static void update_crc(Part *part) {
    part->crc = crc32c(part->crc, part->summed, (size_t)(part->cursor - part->summed));
    part->summed = part->cursor;
}

/* Update the checksum of the input at least up to `end`, mostly further: the bytes copied next are then in the cache. */
static void read_ahead(Job *job, const uint8_t *end) {
    const size_t remaining = job->batch_size - job->read, needed = (size_t)(end - job->batch) - job->read;
    const size_t size = needed > SUM_STEP ? needed : SUM_STEP < remaining ? SUM_STEP : remaining;
    job->crc = crc32c(job->crc, job->batch + job->read, size);
    job->read += size;
}

/* Return the index of the first kept record with fewer than COPY_SPARE bytes after it. */
static uint32_t notes_near_end(const Job *job) {
    uint32_t i = job->kept;
    while (i && job->body_size - job->notes[i - 1].record.start - job->notes[i - 1].record.size < COPY_SPARE) i--;
    return i;
}

/* Short records: checksums of input and output are computed separately, over long stretches. */
INLINE void fill_by_stretches(Job *job) {
    const uint8_t *const body = job->body, *read = job->is_open ? job->batch + job->read : body + job->body_size;
    const uint32_t near_end = notes_near_end(job);
    uint32_t summed_at = 0; /* position at the last update of the checksums of parts */
    Part *const parts = job->part;
    for (uint32_t i = 0, stretch_end; i < job->kept; i = stretch_end) {
        const int spare = i < near_end;
        stretch_end = i + STRETCH < (spare ? near_end : job->kept) ? i + STRETCH : spare ? near_end : job->kept;
        const Note *note = job->notes + i, *const end = job->notes + stretch_end;
        if (body + end[-1].record.start + end[-1].record.size > read) {
            read_ahead(job, body + end[-1].record.start + end[-1].record.size);
            read = job->batch + job->read;
        }
        if (job->parts == 1) append_all(parts, body, note, end, spare);
        else for (; note < end; note++) append(parts + note->part, body + note->record.start, note->record.size, spare);
        if (end[-1].record.start - summed_at < SUM_EACH) continue;
        summed_at = end[-1].record.start;
        for (uint32_t j = 0; j < job->parts; j++)
            if (parts[j].out && parts[j].cursor - parts[j].summed >= SUM_STEP) update_crc(parts + j);
    }
}

static void fill_plain(Job *job) { fill_by_stretches(job); }
static uint32_t pieces_from = 512; /* mean bytes of a record: below, joining costs more than it saves */

#ifdef HAS_X86
WIDE static void fill_wide(Job *job) { fill_by_stretches(job); }

/* Long records: the checksum of each is computed once, for the input and for its part. */
MULTIPLYING static void fill_by_pieces(Job *job) {
    const uint8_t *read = job->is_open ? job->batch + job->read : NULL;
    const uint32_t near_end = notes_near_end(job);
    uint32_t batch_crc = ~job->crc;
    for (uint32_t i = 0; i < job->kept; i++) {
        const Note *note = &job->notes[i];
        const uint8_t *from = job->body + note->record.start;
        if (read && read < from) batch_crc = crc_by_pieces(batch_crc, read, (size_t)(from - read));
        Part *part = &job->part[note->part];
        uint32_t crc = ~part->crc;
        for (size_t remaining = note->record.size, piece_size; remaining; remaining -= piece_size, from += piece_size) {
            piece_size = remaining < PIECE_MAX ? remaining : PIECE_MAX;
            const uint64_t piece = crc_of_piece(from, piece_size);
            batch_crc = (uint32_t)joined(batch_crc, piece, piece_size);
            crc = (uint32_t)joined(crc, piece, piece_size);
        }
        append(part, job->body + note->record.start, note->record.size, i < near_end);
        part->crc = ~crc;
        part->summed = part->cursor;
        read = read ? from : NULL;
    }
    job->crc = ~batch_crc;
    job->read = read ? (size_t)(read - job->batch) : job->read;
}
#else
#define fill_wide fill_plain
#define fill_by_pieces fill_plain
#endif

static void begin(const Job *job, Part *part) {
    memcpy(part->out, job->batch, HEADER);
    put_big32(part->out + 8, (uint32_t)(HEADER - LOG_OVERHEAD + part->size));
    part->out[ATTRIBUTES_AT + 1] &= (uint8_t)~COMPRESSION_MASK;
    put_big32(part->out + COUNT_AT, part->count);
    part->cursor = part->out + HEADER;
    part->end = part->cursor + part->size;
    part->crc = crc32c(0, part->out + CRC_FROM, HEADER - CRC_FROM);
    part->summed = part->cursor;
}

/* Write every part to its `out` of HEADER + size bytes, unless one part has all records. Return NULL, or what is wrong with
 * the batch: all parts are invalid then. The checksum of decompressed records (`body` is outside the batch) was verified
 * before. */
static const char *fill(Job *job) {
    const int is_copied = job->kept && job->part[job->notes[0].part].out;
    if (is_copied) {
        for (uint32_t i = 0; i < job->parts; i++)
            if (job->part[i].out) begin(job, &job->part[i]);
        if (has_pieces() && job->body_size >= (uint64_t)job->count * pieces_from) fill_by_pieces(job);
        else if (is_wide) fill_wide(job);
        else fill_plain(job);
    }
    if (job->is_open && crc32c(job->crc, job->batch + job->read, job->batch_size - job->read) != big32(job->batch + CRC_AT))
        return "the checksum of a record batch is wrong";
    for (uint32_t i = 0; is_copied && i < job->parts; i++) {
        Part *part = &job->part[i];
        if (!part->out) continue;
        update_crc(part);
        put_big32(part->out + CRC_AT, part->crc);
    }
    return NULL;
}

/* ---- Python ---- */
#ifndef SLICING_CORE

enum { VERSION = 3, RELEASE_FROM = 32 << 10, SPARE_MAX = 1 << 20 };

/* Memory for notes, kept from call to call; acquired and released under the GIL. */
static void *spare;
static size_t spare_size;

static void *acquire_room(size_t size, size_t *room_size) {
    void *room = spare;
    if (room && spare_size >= size) {
        *room_size = spare_size;
        spare = NULL;
        return room;
    }
    *room_size = size < 4096 ? 4096 : size;
    return malloc(*room_size);
}

static void release_room(void *room, size_t size) {
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

/* Return a list with the results of all parts. If records have to be copied, `out` points into a new bytes object. */
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
    uint8_t *room = acquire_room(parts_size + ((size_t)job->count + 1) * sizeof(Note), &room_size);
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
        wrong = fill(job);
        if (release) PyEval_RestoreThread(state);
    }
    release_room(room, room_size);
    if (results && wrong) {
        Py_DECREF(results);
        return PyErr_Format(PyExc_ValueError, "%s", wrong);
    }
    return results;
}

static PyObject *split_for_slots(Job *job, PyObject *requested, PyObject *source) {
    uint32_t part_of[SLOTS_MAX + 1];
    const uint32_t slots = job->cut->slots;
    const Py_ssize_t parts = PySequence_Size(requested);
    if (parts < 0) return NULL;
    if (parts > slots) return PyErr_Format(PyExc_ValueError, "a slot is requested twice");
    for (uint32_t slot = 0; slot <= slots; slot++) part_of[slot] = (uint32_t)parts;
    for (Py_ssize_t i = 0; i < parts; i++) {
        PyObject *number = PySequence_GetItem(requested, i);
        long slot = number ? PyLong_AsLong(number) : -1;
        Py_XDECREF(number);
        if (slot == -1 && PyErr_Occurred()) return NULL;
        if (slot < 0 || slot >= (long)slots || part_of[slot] != (uint32_t)parts)
            return PyErr_Format(PyExc_ValueError, "no such slot, or requested twice");
        part_of[slot] = (uint32_t)i;
    }
    job->parts = (uint32_t)parts;
    job->part_of = part_of;
    return run(job, source);
}

enum { RULE, SLOTS, STARTS, TARGETS, NULL_KEYS, KEY_INDEX, KEY_BYTES, PACKED };

static size_t bytes_at(PyObject *packed, int position, const uint8_t **bytes) {
    PyObject *bytes_object = PyTuple_GetItem(packed, position);
    if (PyErr_Occurred()) return 0;
    *bytes = (const uint8_t *)PyBytes_AsString(bytes_object);
    return *bytes ? (size_t)PyBytes_Size(bytes_object) : 0;
}

/* Cuts that were checked: checking one of 65,536 keys takes longer than splitting a small batch. Tuples of bytes and numbers
 * are immutable, and while they are kept here no other has their address. Used under the GIL. */
enum { CHECKED = 8 };
static PyObject *checked[CHECKED];
static unsigned checked_next;

static int was_checked(PyObject *packed) {
    for (int i = 0; i < CHECKED; i++)
        if (checked[i] == packed) return 1;
    return 0;
}

static void remember_checked(PyObject *packed) {
    PyObject *evicted = checked[checked_next];
    checked[checked_next] = Py_NewRef(packed);
    checked_next = (checked_next + 1) % CHECKED;
    Py_XDECREF(evicted);
}

/* Read a cut; 0: invalid, with an exception. `packed` owns the memory of its pointers. */
static int read_cut(Cut *cut, PyObject *packed) {
    if (!PyTuple_Check(packed) || PyTuple_Size(packed) != PACKED) {
        PyErr_SetString(PyExc_TypeError, "a cut is a tuple of 7");
        return 0;
    }
    cut->rule = (int)PyLong_AsLong(PyTuple_GetItem(packed, RULE));
    cut->slots = (uint32_t)PyLong_AsUnsignedLong(PyTuple_GetItem(packed, SLOTS));
    cut->null_keys = (int)PyLong_AsLong(PyTuple_GetItem(packed, NULL_KEYS));
    cut->ranges = bytes_at(packed, STARTS, &cut->starts) / 4;
    size_t targets = bytes_at(packed, TARGETS, &cut->targets) / 4;
    cut->keys = bytes_at(packed, KEY_INDEX, &cut->key_index) / 12;
    cut->key_bytes_size = bytes_at(packed, KEY_BYTES, &cut->key_bytes);
    if (PyErr_Occurred()) return 0;
    if (was_checked(packed)) return 1;
    const char *wrong = targets != cut->ranges ? "ranges without targets" : check_cut(cut);
    if (wrong) PyErr_SetString(PyExc_ValueError, wrong);
    else remember_checked(packed);
    return !wrong;
}

PyDoc_STRVAR(hashes_doc, "hashes(keys) -> bytes: murmur2 of each of a list of bytes, uint32 of native order");

static PyObject *hashes(PyObject *module, PyObject *keys) {
    (void)module;
    if (!PyList_Check(keys)) return PyErr_Format(PyExc_TypeError, "hashes takes a list");
    const Py_ssize_t count = PyList_Size(keys);
    PyObject *result = PyBytes_FromStringAndSize(NULL, count * 4);
    uint8_t *to = result ? (uint8_t *)PyBytes_AsString(result) : NULL;
    for (Py_ssize_t i = 0; result && i < count; i++) {
        char *key;
        Py_ssize_t size;
        if (PyBytes_AsStringAndSize(PyList_GetItem(keys, i), &key, &size) < 0) {
            Py_CLEAR(result);
            break;
        }
        const uint32_t hash = murmur2((const uint8_t *)key, (size_t)size);
        memcpy(to + 4 * i, &hash, 4);
    }
    return result;
}

PyDoc_STRVAR(split_doc, "split(batch, body, packed, slots, from_offset) -> list of (batch, last_kept, records); raises ValueError");

static PyObject *split(PyObject *module, PyObject *const *args, Py_ssize_t count) {
    (void)module;
    Py_buffer batch, body;
    Cut cut;
    if (count != 5) return PyErr_Format(PyExc_TypeError, "split takes 5 arguments, not %zd", count);
    if (!read_cut(&cut, args[2])) return NULL;
    Job job = {.cut = &cut, .from_offset = PyLong_AsLongLong(args[4])};
    if (PyErr_Occurred() || PyObject_GetBuffer(args[0], &batch, PyBUF_SIMPLE) < 0) return NULL;
    job.batch = batch.buf;
    job.batch_size = (size_t)batch.len;
    PyObject *result = NULL;
    const int has_body = !Py_IsNone(args[1]);
    if (!has_body || PyObject_GetBuffer(args[1], &body, PyBUF_SIMPLE) == 0) {
        job.body = has_body ? body.buf : NULL;
        job.body_size = has_body ? (size_t)body.len : 0;
        result = split_for_slots(&job, args[3], args[0]);
        if (has_body) PyBuffer_Release(&body);
    }
    PyBuffer_Release(&batch);
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

PyDoc_STRVAR(combine_doc, "crc32c_combine(first, second, size) -> int: the checksum of two pieces, the second of `size` bytes");

static PyObject *combine(PyObject *module, PyObject *const *args, Py_ssize_t count) {
    (void)module;
    if (count != 3) return PyErr_Format(PyExc_TypeError, "crc32c_combine takes 3 arguments, not %zd", count);
    uint32_t first = (uint32_t)PyLong_AsUnsignedLong(args[0]), second = (uint32_t)PyLong_AsUnsignedLong(args[1]);
    size_t size = PyLong_AsSize_t(args[2]);
    if (PyErr_Occurred()) return NULL;
    return PyLong_FromUnsignedLong(crc32c_combine(first, second, size));
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

PyDoc_STRVAR(pretend_doc,
             "pretend(most): limit the use of the processor to 0: no extensions, 1: simple instructions, 2: products, 3: all");

static PyObject *pretend(PyObject *module, PyObject *most) {
    (void)module;
    long level = PyLong_AsLong(most);
    if (PyErr_Occurred()) return NULL;
    detect_processor((int)level);
    return Py_NewRef(Py_None);
}

static int prepare(PyObject *module) {
    fill_tables();
    detect_processor(ALL);
    return PyModule_AddIntConstant(module, "VERSION", VERSION) < 0
        || PyModule_AddStringConstant(module, "CHECKSUM", crc_of == crc_by_table ? "table" : "hardware") < 0 ? -1 : 0;
}

static PyMethodDef functions[] = {
    {"split", (PyCFunction)(void (*)(void))split, METH_FASTCALL, split_doc},
    {"crc32c", crc32c_of, METH_O, crc32c_doc},
    {"crc32c_combine", (PyCFunction)(void (*)(void))combine, METH_FASTCALL, combine_doc},
    {"pretend", pretend, METH_O, pretend_doc},
    {"murmur2", murmur2_of, METH_O, murmur2_doc},
    {"hashes", hashes, METH_O, hashes_doc},
    {NULL, NULL, 0, NULL},
};

static PyModuleDef_Slot slots[] = {{Py_mod_exec, (void *)prepare}, {0, NULL}};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "kafka_share_proxy.views.kernel._slicing",
    .m_doc = "The filter kernel of views.",
    .m_methods = functions,
    .m_slots = slots,
};

PyMODINIT_FUNC PyInit__slicing(void) { return PyModuleDef_Init(&definition); }
#endif
