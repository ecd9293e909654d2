/* CRC-32C with the features of this processor, for every kernel that checks or writes batches.
 *
 * Three implementations, of which the fastest available is used: eight tables; the CRC instruction, in three streams at a
 * time; the same in parallel with carry-less multiplication, as they are different units of the processor. The last adds up
 * pieces whose checksums can be combined: the checksum of a copied record is computed once, for the source and the copy.
 */
#ifndef KSP_CHECKSUM_H
#define KSP_CHECKSUM_H

#include <stdlib.h>

#include "record_bytes.h"

#if defined(__GNUC__) && defined(__x86_64__) && defined(__LP64__)
#include <immintrin.h>
#define HAS_X86 1
#define WIDE __attribute__((target("avx2,bmi,bmi2")))
#define MULTIPLYING __attribute__((target("pclmul,sse4.2")))
#define FOLDING __attribute__((target("avx2,bmi,bmi2,vpclmulqdq,pclmul,sse4.2")))
#endif
#if defined(__GNUC__) && defined(__aarch64__) && defined(__ARM_FEATURE_CRC32)
#include <arm_acle.h>
#define HAS_ARM_CRC 1
#endif

#if defined(__GNUC__)
#define PREFETCH(p, distance) __builtin_prefetch((const void *)((uintptr_t)(p) + (distance)))
#else
#define PREFETCH(p, distance) ((void)0)
#endif

/* ---- by tables ---- */

enum { LONG_RUN = 4096, SHORT_RUN = 256, PIECE_MAX = 8192 };
static const uint32_t POLYNOMIAL = 0x82F63B78u; /* reflected: the upper bit is x^0 */
static uint32_t crc_table[8][256], over_long[4][256], over_short[4][256];
static uint32_t over_zeros[PIECE_MAX + 1]; /* x^(8n - 33) modulo the polynomial: a factor that moves a register over n bytes */

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

/* Fill a table with what a register becomes after `zeros` zero bytes. It is linear in the 32 bits. */
static void fill_shift(uint32_t table[4][256], size_t zeros) {
    static const uint8_t zero_bytes[256];
    uint32_t of_bit[32];
    for (int bit = 0; bit < 32; bit++) {
        of_bit[bit] = (uint32_t)1 << bit;
        for (size_t remaining = zeros; remaining; remaining -= remaining < 256 ? remaining : 256)
            of_bit[bit] = crc_by_table(of_bit[bit], zero_bytes, remaining < 256 ? remaining : 256);
    }
    for (int byte = 0; byte < 4; byte++)
        for (int value = 0; value < 256; value++) {
            table[byte][value] = 0;
            for (int bit = 0; bit < 8; bit++)
                if (value >> bit & 1) table[byte][value] ^= of_bit[byte * 8 + bit];
        }
}

static void fill_tables(void) {
    for (int value = 0; value < 256; value++) {
        uint32_t crc = (uint32_t)value;
        for (int bit = 0; bit < 8; bit++) crc = crc >> 1 ^ (crc & 1 ? POLYNOMIAL : 0);
        crc_table[0][value] = crc;
    }
    for (int row = 1; row < 8; row++)
        for (int value = 0; value < 256; value++)
            crc_table[row][value] = crc_table[row - 1][value] >> 8 ^ crc_table[0][crc_table[row - 1][value] & 255];
    fill_shift(over_long, LONG_RUN);
    fill_shift(over_short, SHORT_RUN);
    uint32_t power = 0x80000000u; /* 1, and then divided by x */
    for (int i = 0; i < 33; i++) power = power >> 31 ? (power ^ POLYNOMIAL) << 1 | 1 : power << 1;
    for (int bytes = 0; bytes <= PIECE_MAX; bytes++) {
        over_zeros[bytes] = power;
        power = crc_table[0][power & 255] ^ power >> 8;
    }
}

/* ---- by instruction ---- */

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

/* One stream waits three cycles for each instruction; three of them keep it busy. The next bytes are prefetched, because
 * the processor's own prefetcher does not recognise three positions that jump. */
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

/* ---- by instruction and multiplication: pieces ---- */

#ifdef HAS_X86
/* A product is reduced by the instruction: it multiplies by x^32 and takes the remainder. */
#define MOVED(crc, bytes)                                                                           \
    _mm_clmulepi64_si128(_mm_cvtsi64_si128((long long)(crc)), _mm_cvtsi32_si128((int)over_zeros[bytes]), 0)
#define REDUCED(product) _mm_crc32_u64(0, (uint64_t)_mm_cvtsi128_si64(product))
#define FOLDED(x, by, y) \
    _mm_xor_si128(_mm_xor_si128(_mm_clmulepi64_si128(x, by, 0x00), _mm_clmulepi64_si128(x, by, 0x11)), y)
#define LOADED(p) _mm_loadu_si128((const __m128i *)(p))
#define TWO_FOLDED(x, by, y)                                                                        \
    _mm256_xor_si256(_mm256_xor_si256(_mm256_clmulepi64_epi128(x, by, 0x00), _mm256_clmulepi64_epi128(x, by, 0x11)), y)
#define TWO_LOADED(p) _mm256_loadu_si256((const __m256i *)(p))

/* The factors for bytes at a distance of d bits: x^(d + 31) and x^(d - 33) modulo the polynomial. */
#define OVER_128 0x0D3B6092, 0x6992CEA2
#define OVER_64 0x9E4ADDF8, 0x740EEF02
#define OVER_32 0xBA4FC28E, 0x3DA6D0CB
#define OVER_16 0x493C7D27, 0xF20C0DFE

/* Return the register over some bytes followed by a piece of at most PIECE_MAX. `of_piece`: register over the piece, from 0. */
MULTIPLYING INLINE uint64_t joined(uint64_t crc, uint64_t of_piece, size_t size) {
    return REDUCED(MOVED(crc, size)) ^ of_piece;
}

/* Return the register over 32 bytes, from 0. */
MULTIPLYING INLINE uint64_t crc_of_two(__m128i low, __m128i high) {
    high = FOLDED(low, _mm_set_epi64x(OVER_16), high);
    return _mm_crc32_u64(_mm_crc32_u64(0, (uint64_t)_mm_cvtsi128_si64(high)), (uint64_t)_mm_extract_epi64(high, 1));
}

/* A piece of at most PIECE_MAX: blocks of FOLD_BYTES at its front are each folded onto the next one, while the instruction
 * processes some bytes of each of three runs after them. */
enum { FOLD_BYTES = 128, PIECE_AHEAD = 4096 };
typedef struct {
    uint64_t first, second, third; /* registers of the runs */
    const uint8_t *at, *end;       /* position in the first run, and its end */
    size_t run, rest;              /* bytes of a run; fewer than 24 bytes after the third one */
} Runs;

INLINE Runs runs_of(const uint8_t *p, size_t size, size_t folds) {
    Runs runs = {.at = p + FOLD_BYTES * folds, .run = (size / 8 - FOLD_BYTES / 8 * folds) / 3 * 8};
    runs.end = runs.at + runs.run;
    runs.rest = size - FOLD_BYTES * folds - 3 * runs.run;
    return runs;
}

MULTIPLYING INLINE void take_of_runs(Runs *runs, int bytes) {
#pragma GCC unroll 5
    for (int i = 0; i < bytes; i += 8) {
        runs->first = CRC8(runs->first, runs->at + i);
        runs->second = CRC8(runs->second, runs->at + i + runs->run);
        runs->third = CRC8(runs->third, runs->at + i + 2 * runs->run);
    }
    runs->at += bytes;
}

/* Return the register over the piece, from 0. `front`: register over its folded front. */
MULTIPLYING INLINE uint64_t crc_of_runs(Runs runs, uint64_t front) {
    while (runs.at < runs.end) take_of_runs(&runs, 8);
    const uint8_t *at = runs.at + 2 * runs.run;
    uint64_t third = runs.third;
    for (size_t words = runs.rest / 8; words; words--, at += 8) third = CRC8(third, at);
    if (runs.rest & 4) { third = _mm_crc32_u32((uint32_t)third, native32(at)); at += 4; }
    for (size_t bytes = runs.rest & 3; bytes; bytes--, at++) third = CRC1(third, at);
    __m128i product = _mm_xor_si128(MOVED(runs.first, 2 * runs.run + runs.rest), MOVED(runs.second, runs.run + runs.rest));
    if (front) product = _mm_xor_si128(product, MOVED(front, 3 * runs.run + runs.rest));
    return REDUCED(product) ^ third;
}

/* Return the register over at most PIECE_MAX bytes, from 0. Prefetches the bytes PIECE_AHEAD after them, because pieces
 * follow each other. If two products are one instruction, a step processes 31 words of eight bytes, else 25. */
enum { WIDE_RUN = 40, NARROW_RUN = 24 };

FOLDING static uint64_t crc_of_piece_wide(const uint8_t *p, size_t size) {
    const size_t folds = size / (FOLD_BYTES + 3 * WIDE_RUN);
    const uint8_t *prefetched = p;
    Runs runs = runs_of(p, size, folds);
    if (!folds) return crc_of_runs(runs, 0);
    const __m256i by = _mm256_set_epi64x(OVER_128, OVER_128), by_64 = _mm256_set_epi64x(OVER_64, OVER_64);
    __m256i a = TWO_LOADED(p), b = TWO_LOADED(p + 32), c = TWO_LOADED(p + 64), d = TWO_LOADED(p + 96);
    for (size_t remaining = folds;;) {
        for (int i = 0; i < 4; i++) PREFETCH(prefetched, PIECE_AHEAD + 64 * i);
        prefetched += FOLD_BYTES + 3 * WIDE_RUN;
        take_of_runs(&runs, WIDE_RUN);
        if (!--remaining) break;
        p += FOLD_BYTES;
        a = TWO_FOLDED(a, by, TWO_LOADED(p));
        b = TWO_FOLDED(b, by, TWO_LOADED(p + 32));
        c = TWO_FOLDED(c, by, TWO_LOADED(p + 64));
        d = TWO_FOLDED(d, by, TWO_LOADED(p + 96));
    }
    c = TWO_FOLDED(a, by_64, c);
    d = TWO_FOLDED(b, by_64, d);
    d = TWO_FOLDED(c, _mm256_set_epi64x(OVER_32, OVER_32), d);
    return crc_of_runs(runs, crc_of_two(_mm256_castsi256_si128(d), _mm256_extracti128_si256(d, 1)));
}

MULTIPLYING static uint64_t crc_of_piece_narrow(const uint8_t *p, size_t size) {
    enum { EACH = FOLD_BYTES / 16 };
    const size_t folds = size / (FOLD_BYTES + 3 * NARROW_RUN);
    Runs runs = runs_of(p, size, folds);
    if (!folds) return crc_of_runs(runs, 0);
    const __m128i by = _mm_set_epi64x(OVER_128), by_64 = _mm_set_epi64x(OVER_64), by_32 = _mm_set_epi64x(OVER_32);
    __m128i folded[EACH];
#pragma GCC unroll 8
    for (int i = 0; i < EACH; i++) folded[i] = LOADED(p + 16 * i);
    for (size_t remaining = folds;;) {
        take_of_runs(&runs, NARROW_RUN);
        if (!--remaining) break;
        p += FOLD_BYTES;
#pragma GCC unroll 8
        for (int i = 0; i < EACH; i++) folded[i] = FOLDED(folded[i], by, LOADED(p + 16 * i));
    }
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) folded[i + 4] = FOLDED(folded[i], by_64, folded[i + 4]);
    return crc_of_runs(runs, crc_of_two(FOLDED(folded[4], by_32, folded[6]), FOLDED(folded[5], by_32, folded[7])));
}

static uint64_t (*crc_of_piece)(const uint8_t *, size_t) = crc_of_piece_narrow;

MULTIPLYING static uint32_t crc_by_pieces(uint32_t crc, const uint8_t *p, size_t size) {
    for (size_t piece_size; size; p += piece_size, size -= piece_size) {
        piece_size = size < PIECE_MAX ? size : PIECE_MAX;
        crc = (uint32_t)joined(crc, crc_of_piece(p, piece_size), piece_size);
    }
    return crc;
}

MULTIPLYING static uint32_t moved_by_pieces(uint32_t crc, size_t size) {
    for (; size > PIECE_MAX; size -= PIECE_MAX) crc = (uint32_t)joined(crc, 0, PIECE_MAX);
    return (uint32_t)joined(crc, 0, size);
}
#endif

/* ---- choice of the implementation ---- */

static uint32_t (*crc_of)(uint32_t, const uint8_t *, size_t) = crc_by_table;
static int is_wide; /* true if the processor has instructions for eight numbers at a time */
static int has_wide_products;  /* true if it also computes two products at a time, and extracts bits quickly */

enum { PLAIN = 0, INSTRUCTIONS = 1, PRODUCTS = 2, ALL = 3 };

/* Choose the fastest implementation of this processor, or of an older one: see `most`. */
static void detect_processor(int most) {
    (void)most;
    crc_of = crc_by_table;
    is_wide = has_wide_products = 0;
#if defined(HAS_X86)
    __builtin_cpu_init();
    if (most < INSTRUCTIONS || !__builtin_cpu_supports("sse4.2")) return;
    crc_of = crc_by_instruction;
    is_wide = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2");
    if (most < PRODUCTS || !__builtin_cpu_supports("pclmul")) return;
    crc_of = crc_by_pieces;
    has_wide_products = most >= ALL && is_wide && __builtin_cpu_supports("vpclmulqdq");
    crc_of_piece = has_wide_products ? crc_of_piece_wide : crc_of_piece_narrow;
#elif defined(HAS_ARM_CRC)
    if (most >= INSTRUCTIONS) crc_of = crc_by_instruction;
#endif
}

/* True if pieces can be joined. */
static inline int has_pieces(void) {
#ifdef HAS_X86
    return crc_of == crc_by_pieces;
#else
    return 0;
#endif
}

static uint32_t crc32c(uint32_t before, const uint8_t *p, size_t size) { return ~crc_of(~before, p, size); }

/* Return the checksum of two pieces, the second of `size` bytes. */
static inline uint32_t crc32c_combine(uint32_t first, uint32_t second, size_t size) {
#ifdef HAS_X86
    if (has_pieces()) return moved_by_pieces(first, size) ^ second;
#endif
    for (; size; size--) first = crc_table[0][first & 255] ^ first >> 8;
    return first ^ second;
}

#endif
