/* Numbers, varints and lengths in record batches, for every kernel that reads them. For any bytes, a function with the
 * argument `end` reads no byte at `end` or after it.
 */
#ifndef KSP_RECORD_BYTES_H
#define KSP_RECORD_BYTES_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if defined(__GNUC__)
#define LIKELY(x) __builtin_expect(!!(x), 1)
#define INLINE static inline __attribute__((always_inline))
#else
#define LIKELY(x) (x)
#define INLINE static inline
#endif

/* ---- numbers ---- */

INLINE uint32_t native16(const uint8_t *p) { uint16_t v; memcpy(&v, p, 2); return v; }
INLINE uint32_t native32(const uint8_t *p) { uint32_t v; memcpy(&v, p, 4); return v; }
INLINE uint64_t native64(const uint8_t *p) { uint64_t v; memcpy(&v, p, 8); return v; }
INLINE uint32_t little32(const uint8_t *p) {
    return (uint32_t)p[3] << 24 | (uint32_t)p[2] << 16 | (uint32_t)p[1] << 8 | p[0];
}
INLINE uint32_t big32(const uint8_t *p) {
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}
INLINE uint64_t big64(const uint8_t *p) { return (uint64_t)big32(p) << 32 | big32(p + 4); }

/* ---- varints ---- */

/* Read a signed varint of at most 64 bits. Return the position after it; NULL: it is longer, or exceeds `end`. */
static inline const uint8_t *long_varint(const uint8_t *p, const uint8_t *end, int64_t *value) {
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

/* Return the position after a varint. Timestamps vary in length from record to record, thus there is no branch on it. */
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

/* ---- parts of a record ---- */

enum { HEADER_MIN = 2 }; /* bytes of the smallest record header: two lengths */

/* Read the length of a field, -1 for null. Return the position after the length; NULL: not a length, or the field exceeds
 * `end`. */
INLINE const uint8_t *sized(const uint8_t *p, const uint8_t *end, int64_t *size) {
    p = varint(p, end, size);
    if (!p || *size < -1 || *size > end - p) return NULL;
    return p;
}

/* Return the position after `count` record headers; NULL: they do not fit. */
static inline const uint8_t *after_headers(const uint8_t *p, const uint8_t *end, int64_t count) {
    int64_t size;
    if (count < 0 || count > (end - p) / HEADER_MIN) return NULL;
    for (; count; count--) {
        if (!(p = sized(p, end, &size)) || size < 0) return NULL;
        if (!(p = sized(p + size, end, &size))) return NULL;
        p += size < 0 ? 0 : size;
    }
    return p;
}

#endif
