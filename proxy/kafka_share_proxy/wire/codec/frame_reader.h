/* Read fields of Kafka's protocol from a frame. No read leaves its bytes: every length is compared with the remaining bytes
 * before it is used, and after a wrong one all further reads fail.
 */
#ifndef KSP_FRAME_READER_H
#define KSP_FRAME_READER_H

#include <Python.h>
#include <stdint.h>

typedef struct {
    const uint8_t *bytes;
    Py_ssize_t at, end;
    int is_wrong;
    int is_flexible; /* true if the version of the message has compact lengths and tags (KIP-482) */
} Reader;

/* Return the next `count` bytes; NULL: fewer remain. */
static inline const uint8_t *take(Reader *from, int64_t count) {
    if (from->is_wrong || count < 0 || count > from->end - from->at) {
        from->is_wrong = 1;
        return NULL;
    }
    from->at += (Py_ssize_t)count;
    return from->bytes + from->at - count;
}

/* Read a big-endian signed number of `count` bytes. */
static inline int64_t number(Reader *from, int count) {
    const uint8_t *bytes = take(from, count);
    uint64_t value = bytes && (bytes[0] & 0x80) ? ~(uint64_t)0 : 0;
    for (int i = 0; bytes && i < count; i++) value = value << 8 | bytes[i];
    return (int64_t)value;
}

/* Read an unsigned varint of at most 32 bits. */
static inline uint64_t unsigned_varint(Reader *from) {
    uint64_t value = 0;
    for (int shift = 0; shift < 35; shift += 7) {
        const uint8_t *byte = take(from, 1);
        if (!byte) return 0;
        value |= (uint64_t)(*byte & 0x7F) << shift;
        if (*byte < 0x80 && value <= UINT32_MAX) return value;
    }
    from->is_wrong = 1;
    return 0;
}

#endif
