/* MurmurHash64A (Austin Appleby, public domain), for keys that are compared by their hash. */
#ifndef KSP_MURMUR64_H
#define KSP_MURMUR64_H

#include "record_bytes.h"

INLINE uint64_t little64(const uint8_t *p) { return (uint64_t)little32(p + 4) << 32 | little32(p); }

INLINE uint64_t murmur64(const uint8_t *p, size_t size) {
    const uint64_t m = 0xC6A4A7935BD1E995u;
    uint64_t hash = (uint64_t)size * m;
    for (; size >= 8; p += 8, size -= 8) {
        uint64_t word = little64(p) * m;
        word = (word ^ word >> 47) * m;
        hash = (hash ^ word) * m;
    }
    if (size) {
        uint64_t rest = 0;
        while (size--) rest = rest << 8 | p[size];
        hash = (hash ^ rest) * m;
    }
    hash = (hash ^ hash >> 47) * m;
    return hash ^ hash >> 47;
}

#endif
