/* Kafka's hash of record keys (Utils.murmur2), for every kernel that needs it. */
#ifndef KSP_MURMUR2_H
#define KSP_MURMUR2_H

#include "record_bytes.h"

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

#endif
